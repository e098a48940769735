"""The collection as a whole: facets, near-duplicates, the map, and the jobs that build it."""

import base64
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from ddh._core.jobs import read_jobs
from ddh.serve.maps import Map
from ddh.serve.models import Colours, Facets, Groups, Job, Jobs, MapKey, MapState
from ddh.serve.service import Service, ServiceOf

router = APIRouter()

Radius = Annotated[int, Query(ge=0, le=4096)]
Offset = Annotated[int, Query(ge=0, le=1 << 53)]


@router.get("/facets", response_model=Facets, tags=["collection"])
async def facets(service: ServiceOf) -> dict[str, Any]:
    """Folders with the rows below them, and the values of metadata that rows can be found by."""
    return await service.in_thread("catalog", lambda: service.catalogs.current().facets())


@router.get("/duplicates", response_model=Groups, tags=["collection"])
async def duplicates(
    service: ServiceOf,
    radius: Radius = 2,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    folder: str = "",
) -> dict[str, Any]:
    """Groups of pictures that are nearly the same; the first of each is the one to keep."""
    groups = await service.in_thread("duplicates", partial(_groups, service, radius, folder))
    page = partial(service.duplicates.page, groups[offset : offset + limit])
    return {
        "groups": await service.in_thread("pictures", page),
        "total": len(groups),
        "more": len(groups) > offset + limit,
    }


@router.get("/duplicates.csv", response_class=StreamingResponse, tags=["collection"])
async def duplicates_csv(service: ServiceOf, radius: Radius = 2, folder: str = "") -> Response:
    """All groups as a table."""
    groups = await service.in_thread("duplicates", partial(_groups, service, radius, folder))
    headers = {"Content-Disposition": 'attachment; filename="duplicates.csv"'}
    lines = service.duplicates.csv(groups)
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


def _groups(service: Service, radius: int, folder: str) -> list[list[str]]:
    return service.duplicates.groups(service.catalogs.current(), radius, folder)


@router.get("/map", response_model=MapState, tags=["map"])
async def map_state(service: ServiceOf) -> dict[str, Any]:
    """Whether the map is ready; the first request starts it."""
    return service.maps.state(await service.in_thread("catalog", service.catalogs.current))


async def _finished_map(service: ServiceOf) -> Map:
    found = service.maps.ready()
    if found is None:
        raise HTTPException(404, "there is no map yet: GET /map starts it and reports its progress")
    return found


FinishedMap = Annotated[Map, Depends(_finished_map)]


class Bytes(Response):
    """Raw numbers, for the OpenAPI description."""

    media_type = "application/octet-stream"


@router.get("/map/points", response_class=Bytes, tags=["map"])
def map_points(finished: FinishedMap) -> Response:
    """Pairs of little-endian float32 from -1 to 1."""
    return Bytes(finished.points.astype("<f4").tobytes())


@router.get("/map/codes", response_class=Bytes, tags=["map"])
def map_codes(finished: FinishedMap) -> Response:
    """The packed code of each point, one after the other."""
    return Bytes(finished.catalog.codes.tobytes())


@router.get("/map/colours", response_model=Colours, tags=["map"])
def map_colours(finished: FinishedMap, by: str) -> dict[str, Any]:
    """A category per point: values is base64 of one byte each, 255 for none."""
    category = finished.catalog.colours().get(by)
    if category is None:
        raise HTTPException(404, f"the map has no colours by {by[:60]!r}: GET /map lists them")
    return {
        "categories": [str(value) for value in category.values],
        "values": base64.b64encode(category.of_row.tobytes()).decode(),
    }


@router.get("/map/keys", response_model=MapKey, tags=["map"])
def map_key(finished: FinishedMap, at: Offset) -> dict[str, Any]:
    """The key of a point's row."""
    keys = finished.catalog.keys
    if at >= len(keys):
        raise HTTPException(404, f"the map has {len(keys)} points, none at {at}")
    return {"key": keys[at]}


@router.get("/jobs", response_model=Jobs, tags=["service"])
def jobs() -> Jobs:
    """Long jobs of this user on this machine, the newest first."""
    found = []
    for record in read_jobs():
        with suppress(ValidationError):  # written by another version
            found.append(Job.model_validate(record))
    return Jobs(jobs=found)
