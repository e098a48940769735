"""The routes by which people browse: names, dates, details, tags, saved searches, this machine."""

import time
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from ddh._core.jobs import dismiss_job, stop_job
from ddh._core.output import escaped
from ddh.index.rows import check_text
from ddh.serve import desktop, models
from ddh.serve.bodies import Fields, parse_where
from ddh.serve.details import details
from ddh.serve.find import Order, Rows, Selection, months
from ddh.serve.items import picture_name
from ddh.serve.routes import Offset, ServiceOf, WritableService, find_row
from ddh.serve.service import Service

MAX_KEYS = 10_000  # of one request

router = APIRouter()


class KeysRequest(Fields):
    """Some pictures."""

    keys: list[str] = Field(max_length=MAX_KEYS)


class TagRequest(KeysRequest):
    """Tags to add to pictures, or to remove from them."""

    add: list[str] = Field(default_factory=list, max_length=20)
    remove: list[str] = Field(default_factory=list, max_length=20)


class SavedSearch(Fields):
    """A search to keep: its name, and its address on the page; none deletes it."""

    name: str = Field(max_length=200)
    address: str = Field("", max_length=8000)


class FolderRequest(Fields):
    """A folder on the machine of the service."""

    folder: str = Field(max_length=4096)


async def _selection(
    text: Annotated[str, Query(max_length=500)] = "",
    folder: str = "",
    where: str = "",
    since: str = "",
    until: str = "",
    order: Order = "added",
) -> Selection:
    """What the pictures are found by; all words of `text` must be there."""
    conditions = tuple(sorted((parse_where(where) or {}).items()))
    return Selection(text, folder, conditions, since, until, order)


async def _local_service(service: WritableService) -> Service:
    if not service.settings.local:
        raise HTTPException(
            403, "this works only where the service can be reached from its own machine alone"
        )
    return service


SelectionOf = Annotated[Selection, Depends(_selection)]
LocalService = Annotated[Service, Depends(_local_service)]


def _rows(service: Service, selection: Selection) -> tuple[Any, Rows]:
    catalog = service.catalogs.current()
    tags = service.notes.tags() if "#" in selection.text else {}
    return catalog, service.finder.rows(catalog, selection, tags)


@router.get("/find", response_model=models.Selected, tags=["search"])
async def find(
    service: ServiceOf,
    selection: SelectionOf,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> dict[str, Any]:
    """Pictures by words in their names, folders, dates, tags (#tag) and metadata."""
    started = time.perf_counter()

    def page() -> dict[str, Any]:
        catalog, rows = _rows(service, selection)
        keys = [catalog.keys[row] for row in rows[offset : offset + limit].tolist()]
        seconds = round(time.perf_counter() - started, 6)
        found = service.index.get_many(keys)
        more = offset + limit < len(rows)
        return {
            "items": [service.pictures.item(row) for row in found],
            "total": len(rows),
            "next": offset + limit if more else None,
            "seconds": seconds,
        }

    return await service.in_thread("catalog", page)


@router.get("/timeline", response_model=models.Timeline, tags=["collection"])
async def timeline(service: ServiceOf, selection: SelectionOf) -> dict[str, Any]:
    """The months in which the selected pictures were taken."""

    def count() -> list[dict[str, Any]]:
        return [{"month": month, "rows": n} for month, n in months(*_rows(service, selection))]

    return {"months": await service.in_thread("catalog", count)}


@router.get("/details/{key:text}", response_model=models.Details, tags=["items"])
async def picture_details(service: ServiceOf, key: str) -> dict[str, Any]:
    """What the file of a picture says: size, date, camera, place; and its tags."""

    def read() -> dict[str, Any]:
        file = service.pictures.file(picture_name(find_row(service, key)))
        tags = [tag for tag, keys in service.notes.tags().items() if key in keys]
        return {"key": key, "tags": tags, **details(file, show_path=service.settings.local)}

    return await service.in_thread("pictures", read)


@router.get("/tags", response_model=models.Tags, tags=["collection"])
async def tags(service: ServiceOf) -> dict[str, Any]:
    """The tags of the collection; those of rows that are gone are kept, but not listed."""

    def count() -> list[dict[str, Any]]:
        catalog = service.catalogs.current()
        tags = service.notes.tags() if len(catalog) else {}
        rows = {tag: len(catalog.rows_of(keys)) for tag, keys in tags.items()}
        return [{"name": tag, "rows": n} for tag, n in rows.items() if n]

    return {"tags": await service.in_thread("catalog", count)}


@router.post("/tags", status_code=204, tags=["collection"])
async def tag(service: WritableService, wanted: TagRequest) -> None:
    """Add tags to pictures, or remove them."""
    keys = [check_text(key, "a key") for key in wanted.keys]
    await service.in_thread("write", partial(service.notes.tag, keys, wanted.add, wanted.remove))


@router.get("/searches", response_model=models.Searches, tags=["collection"])
async def searches(service: ServiceOf) -> dict[str, Any]:
    """The saved searches of the collection."""
    return {"searches": await service.in_thread("notes", service.notes.searches)}


@router.post("/searches", response_model=models.Searches, tags=["collection"])
async def save_search(service: WritableService, wanted: SavedSearch) -> dict[str, Any]:
    """Save a search under a name; without an address, delete the one of this name."""
    save = partial(service.notes.save, wanted.name, wanted.address)
    return {"searches": await service.in_thread("write", save)}


@router.post("/files/{action}/{key:text}", status_code=204, tags=["this machine"])
async def show(service: LocalService, action: Literal["open", "reveal"], key: str) -> None:
    """Open a picture's file on the machine of the service, or show it in the file manager."""

    def act() -> None:
        file = service.pictures.file(picture_name(find_row(service, key)))
        if file is None:
            raise HTTPException(404, "the picture of this row is not in the collection's folder")
        desktop.show_file(file, action)

    await service.in_thread("pictures", act)


@router.get("/folders", response_model=models.Folders, tags=["this machine"])
async def folders(service: LocalService, path: str = "") -> dict[str, Any]:
    """The folders inside a folder of this machine, to choose one to add."""
    return await service.in_thread("pictures", partial(desktop.list_folders, path))


@router.post("/jobs", status_code=202, tags=["this machine"])
async def add_folder(service: LocalService, wanted: FolderRequest) -> None:
    """Start to add the pictures of a folder; `/jobs` tells how far it is."""
    await service.in_thread("write", partial(service.adding.start, wanted.folder))


@router.post("/jobs/{job}/stop", status_code=204, tags=["this machine"])
def stop(service: LocalService, job: str) -> None:
    """Stop a running job, as Ctrl-C does."""
    if not stop_job(job):
        raise HTTPException(404, "no such job is running on this machine")


@router.delete("/jobs/{job}", status_code=204, tags=["this machine"])
def dismiss(service: LocalService, job: str) -> None:
    """Forget a job that has ended."""
    if not dismiss_job(job):
        raise HTTPException(404, "there is no such job, or it is still running")


@router.post("/paths", response_model=models.Paths, tags=["items"])
async def paths(service: ServiceOf, wanted: KeysRequest) -> dict[str, Any]:
    """The files of pictures: full paths where only this machine asks, else relative ones."""

    def read() -> list[str]:
        rows = service.index.get_many(wanted.keys)
        names = [picture_name(row) for row in rows]
        files = [service.pictures.file(name) if service.settings.local else None for name in names]
        return [
            name if file is None else escaped(file) for name, file in zip(names, files, strict=True)
        ]

    return {"paths": await service.in_thread("pictures", read)}
