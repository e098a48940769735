"""The shapes of the JSON responses, for the OpenAPI description."""

from typing import Any, Literal

from pydantic import BaseModel


def problem(description: str) -> dict[str, Any]:
    """An error response: always JSON, whatever else the route returns."""
    detail = {
        "type": "object",
        "required": ["detail"],
        "properties": {"detail": {"type": "string"}},
    }
    return {"description": description, "content": {"application/json": {"schema": detail}}}


class Health(BaseModel):
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
    missing: Literal["gone", "offline"] | None = None


class Result(Item):
    """One row and its distance to the query, in bits.

    Results of a picture are ordered by their asymmetric score; a code or a key has none.
    """

    distance: int
    score: float | None = None


class Query(BaseModel):
    code: str
    bits: int
    key: str | None
    values: list[float] | None = None
    features: str | None = None


class Found(BaseModel):
    """The response to a search, nearest first."""

    query: Query
    results: list[Result]
    more: bool
    seconds: float


class Listing(BaseModel):
    items: list[Item]
    next: str | None
    rows: int


class Folder(BaseModel):
    """A folder and the number of rows below it, at any depth."""

    name: str
    rows: int


class Facets(BaseModel):
    folders: list[Folder]
    metadata: dict[str, list[str | bool | int | float]]


class Member(Result):
    """A picture of a group; its distance is the one to the picture to keep."""

    width: int | None
    height: int | None
    bytes: int | None


class Group(BaseModel):
    """Near-duplicates, the one to keep first."""

    items: list[Member]
    keep: str


class Groups(BaseModel):
    groups: list[Group]
    total: int
    more: bool


class MapState(BaseModel):
    state: Literal["ready", "computing", "empty"]
    points: int
    done: float
    colours: list[str]


class MapKey(BaseModel):
    key: str


class Colours(BaseModel):
    categories: list[str]
    values: str


class Curve(BaseModel):
    name: str
    x: list[float]
    y: list[float | None]


class Job(BaseModel):
    id: str
    kind: str
    title: str
    state: Literal["running", "done", "failed", "stopped", "lost"]
    started: str
    updated: str
    done: int
    total: int | None
    unit: str
    seconds_left: float | None
    message: str
    curves: list[Curve]


class Jobs(BaseModel):
    jobs: list[Job]
