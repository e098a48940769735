"""The shapes of the answers, for the OpenAPI description."""

from typing import Any

from pydantic import BaseModel


class Problem(BaseModel):
    """What went wrong."""

    detail: str


class Health(BaseModel):
    """What this service is."""

    status: str
    version: str
    engine: str
    name: str
    rows: int
    bits: int
    model_id: str | None
    images: bool
    pictures: bool
    token: bool


class Item(BaseModel):
    """One row."""

    key: str
    code: str
    path: str | None
    folder: str
    metadata: dict[str, Any]
    picture: bool


class Result(Item):
    """One row and its distance to the query, in bits."""

    distance: int


class Query(BaseModel):
    """What was searched by."""

    code: str
    bits: int
    key: str | None


class Found(BaseModel):
    """The answer of a search, nearest first."""

    query: Query
    results: list[Result]
    more: bool
    seconds: float


class Listing(BaseModel):
    """Some of the rows, in the order in which they were written."""

    items: list[Item]
    next: str | None
    rows: int
