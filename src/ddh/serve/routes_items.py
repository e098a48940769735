"""`/items`: rows looked at, added and removed."""

from functools import partial
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException

from ddh._core.errors import InputError
from ddh.index.rows import check_text
from ddh.serve.errors import NoSuchKey
from ddh.serve.forms import KINDS, form_schema, is_form, is_json, read_form
from ddh.serve.models import Item, Listing, problem
from ddh.serve.search_params import NewFields, NewRow, parse_where, read_new_fields, read_new_row
from ddh.serve.service import Service
from ddh.serve.writing import refuse_unless_writable

router = APIRouter(tags=["items"])

MOST_ITEMS = 1000


@router.get("/items", response_model=Listing)
def items(
    request: Request,
    folder: str = "",
    where: str = "",
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 50,
) -> dict[str, Any]:
    """Rows in the order in which they were written; `next` of one page is `after` of the next."""
    service: Service = request.app.state.service
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
def item(request: Request, key: str) -> dict[str, Any]:
    """One row."""
    service: Service = request.app.state.service
    row = service.index.get(check_text(key, "a key"))
    if row is None:
        raise NoSuchKey(key)
    return service.pictures.item(row)


BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": NewRow.model_json_schema()},
            "multipart/form-data": {"schema": form_schema(NewFields)},
        },
    }
}


@router.post(
    "/items",
    response_model=Item,
    status_code=201,
    openapi_extra=BODY,
    responses={409: problem("A row has this key already.")},
)
async def add(request: Request) -> dict[str, Any]:
    """Add a row: its code in JSON, or a picture, which is encoded and kept in `uploads`."""
    service: Service = request.app.state.service
    refuse_unless_writable(service.settings)
    kind = request.headers.get("content-type", "")
    if is_json(kind):
        row = read_new_row(await request.body(), service.index.bits)
        return await service.in_thread("write", partial(service.rows.add, row))
    if not is_form(kind):
        raise HTTPException(415, KINDS)
    form = await read_form(request)
    fields = read_new_fields(form.fields)
    upload = await service.in_thread("pictures", partial(service.rows.inspect, form.image))
    code = await service.encode(upload.content)
    keep = partial(service.rows.add_picture, upload, fields, code)
    return await service.in_thread("write", keep)


@router.delete("/items/{key:path}", status_code=204)
async def remove(request: Request, key: str) -> None:
    """Remove a row; its file is left alone."""
    service: Service = request.app.state.service
    refuse_unless_writable(service.settings)
    await service.in_thread("write", partial(service.rows.remove, check_text(key, "a key")))
