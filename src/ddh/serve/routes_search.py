"""The route `POST /search`."""

from dataclasses import replace

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ddh.serve.bodies import body_schema, read_body
from ddh.serve.models import Found
from ddh.serve.search import SearchParams, SearchRequest
from ddh.serve.service import Service

PATH = "/search"
BODY = body_schema(SearchRequest, SearchParams)

router = APIRouter()


@router.post(PATH, response_model=Found, openapi_extra=BODY, tags=["search"])
async def search(request: Request) -> Response:
    """The nearest rows to a code, to the row of a key, or to an image."""
    service: Service = request.app.state.service
    params, image = await read_body(request, SearchRequest, SearchParams)
    query = service.searcher.validate(params)  # before the network runs
    if image is not None:
        query = replace(query, code=await service.encode(image))
    return Response(await service.search(query), media_type="application/json")


class SearchShortcut:
    """Middleware that calls `search` directly: routing would take as long as a search does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST":
            scope["ddh.route"] = PATH
            response = await search(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)
