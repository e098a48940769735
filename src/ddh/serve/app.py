"""The application: the service behind its routes, and the guard and the watch before them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import ddh
from ddh._core.errors import DDHError
from ddh.serve import routes_collection, routes_files, routes_items, routes_search
from ddh.serve.errors import answer_of, error_body
from ddh.serve.guard import Guard, Sessions
from ddh.serve.models import problem
from ddh.serve.request_log import Watch
from ddh.serve.search_params import plain_text
from ddh.serve.service import Service
from ddh.serve.settings import Settings

DESCRIPTION = "Search a collection of pictures by their compact binary codes."
PROBLEMS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "This service was not started for that.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is neither JSON nor a form.",
    421: "The Host header names another service.",
    422: "A value cannot be used; the text says which and why.",
    503: "Too busy, too slow, or the index cannot be reached.",
}


def create_app(location: str, settings: Settings | None = None) -> FastAPI:
    """The service of one index as an ASGI application; stopping it closes the index."""
    settings = settings or Settings()
    service = Service(location, settings)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.finish()

    app = FastAPI(
        title="ddh",
        version=ddh.__version__,
        description=DESCRIPTION,
        docs_url=None,  # its page would load scripts from the network
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
        responses={status: problem(text) for status, text in PROBLEMS.items()},
    )
    app.state.service, app.state.sessions = service, Sessions(settings.token)
    for routes in (routes_files, routes_search, routes_items, routes_collection):
        app.include_router(routes.router)
    for kind in (DDHError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _tell)
    # The last one added is the first to see a request.
    app.add_middleware(routes_search.FastSearch, service=service)
    app.add_middleware(Guard, settings=settings, sessions=app.state.sessions)
    app.add_middleware(Watch, metrics=service.metrics)
    return app


async def _tell(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        status, text = 422, plain_text(error.errors())
    else:
        status, text = answer_of(error)
    headers = dict(getattr(error, "headers", None) or {})
    if status == 503:
        headers["Retry-After"] = "1"
    return Response(error_body(text), status, headers, "application/json")
