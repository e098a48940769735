"""The routes of the HTTP API and of the page."""

import asyncio
import base64
import mimetypes
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import ValidationError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ddh
from ddh._core.errors import InputError
from ddh._core.jobs import read_jobs
from ddh.index import IndexRecoded, Row
from ddh.index.collection import bytes_digest
from ddh.index.rows import check_text
from ddh.serve import models, page_files
from ddh.serve.bodies import body_schema, parse_where, read_body
from ddh.serve.errors import no_such_key
from ddh.serve.guard import COOKIE
from ddh.serve.items import picture_name
from ddh.serve.maps import Map
from ddh.serve.search import SearchParams, SearchRequest
from ddh.serve.service import Service
from ddh.serve.thumbnails import LARGE, thumbnail_tag
from ddh.serve.writing import NewPicture, NewRow

KEEP = "private, max-age=31536000, immutable"
SEARCH = "/search"
MAX_MAP_KEYS = 500  # of one request
WATCH_SECONDS = 0.1  # until it is watched whether a client that waits is still there

Result = TypeVar("Result")


class TextConvertor(PathConvertor):
    """A key in an address: unlike a path, it may hold line breaks."""

    regex = "(?s:.*)"


register_url_convertor("text", TextConvertor())
router = APIRouter()


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    await service.follow()
    return service


ServiceOf = Annotated[Service, Depends(_service)]


async def _writable_service(service: ServiceOf) -> Service:
    if not service.settings.writable:
        raise HTTPException(
            403, "this service is read-only: start it with --writable to change rows"
        )
    return service


async def _finished_map(service: ServiceOf) -> Map:
    if service.maps.finished is None:
        raise HTTPException(404, "there is no map yet: GET /map starts it and reports its progress")
    return service.maps.finished


WritableService = Annotated[Service, Depends(_writable_service)]
FinishedMap = Annotated[Map, Depends(_finished_map)]
IfNoneMatch = Annotated[str, Header(alias="If-None-Match")]
Offset = Annotated[int, Query(ge=0, le=1 << 53)]


class Jpeg(Response):
    """A picture, for the OpenAPI description."""

    media_type = "image/jpeg"


class Bytes(Response):
    """Raw numbers, for the OpenAPI description."""

    media_type = "application/octet-stream"


@router.post(
    SEARCH,
    response_model=models.Found,
    openapi_extra=body_schema(SearchRequest, SearchParams),
    tags=["search"],
)
async def search(request: Request) -> Response:
    """The nearest rows to a code, to the row of a key, to an image, or to a text."""
    service = await _service(request)
    params, image = await read_body(request, SearchRequest, SearchParams)
    try:
        found = await _found(request, service, params, image)
    except IndexRecoded:
        await service.follow(at_once=True)
        found = await _found(request, service, params, image)
    return Response(found, media_type="application/json")


async def _found(
    request: Request, service: Service, params: SearchParams, image: bytes | None
) -> bytes:
    """The response body of a search."""
    if image is not None:
        await service.follow(at_once=True)  # the former model may be gone
    query = service.searcher.validate(params)  # before the network runs
    if query.text:
        return await _unless_gone(request, service.search_text(query))
    if image is not None:
        encoding = await _unless_gone(request, service.encode(image))
        query = replace(query, digest=bytes_digest(image), **encoding._asdict())
    return await _unless_gone(request, service.search(query))


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, Result]) -> Result:
    """The answer; if the client goes first, the place in the queue is given up."""
    own, loop = asyncio.current_task(), asyncio.get_running_loop()
    watcher: asyncio.Future[Message] | None = None

    def watch() -> None:
        nonlocal watcher
        watcher = asyncio.ensure_future(request.receive())
        watcher.add_done_callback(lambda gone: gone.cancelled() or (own and own.cancel()))

    timer = loop.call_later(WATCH_SECONDS, watch)  # a quick answer is not worth a task
    try:
        return await answer
    except asyncio.CancelledError:
        if watcher is None or not watcher.done() or own is None:
            raise
        own.uncancel()
        raise ClientDisconnect from None
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()


