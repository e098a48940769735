"""Errors as HTTP answers: one status and one clear text each, and nothing of the machine in it."""

import json
import logging

from starlette.exceptions import HTTPException

from ddh._core.errors import DDHError, InputError, MissingDependency
from ddh.serve.batching import Busy

LOG = logging.getLogger("ddh.serve")

UNAVAILABLE = "the service cannot do this now; its log says why"


class NoSuchKey(DDHError):
    """A key that no row has."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the index holds no row with the key {key[:200]!r}")


class KeyExists(DDHError):
    """A key that a row has already."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the index holds a row with the key {key[:200]!r} already")


class NotAllowed(DDHError):
    """Something that this service was not started for."""


class TooSlow(DDHError):
    """An answer that took longer than the service waits."""


STATUS: dict[type[Exception], int] = {
    NoSuchKey: 404,
    KeyExists: 409,
    NotAllowed: 403,
    TooSlow: 503,
    Busy: 503,
    InputError: 422,
}


def answer_of(error: Exception) -> tuple[int, str]:
    """Status and text of an error; what is wrong inside is logged and not told."""
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if not isinstance(error, MissingDependency):
        for kind, status in STATUS.items():
            if isinstance(error, kind):
                return status, str(error)
    if isinstance(error, DDHError):
        LOG.error("%s", error)
        return 503, UNAVAILABLE
    LOG.error("unexpected %s", type(error).__name__, exc_info=error)
    return 500, "something went wrong inside the service; its log says what"


def error_body(text: str) -> bytes:
    """The JSON of every error."""
    return json.dumps({"detail": text}, ensure_ascii=False).encode("utf-8", "replace")
