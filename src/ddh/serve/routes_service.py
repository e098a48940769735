"""The page, the pictures, and what the service reports about itself."""

import mimetypes
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request, Response
from starlette.exceptions import HTTPException

import ddh
from ddh.index.rows import check_text
from ddh.serve.errors import NoSuchKey
from ddh.serve.guard import COOKIE
from ddh.serve.items import picture_name
from ddh.serve.models import Health
from ddh.serve.service import Service, ServiceOf
from ddh.serve.thumbnails import LARGE, Thumbnail, describe

PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {".html", ".css", ".js", ".svg"}

router = APIRouter()

IfNoneMatch = Annotated[str, Header(alias="If-None-Match")]


class Jpeg(Response):
    """A picture, for the OpenAPI description."""

    media_type = "image/jpeg"


@router.get("/", response_class=Response, include_in_schema=False)
@router.get("/page/{name}", response_class=Response, include_in_schema=False)
def page_file(name: str = "index.html") -> Response:
    """A file of the page."""
    files = {path.name: path for path in PAGE.glob("*") if path.suffix in PAGE_TYPES}
    if name not in files:
        raise HTTPException(404, "the page has no such file")
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    content = files[name].read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


@router.get("/health", response_model=Health, tags=["service"])
async def health(service: ServiceOf) -> dict[str, Any]:
    """Whether the service can search (it runs a small search), and what it serves."""
    await service.check()
    index = service.index
    return {
        "status": "ok",
        "version": ddh.__version__,
        "engine": index.engine,
        "name": service.name,
        "rows": await service.in_thread("catalog", lambda: len(index)),
        "bits": index.bits,
        "model_id": index.model_id,
        "images": service.encodes_images,
        "pictures": service.pictures.root is not None,
        "token": service.settings.token is not None,
    }


@router.get("/metrics", response_class=Response, tags=["service"])
def metrics(service: ServiceOf) -> Response:
    """Counters and latencies for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/session", status_code=204, tags=["service"])
def session(request: Request, response: Response) -> None:
    """Exchange the token for a cookie, so that a browser can load pictures."""
    response.set_cookie(
        COOKIE,
        request.app.state.sessions.cookie,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


@router.get("/thumbnails/{key:path}", response_class=Jpeg, tags=["pictures"])
async def thumbnail(
    service: ServiceOf,
    key: str,
    size: Literal["160", "320", "640"] = "160",
    if_none_match: IfNoneMatch = "",
) -> Response:
    """A thumbnail of a row's picture, cached on disk."""
    return await _picture(service, key, int(size), if_none_match)


@router.get("/pictures/{key:path}", response_class=Jpeg, tags=["pictures"])
async def picture(service: ServiceOf, key: str, if_none_match: IfNoneMatch = "") -> Response:
    """The picture of a row, at most 1600 pixels wide and high; never the file itself."""
    return await _picture(service, key, LARGE, if_none_match)


async def _picture(service: Service, key: str, side: int, known: str) -> Response:
    wanted = await service.in_thread("pictures", partial(_find, service, key, side))
    headers = {"ETag": f'"{wanted.tag}"', "Cache-Control": "private, max-age=3600"}
    if headers["ETag"] in known:
        return Response(status_code=304, headers=headers)
    jpeg = await service.in_thread("pictures", partial(service.thumbnails.jpeg, wanted))
    return Jpeg(jpeg, headers=headers)


def _find(service: Service, key: str, side: int) -> Thumbnail:
    row = service.index.get(check_text(key, "a key"))
    if row is None:
        raise NoSuchKey(key)
    file = service.pictures.file(picture_name(row.key, row.path))
    try:
        if file is not None:
            return describe(file, side)
    except OSError:
        pass
    raise HTTPException(404, "the picture of this row is not in the collection's folder")
