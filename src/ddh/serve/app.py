"""The ASGI application: the service behind its routes, with the guard in front."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import ddh
from ddh.serve import browse_routes, duplicate_routes, routes
from ddh.serve.errors import error_response
from ddh.serve.guard import Guard, Sessions
from ddh.serve.models import problem
from ddh.serve.request_log import RequestLog
from ddh.serve.service import Service
from ddh.serve.settings import Settings

PROBLEMS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "This service was not started with the option that this needs.",
    404: "Not found.",
    408: "The body arrived too slowly.",
    413: "The body is too large.",
    415: "The body is neither JSON nor a form.",
    421: "The Host header names another service.",
    431: "The request has too many headers.",
    422: "A value cannot be used; the text says which and why.",
    503: "Too busy, too slow, or the index cannot be reached.",
}


def create_app(location: str, settings: Settings | None = None) -> FastAPI:
    """Create the service of one index as an ASGI application.

    Parameters
    ----------
    location : str
        Index folder, or the location of a PostgreSQL or Milvus index, as for `ddh.index.open`.
    settings : Settings, optional
        Access, locations and limits; the defaults serve read-only to this machine.

    Returns
    -------
    FastAPI
        Runs in any ASGI server, in one process; its shutdown closes the index.
    """
    settings = settings or Settings()
    service = Service(location, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.finish()

    app = FastAPI(
        title="ddh",
        version=ddh.__version__,
        description="Search a collection of pictures by their compact binary codes.",
        docs_url=None,  # its page would load scripts from the network
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={status: problem(text) for status, text in PROBLEMS.items()},
    )
    app.state.service, app.state.sessions = service, Sessions(settings.token)
    app.include_router(routes.router)
    app.include_router(browse_routes.router)
    app.include_router(duplicate_routes.router)
    for kind in (HTTPException, RequestValidationError):  # FastAPI has handlers of its own
        app.add_exception_handler(kind, _on_error)
    # The last one added is the first to see a request; the guard answers for what raises.
    app.add_middleware(routes.SearchShortcut)
    log = RequestLog(service.metrics)
    app.add_middleware(Guard, settings=settings, sessions=app.state.sessions, log=log)
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(error)