class SearchShortcut:
    """Middleware that calls `search` directly: routing would take as long as a search does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == SEARCH and scope["method"] == "POST":
            scope["ddh.route"] = SEARCH
            response = await search(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


@router.get("/items", response_model=models.Listing, tags=["items"])
def items(
    service: ServiceOf,
    folder: str = "",
    where: str = "",
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> dict[str, Any]:
    """Rows in the order in which they were written; `next` of one page is `after` of the next."""
    index = service.index
    if after and index.get(after) is None:
        raise InputError("the row that this page follows is gone: start again without after")
    found = index.items(where=parse_where(where), folder=folder or None, after=after or None)
    rows = list(islice(found, limit + 1))
    return {
        "items": [service.pictures.item(row) for row in rows[:limit]],
        "next": rows[limit - 1].key if len(rows) > limit else None,
        "rows": len(index),
    }


@router.get("/items/{key:text}", response_model=models.Item, tags=["items"])
def item(service: ServiceOf, key: str) -> dict[str, Any]:
    """One row."""
    return service.pictures.item(find_row(service, key))


def find_row(service: Service, key: str) -> Row:
    """The row of a key; raises status 404 where there is none."""
    row = service.index.get(check_text(key, "a key"))
    if row is None:
        raise no_such_key(key)
    return row


@router.post(
    "/items",
    response_model=models.Item,
    status_code=201,
    openapi_extra=body_schema(NewRow, NewPicture),
    responses={409: models.problem("A row has this key already.")},
    tags=["items"],
)
async def add(service: WritableService, request: Request) -> dict[str, Any]:
    """Add a row: its code in JSON, or a picture, which is encoded and stored in `uploads`."""
    fields, image = await read_body(request, NewRow, NewPicture)
    if image is None:
        assert isinstance(fields, NewRow)
        write = partial(service.rows.add, fields.row(service.index.bits))
    else:
        service.rows.upload_root()  # before the network runs
        write = partial(service.rows.add_picture, image, fields, await service.encode(image))
    try:
        return await service.in_thread("write", write)
    except IndexRecoded:
        await service.follow(at_once=True)
        if image is None:  # the client's code may be of the former model
            raise
    write = partial(service.rows.add_picture, image, fields, await service.encode(image))
    return await service.in_thread("write", write)


@router.delete("/items/{key:text}", status_code=204, tags=["items"])
async def remove(service: WritableService, key: str) -> None:
    """Remove a row, never a file."""
    await service.in_thread("write", partial(service.rows.remove, check_text(key, "a key")))


@router.get("/thumbnails/{key:text}", response_class=Jpeg, tags=["pictures"])
async def thumbnail(
    service: ServiceOf,
    key: str,
    size: Literal["160", "320", "640"] = "160",
    if_none_match: IfNoneMatch = "",
) -> Response:
    """A thumbnail of a row's picture, cached on disk."""
    return await _picture(service, key, int(size), if_none_match)


@router.get("/pictures/{key:text}", response_class=Jpeg, tags=["pictures"])
async def picture(service: ServiceOf, key: str, if_none_match: IfNoneMatch = "") -> Response:
    """The picture of a row, at most 1600 pixels wide and high; never the file itself."""
    return await _picture(service, key, LARGE, if_none_match)


async def _picture(service: Service, key: str, side: int, known: str) -> Response:
    def read() -> tuple[dict[str, str], bytes | None]:
        tag, file = _picture_file(service, key, side)
        headers = {"ETag": f'"{tag}"', "Cache-Control": "private, max-age=3600"}
        if headers["ETag"] in known:
            return headers, None
        return headers, service.thumbnails.jpeg(tag, file, side)

    headers, jpeg = await service.in_thread("pictures", read)
    if jpeg is None:
        return Response(status_code=304, headers=headers)
    return Jpeg(jpeg, headers=headers)


def _picture_file(service: Service, key: str, side: int) -> tuple[str, Path]:
    row = find_row(service, key)
    with suppress(OSError):
        if file := service.pictures.file(picture_name(row)):
            return thumbnail_tag(file, side), file
    raise HTTPException(
        404, "the picture of this row is not in the collection's folder, or behind a link out of it"
    )


