"""The page, the pictures, and what the service says about itself."""

import mimetypes
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Request, Response
from starlette.exceptions import HTTPException

import ddh
from ddh.index.rows import check_text
from ddh.serve.errors import NoSuchKey
from ddh.serve.guard import COOKIE
from ddh.serve.items import picture_name
from ddh.serve.models import Health
from ddh.serve.service import Service
from ddh.serve.thumbnails import LARGE, Stamp, stamp

PAGE = Path(__file__).parent / "page"
KINDS = {".html", ".css", ".js", ".svg"}

router = APIRouter()


class Jpeg(Response):
    """A picture, for the OpenAPI description."""

    media_type = "image/jpeg"


@router.get("/", response_class=Response, include_in_schema=False)
def page() -> Response:
    """The page."""
    return _page_file("index.html")


@router.get("/page/{name}", response_class=Response, include_in_schema=False)
def page_file(name: str) -> Response:
    """A file of the page."""
    return _page_file(name)


def _page_file(name: str) -> Response:
    files = {path.name: path for path in PAGE.glob("*") if path.suffix in KINDS}
    if name not in files:
        raise HTTPException(404, "the page has no such file")
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return Response(
        files[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"}
    )


@router.get("/health", response_model=Health, tags=["service"])
def health(request: Request) -> dict[str, object]:
    """Whether the service works, and what it serves."""
    service: Service = request.app.state.service
    index = service.index
    return {
        "status": "ok",
        "version": ddh.__version__,
        "engine": index.engine,
        "name": service.name,
        "rows": len(index),
        "bits": index.bits,
        "model_id": index.model_id,
        "images": service.encoder is not None,
        "pictures": service.pictures.root is not None,
        "token": service.settings.token is not None,
    }


@router.get("/metrics", response_class=Response, tags=["service"])
def metrics(request: Request) -> Response:
    """Counters and times for Prometheus."""
    service: Service = request.app.state.service
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/session", status_code=204, tags=["service"])
def session(request: Request, response: Response) -> None:
    """Give the one who has the token a cookie, so that a browser can show pictures."""
    response.set_cookie(
        COOKIE,
        request.app.state.sessions.cookie,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


@router.get("/thumbnails/{key:path}", response_class=Jpeg, tags=["pictures"])
async def thumbnail(
    request: Request,
    key: str,
    size: Literal["160", "320", "640"] = "160",
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """A small picture of a row, kept on disk once it is made."""
    return await _picture(request.app.state.service, key, int(size), if_none_match)


@router.get("/pictures/{key:path}", response_class=Jpeg, tags=["pictures"])
async def picture(
    request: Request, key: str, if_none_match: Annotated[str, Header()] = ""
) -> Response:
    """The picture of a row, at most 1600 pixels wide and high; never the file itself."""
    return await _picture(request.app.state.service, key, LARGE, if_none_match)


async def _picture(service: Service, key: str, side: int, known: str) -> Response:
    wanted = await service.in_thread("pictures", partial(_stamp, service, key, side))
    headers = {"ETag": f'"{wanted.tag}"', "Cache-Control": "private, max-age=3600"}
    if f'"{wanted.tag}"' in known:
        return Response(status_code=304, headers=headers)
    jpeg = await service.in_thread("pictures", partial(service.thumbnails.jpeg, wanted))
    return Jpeg(jpeg, headers=headers)


def _stamp(service: Service, key: str, side: int) -> Stamp:
    row = service.index.get(check_text(key, "a key"))
    if row is None:
        raise NoSuchKey(key)
    file = service.pictures.file(picture_name(row.key, row.path))
    try:
        if file is not None:
            return stamp(file, side)
    except OSError:
        pass
    raise HTTPException(404, "the picture of this row is not in the collection's folder")
