"""Who may ask and how much they may send: hosts, origins, tokens, sizes and times of bodies.

It stands in front of the whole application, so that nothing behind it has to remember.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.exceptions import HTTPException

from ddh.serve.errors import error_body
from ddh.serve.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[bytes, bytes]

COOKIE = "ddh_session"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN_PATHS = frozenset({"/", "/health", "/openapi.json"})
OPEN_FOLDER = "/page/"
LONGEST_LENGTH = 20  # digits of a Content-Length
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


class Sessions:
    """The token, and the cookie that stands for it as long as this service runs."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        key = secrets.token_bytes(32)
        self.cookie = hmac.new(key, (token or "").encode(), hashlib.sha256).hexdigest()

    def knows(self, headers: Headers) -> bool:
        """Whether a request carries the token or the cookie."""
        if self._token is None:
            return True
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and _same(given.strip(), self._token):
            return True
        return _same(_cookie(headers), self.cookie)


def _same(given: bytes, expected: str) -> bool:
    return hmac.compare_digest(given, expected.encode())


def _cookie(headers: Headers) -> bytes:
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return b""
    return found.value.encode("latin-1", "replace") if found else b""


class Guard:
    """Refuses what may not pass; gives every answer the headers that keep a browser safe."""

    def __init__(self, app: Application, settings: Settings, sessions: Sessions) -> None:
        self._app, self._settings, self._sessions = app, settings, sessions
        self._hosts = frozenset(host.lower().encode() for host in settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        headers: Headers = dict(scope["headers"])
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _refuse(send_safely, refused)
            return
        body = Body(receive, self._settings.body_bytes, self._settings.body_seconds)
        await self._app(scope, body, send_safely)

    def _refusal(self, scope: Scope, headers: Headers) -> HTTPException | None:
        host = headers.get(b"host", b"").lower()
        if self._hosts and _without_port(host) not in self._hosts:
            return HTTPException(
                421, "this service answers under its own names only: see `ddh serve --allow-host`"
            )
        path, safe = scope["path"], scope["method"] in SAFE
        origin = headers.get(b"origin")
        if not safe and origin is not None and origin.lower().partition(b"://")[2] != host:
            return HTTPException(403, "pages of other sites cannot change or ask anything here")
        is_open = safe and (path in OPEN_PATHS or path.startswith(OPEN_FOLDER))
        if not is_open and not self._sessions.knows(headers):
            return HTTPException(
                401,
                "this service needs its token: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )
        return _too_long(headers, self._settings.body_bytes)


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


def _too_long(headers: Headers, most: int) -> HTTPException | None:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > LONGEST_LENGTH:
        return HTTPException(400, "Content-Length is not a number", {"Connection": "close"})
    return _body_too_large(most) if int(length) > most else None


def _body_too_large(most: int) -> HTTPException:
    text = f"the body is larger than the limit of {most:,} bytes"
    return HTTPException(413, text, {"Connection": "close"})


async def _refuse(send: Send, refused: HTTPException) -> None:
    headers = [(b"content-type", b"application/json")]
    headers += [(k.lower().encode(), v.encode()) for k, v in (refused.headers or {}).items()]
    body = error_body(refused.detail)
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": refused.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Body:
    """A request's body as it arrives; too much of it, or too slowly, is an error."""

    def __init__(self, receive: Receive, most_bytes: int, seconds: float) -> None:
        self._receive, self._most_bytes, self._seconds = receive, most_bytes, seconds
        self._bytes, self._complete = 0, False
        self._deadline: float | None = None

    async def __call__(self) -> Message:
        if self._complete:  # what comes now is the news that the client has gone
            return await self._receive()
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408, f"the body took longer than {self._seconds:g} s", {"Connection": "close"}
            ) from None
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._bytes > self._most_bytes:
                raise _body_too_large(self._most_bytes)
        return message


async def read_body(receive: Receive) -> bytes:
    """All of a body."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise HTTPException(400, "the client went away before its body was complete")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
