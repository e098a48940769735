"""`/items`: list, read, add and remove rows."""

from functools import partial
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from ddh._core.errors import InputError
from ddh.index.rows import check_text
from ddh.serve.bodies import body_schema, parse_where, read_body
from ddh.serve.errors import NoSuchKey
from ddh.serve.models import Item, Listing, problem
from ddh.serve.service import ServiceOf, WritableService
from ddh.serve.writing import NewPicture, NewRow

MAX_ITEMS = 1000

router = APIRouter(tags=["items"])


@router.get("/items", response_model=Listing)
def items(
    service: ServiceOf,
    folder: str = "",
    where: str = "",
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=MAX_ITEMS)] = 50,
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


@router.get("/items/{key:path}", response_model=Item)
def item(service: ServiceOf, key: str) -> dict[str, Any]:
    """One row."""
    row = service.index.get(check_text(key, "a key"))
    if row is None:
        raise NoSuchKey(key)
    return service.pictures.item(row)


@router.post(
    "/items",
    response_model=Item,
    status_code=201,
    openapi_extra=body_schema(NewRow, NewPicture),
    responses={409: problem("A row has this key already.")},
)
async def add(service: WritableService, request: Request) -> dict[str, Any]:
    """Add a row: its code in JSON, or a picture, which is encoded and stored in `uploads`."""
    fields, image = await read_body(request, NewRow, NewPicture)
    if image is None:
        assert isinstance(fields, NewRow)
        add = partial(service.rows.add, fields.row(service.index.bits))
    else:
        upload = await service.in_thread("pictures", partial(service.rows.inspect, image))
        add = partial(service.rows.add_picture, upload, fields, await service.encode(image))
    return await service.in_thread("write", add)


@router.delete("/items/{key:path}", status_code=204)
async def remove(service: WritableService, key: str) -> None:
    """Remove a row, never a file."""
    await service.in_thread("write", partial(service.rows.remove, check_text(key, "a key")))
