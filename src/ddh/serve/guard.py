"""Access control and body limits in front of the whole application, and its error responses."""

import asyncio
import secrets
import time
from hmac import compare_digest

from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ddh.serve.errors import error_response
from ddh.serve.request_log import RequestLog
from ddh.serve.settings import Settings

Headers = dict[bytes, bytes]

COOKIE = "ddh_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC_PATHS = frozenset({"/", "/health", "/openapi.json"})
PUBLIC_FOLDER = "/page/"
MAX_LENGTH_DIGITS = 20  # of a Content-Length
MAX_HEADERS = 100
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
CLOSE = {"Connection": "close"}


class Sessions:
    """The token, and a cookie that is worth the same while this service runs."""

    def __init__(self, token: str | None) -> None:
        self._token, self.cookie = token, secrets.token_urlsafe()

    def authenticates(self, headers: Headers) -> bool:
        """Whether a request carries the token or the cookie."""
        if self._token is None:
            return True
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and compare_digest(given.strip(), self._token.encode()):
            return True
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        return compare_digest(cookies.get(COOKIE, "").encode(), self.cookie.encode())


class Guard:
    """Refuses what may not pass, adds headers, answers for whatever raises, and logs it all."""

    def __init__(
        self, app: ASGIApp, settings: Settings, sessions: Sessions, log: RequestLog
    ) -> None:
        self._app, self._settings, self._sessions, self._log = app, settings, sessions, log
        self._hosts = frozenset(host.lower().encode() for host in settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0  # the status of no response yet
        request_id = self._log.request_id(scope)
        headers = [*SECURITY_HEADERS, (b"x-request-id", request_id.encode())]

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        try:
            self._check(scope)
            body = LimitedBody(receive, self._settings.body_bytes, self._settings.body_seconds)
            await self._app(scope, body, send_safely)
        except Exception as error:
            if status:
                raise
            await error_response(error)(scope, receive, send_safely)
        finally:
            self._log.record(scope, request_id, status or 500, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        """Raise what forbids a request: its host, origin, credentials or declared length."""
        headers: Headers = dict(scope["headers"])
        if len(scope["headers"]) > MAX_HEADERS:
            raise HTTPException(431, f"the request has more than {MAX_HEADERS} headers", CLOSE)
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise HTTPException(400, "the request has more than one Host header", CLOSE)
        host = headers.get(b"host", b"").lower()
        if self._hosts and _without_port(host) not in self._hosts:
            raise HTTPException(
                421, "this service answers under its own names only: see `ddh serve --allow-host`"
            )
        path, safe = scope["path"], scope["method"] in SAFE_METHODS
        origin = headers.get(b"origin")
        if not safe and origin is not None and origin.lower().partition(b"://")[2] != host:
            raise HTTPException(403, "pages of other sites cannot change or search anything here")
        public = safe and (path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDER))
        if not public and not self._sessions.authenticates(headers):
            message = "this service needs its token: Authorization: Bearer TOKEN"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
            raise HTTPException(400, "Content-Length is not a number", CLOSE)
        if int(length) > self._settings.body_bytes:
            raise _too_large(self._settings.body_bytes)


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than the limit of {limit:,} bytes", CLOSE)


class LimitedBody:
    """A request's body as it arrives; too large or too slow is an error."""

    def __init__(self, receive: Receive, max_bytes: int, seconds: float) -> None:
        self._receive, self._max_bytes, self._seconds = receive, max_bytes, seconds
        self._bytes, self._complete = 0, False
        self._deadline: float | None = None

    async def __call__(self) -> Message:
        if self._complete:  # what comes now is the news that the client has gone
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            slow = f"the body took longer than {self._seconds:g} s"
            raise HTTPException(408, slow, CLOSE) from None
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._bytes > self._max_bytes:
                raise _too_large(self._max_bytes)
        return message
