"""The shapes of the answers, for the OpenAPI description."""

from typing import Any, Literal

from pydantic import BaseModel


class Problem(BaseModel):
    """What went wrong."""

    detail: str


def problem(description: str) -> dict[str, Any]:
    """An answer that tells a problem: always JSON, whatever else the route gives."""
    schema = Problem.model_json_schema()
    return {"description": description, "content": {"application/json": {"schema": schema}}}


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


class Folder(BaseModel):
    """A folder and the rows below it, at any depth."""

    name: str
    rows: int


class Facets(BaseModel):
    """What rows can be found by."""

    folders: list[Folder]
    metadata: dict[str, list[str | bool | int | float]]


class CopyOf(Result):
    """A picture of a group; its distance is the one to the picture to keep."""

    width: int | None
    height: int | None
    bytes: int | None


class Group(BaseModel):
    """Pictures that are nearly the same, the one to keep first."""

    items: list[CopyOf]
    keep: str


class Groups(BaseModel):
    """A page of groups."""

    groups: list[Group]
    total: int
    more: bool


class MapState(BaseModel):
    """How far the map is."""

    state: Literal["ready", "computing", "empty"]
    points: int
    done: float
    colours: list[str]


class MapKey(BaseModel):
    """The row of a point."""

    key: str


class Colours(BaseModel):
    """A category for each point."""

    categories: list[str]
    values: str


class Curve(BaseModel):
    """A measure over what is done."""

    name: str
    x: list[float]
    y: list[float | None]


class Job(BaseModel):
    """A long job."""

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
    """Long jobs, the newest first."""

    jobs: list[Job]
