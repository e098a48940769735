"""`/items`: rows looked at, added and removed."""

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from ddh.errors import InputError
from ddh.index.rows import check_text
from ddh.serve.errors import NoSuchKey
from ddh.serve.models import Item, Listing
from ddh.serve.questions import parse_where
from ddh.serve.service import Service

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
