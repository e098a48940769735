"""The routes of the duplicates: search for them, list them, act on them, undo."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from ddh._core.errors import InputError
from ddh._core.output import escaped
from ddh.serve import models
from ddh.serve.bodies import Fields
from ddh.serve.duplicates import Group, ListName, Wanted, kinds, removable_bytes
from ddh.serve.routes import Offset, ServiceOf, WritableService
from ddh.serve.service import Service

MAX_GROUPS = 1000  # of one request
TARGET = "duplicates"  # folder beside the collection's, as the page suggests it

router = APIRouter(tags=["duplicates"])


class ChosenGroup(Fields):
    """A picture that stays, and those that may go."""

    keep: str
    members: list[str] = Field(max_length=MAX_GROUPS)


class ChosenGroups(Fields):
    """Pictures of groups."""

    groups: list[ChosenGroup] = Field(max_length=MAX_GROUPS)

    def wanted(self) -> Wanted:
        """The keys that may go, by the key that stays."""
        chosen: dict[str, list[str]] = {}
        for group in self.groups:
            chosen.setdefault(group.keep, []).extend(group.members)
        return chosen


class ActionRequest(ChosenGroups):
    """What to do with pictures; `move` takes a folder on the machine of the service."""

    action: Literal["trash", "move"]
    folder: str | None = Field(None, max_length=4096)
    after: str | None = Field(
        None, max_length=200, description="The journal of the request that this one continues."
    )


class DismissRequest(ChosenGroups):
    """Pictures that are no duplicates; with `undo` they are after all."""

    undo: bool = False


class UndoRequest(Fields):
    """An action to undo."""

    journal: str = Field(max_length=200)


@router.get("/duplicates", response_model=models.Groups)
async def duplicates(
    service: ServiceOf,
    show: ListName = "duplicates",
    kind: Annotated[str, Query(max_length=40)] = "",
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> dict[str, Any]:
    """Verified duplicates that the last search has found, or pairs that are only similar.

    The first picture of a group is the one to keep.
    """
    found, local = service.duplicates, service.settings.local

    def page() -> dict[str, Any]:
        every = found.groups()
        chosen = found.groups(show, kind) if kind or show == "similar" else every
        return {
            **found.state(service.catalogs.current()),
            "writable": service.settings.writable,
            "target": _target(service) if local else None,
            "kinds": kinds(every),
            "bytes": removable_bytes(every),
            "similar": len(found.groups("similar")),
            "groups": found.page(chosen[offset : offset + limit], show_paths=local),
            "total": len(chosen),
            "more": len(chosen) > offset + limit,
        }

    return await service.in_thread("duplicates", page)


def _target(service: Service) -> str | None:
    root = service.pictures.root
    return None if root is None else escaped(root.parent / f"{root.name}-{TARGET}")


@router.get("/duplicates.csv", response_class=StreamingResponse)
async def duplicates_csv(service: ServiceOf) -> Response:
    """All verified duplicates as a table that `ddh dedup --apply` takes."""
    groups: list[Group] = await service.in_thread("duplicates", service.duplicates.groups)
    headers = {"Content-Disposition": 'attachment; filename="duplicates.csv"'}
    lines = service.duplicates.csv(groups, show_paths=service.settings.local)
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


@router.post("/duplicates/search", status_code=204)
async def search_duplicates(service: ServiceOf) -> None:
    """Look for duplicates among all files, in the background; `/duplicates` tells how far it is."""

    def start() -> None:
        service.duplicates.start(service.name, service.catalogs.current())

    await service.in_thread("duplicates", start)


@router.post("/duplicates/stop", status_code=204)
async def stop_search(service: ServiceOf) -> None:
    """Stop the search for duplicates; what an earlier one has found stays."""
    await service.in_thread("duplicates", service.duplicates.stop)


@router.post("/duplicates/act", response_model=models.Acted)
async def act(service: WritableService, wanted: ActionRequest) -> dict[str, Any]:
    """Move duplicates to the trash or to a folder, after another look at both files."""
    folder = _folder(service, wanted.folder) if wanted.action == "move" else None
    work = partial(service.duplicates.act, wanted.action, wanted.wanted(), folder, wanted.after)
    return await service.in_thread("write", work)


def _folder(service: Service, given: str | None) -> Path:
    if not service.settings.local:
        raise HTTPException(
            403, "only a service that its own machine alone can reach moves files to folders"
        )
    folder = Path(os.path.expanduser(given or ""))  # noqa: PTH111 an unknown user stays as it is
    if not given or "\0" in given or not folder.is_absolute():
        raise InputError("the folder is a full path, such as /home/me/duplicates")
    if service.pictures.holds(folder):
        raise InputError("the folder lies inside of the collection: choose one outside of it")
    return folder


@router.post("/duplicates/undo", response_model=models.Acted)
async def undo(service: WritableService, wanted: UndoRequest) -> dict[str, Any]:
    """Restore what an action has taken away; nothing is overwritten."""
    return await service.in_thread("write", partial(service.duplicates.undo, wanted.journal))


@router.post("/duplicates/dismiss", status_code=204)
async def dismiss(service: WritableService, wanted: DismissRequest) -> None:
    """Remember that pictures are no duplicates of the kept one, also for later searches."""
    change = partial(service.duplicates.dismiss, wanted.wanted(), are_duplicates=wanted.undo)
    await service.in_thread("write", change)
