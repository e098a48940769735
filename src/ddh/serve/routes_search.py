"""`POST /search`: the nearest rows to a code, to a row, or to a picture."""

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from ddh.serve.errors import answer_of, error_body
from ddh.serve.forms import KINDS, form_schema, is_form, is_json, read_form
from ddh.serve.guard import Application, Receive, Scope, Send, read_body
from ddh.serve.models import Found
from ddh.serve.search_params import Asked, Question, read_fields, read_json
from ddh.serve.service import Service

PATH = "/search"

router = APIRouter()


BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": Question.model_json_schema()},
            "multipart/form-data": {"schema": form_schema(Asked)},
        },
    }
}


@router.post(PATH, response_model=Found, openapi_extra=BODY, tags=["search"])
async def search(request: Request) -> Response:
    """The nearest rows to a code, to the row of a key, or to a picture."""
    service: Service = request.app.state.service
    kind = request.headers.get("content-type", "")
    if is_json(kind):
        return _json(await search_json(service, await request.body()))
    if not is_form(kind):
        raise HTTPException(415, KINDS)
    form = await read_form(request)
    asked = read_fields(form.fields)
    service.searcher.plan(asked)  # refuses before the network has worked
    code = await service.encode(form.image)
    return _json(await service.search(service.searcher.plan(asked, code)))


async def search_json(service: Service, body: bytes) -> bytes:
    """Question in, answer out."""
    return await service.search(service.searcher.plan(read_json(body)))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


class FastSearch:
    """Answers searches in JSON without the routing: that alone would take half of their time."""

    def __init__(self, app: Application, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        if not is_json(kind.decode("latin-1")):
            return await self._app(scope, receive, send)
        scope["ddh.route"] = PATH
        headers = [(b"content-type", b"application/json")]
        try:
            status, body = 200, await search_json(self._service, await read_body(receive))
        except Exception as error:
            status, text = answer_of(error)
            body = error_body(text)
            if status == 503:
                headers.append((b"retry-after", b"1"))
            given = getattr(error, "headers", None) or {}
            headers += [(name.lower().encode(), value.encode()) for name, value in given.items()]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return None
