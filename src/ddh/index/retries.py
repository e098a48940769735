"""Doing again what a dropped connection cut off."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

ATTEMPTS = 9  # waits of 0.05, 0.1, ... 6.4 s between them: a server's restart fits in


def with_retries(
    work: Callable[[], Result],
    dropped: Callable[[Exception], bool],
    reconnect: Callable[[], None],
) -> Result:
    """The result of `work`; where `dropped` says that the connection broke, connect and repeat."""
    wait = 0.05
    for attempt in range(ATTEMPTS):
        try:
            if attempt:
                reconnect()
            return work()
        except Exception as error:
            if attempt == ATTEMPTS - 1 or not dropped(error):
                raise
        time.sleep(wait)
        wait *= 2
    raise AssertionError("the last attempt returns or raises")
