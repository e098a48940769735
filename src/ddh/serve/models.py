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
    writable: bool
    local: bool
    words: bool


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

    Results of a picture are ordered by their asymmetric score, those of a text by the cosine of
    its vector and theirs, without a distance; a code or a key has no score.
    """

    distance: int | None = None
    score: float | None = None


class Query(BaseModel):
    """What was searched for; `covered` pictures can be found by text so far."""

    code: str | None
    bits: int
    key: str | None
    model_id: str | None = None
    text: str | None = None
    covered: int | None = None
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


class Selected(BaseModel):
    """Pictures that words and filters select; `next` is the offset of the following page."""

    items: list[Item]
    total: int
    next: int | None
    seconds: float


class Month(BaseModel):
    month: str
    rows: int


class Timeline(BaseModel):
    months: list[Month]


class Details(BaseModel):
    """What a picture's file says; null for what it does not."""

    key: str
    tags: list[str]
    file: str | None
    bytes: int | None
    modified: str | None
    width: int | None
    height: int | None
    taken: str | None
    camera: str | None
    lens: str | None
    exposure: str | None
    place: tuple[float, float] | None


class Paths(BaseModel):
    paths: list[str]


class Tag(BaseModel):
    name: str
    rows: int


class Tags(BaseModel):
    tags: list[Tag]


class SavedSearch(BaseModel):
    name: str
    address: str


class Searches(BaseModel):
    searches: list[SavedSearch]


class Folders(BaseModel):
    """A folder of this machine and the names of the folders in it."""

    path: str
    parent: str | None
    folders: list[str]


class Folder(BaseModel):
    """A folder and the number of rows below it, at any depth."""

    name: str
    rows: int


class Facets(BaseModel):
    folders: list[Folder]
    metadata: dict[str, list[str | bool | int | float]]


class Member(Item):
    """A picture of a group: how it differs from the kept one (`keep` for that), and its file."""

    kind: str
    score: float
    width: int | None
    height: int | None
    bytes: int | None
    digest: str | None
    file: str


class Group(BaseModel):
    """Verified duplicates, the one to keep first."""

    items: list[Member]
    keep: str


class LastAction(BaseModel):
    journal: str
    action: str
    files: int
    time: str


class Groups(BaseModel):
    """The state of the search for duplicates, and a page of what it found."""

    state: Literal["none", "running", "ready", "failed"]
    message: str
    done: float | None
    finished: str | None
    compared: int
    skipped: int
    outdated: bool
    undo: LastAction | None
    writable: bool
    target: str | None
    kinds: dict[str, int]
    bytes: int
    similar: int
    groups: list[Group]
    total: int
    more: bool


class Refused(BaseModel):
    name: str
    reason: str


class Acted(BaseModel):
    """What was done, and what was left alone; the journal is what undoes it."""

    journal: str | None
    done: list[str]
    refused: list[Refused]


class MapState(BaseModel):
    state: Literal["ready", "computing", "empty"]
    points: int
    done: float
    colours: list[str]


class MapKeys(BaseModel):
    keys: list[str]


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