@router.get("/facets", response_model=models.Facets, tags=["collection"])
async def facets(service: ServiceOf) -> dict[str, Any]:
    """Folders with the rows below them, and the values of metadata that rows can be found by."""
    return await service.in_thread("catalog", lambda: service.catalogs.current().facets())


@router.get("/map", response_model=models.MapState, tags=["map"])
async def map_state(service: ServiceOf) -> dict[str, Any]:
    """Whether the map is ready; the first request starts it."""
    return service.maps.state(await service.in_thread("catalog", service.catalogs.current))


@router.get("/map/points", response_class=Bytes, tags=["map"])
def map_points(finished: FinishedMap) -> Response:
    """Pairs of little-endian float32 from -1 to 1."""
    return Bytes(finished.points.astype("<f4").tobytes())


@router.get("/map/codes", response_class=Bytes, tags=["map"])
def map_codes(finished: FinishedMap) -> Response:
    """The packed code of each point, one after the other."""
    return Bytes(finished.catalog.codes.tobytes())


@router.get("/map/colours", response_model=models.Colours, tags=["map"])
def map_colours(finished: FinishedMap, by: str) -> dict[str, Any]:
    """A category per point: values is base64 of one byte each, 255 for none."""
    category = finished.catalog.colours().get(by)
    if category is None:
        raise HTTPException(404, f"the map has no colours by {by[:60]!r}: GET /map lists them")
    return {
        "categories": [str(value) for value in category.values],
        "values": base64.b64encode(category.of_row.tobytes()).decode(),
    }


@router.get("/map/keys", response_model=models.MapKeys, tags=["map"])
def map_keys(
    finished: FinishedMap, at: Annotated[list[int], Query(max_length=MAX_MAP_KEYS)]
) -> dict[str, Any]:
    """The keys of the rows of some points."""
    keys = finished.catalog.keys
    if outside := [point for point in at if not 0 <= point < len(keys)]:
        raise HTTPException(404, f"the map has {len(keys)} points, none at {outside[0]}")
    return {"keys": [keys[point] for point in at]}


@router.get("/", response_class=Response, include_in_schema=False)
async def page() -> Response:
    """The page."""
    return Response(
        page_files.page(), media_type="text/html", headers={"Cache-Control": "no-cache"}
    )


@router.get("/page/{name}", response_class=Response, include_in_schema=False)
@router.get("/page/{version}/{name}", response_class=Response, include_in_schema=False)
async def page_file(name: str, version: str = "") -> Response:
    """A file of the page; under its version a browser need not ask for it again."""
    content = page_files.page_files().get(name)
    if content is None:
        raise HTTPException(404, "the page has no such file")
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    kept = KEEP if version == page_files.page_version() else "no-cache"
    return Response(content, media_type=kind, headers={"Cache-Control": kept})


@router.get("/health", response_model=models.Health, tags=["service"])
async def health(service: ServiceOf) -> dict[str, Any]:
    """Whether the service can search (it runs a small search), and what it serves."""
    try:
        await service.check()
    except IndexRecoded:
        await service.follow(at_once=True)
        await service.check()
    index = service.index
    return {
        "status": "ok",
        "version": ddh.__version__,
        "engine": index.engine,
        "name": service.name,
        "rows": await service.in_thread("notes", lambda: len(index)),
        "bits": index.bits,
        "model_id": index.model_id,
        "images": service.encodes_pictures,
        "pictures": service.pictures.root is not None,
        "token": service.settings.token is not None,
        "writable": service.settings.writable,
        "local": service.settings.local,
        "words": service.words is not None,
    }


@router.get("/jobs", response_model=models.Jobs, tags=["service"])
def jobs() -> models.Jobs:
    """Long jobs of this user on this machine, the newest first."""
    found = []
    for record in read_jobs():
        with suppress(ValidationError):  # written by another version
            found.append(models.Job.model_validate(record))
    return models.Jobs(jobs=found)


@router.get("/metrics", response_class=Response, tags=["service"])
def metrics(service: ServiceOf) -> Response:
    """Counters and latencies for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/session", status_code=204, tags=["service"])
def session(request: Request, response: Response) -> None:
    """Exchange the token for a cookie, so that a browser can load pictures."""
    cookie, secure = request.app.state.sessions.cookie, request.url.scheme == "https"
    response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=secure)
