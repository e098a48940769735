"""A connection to a database server that comes back after it was dropped."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from ddh._core.errors import DDHError
from ddh.index.location import without_password

Handle = TypeVar("Handle", bound=Any)
Result = TypeVar("Result")

ATTEMPTS = 9  # waits of 0.05, 0.1, ... 6.4 s between them: a server's restart fits in


class Connection(ABC, Generic[Handle]):
    """One connection; work on it is repeated on a new one if the old one breaks."""

    server: ClassVar[str]
    failure: ClassVar[type[Exception]]  # of the client's library

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.RLock()
        self._closed = False
        try:
            self._handle = self._connect()
        except Exception as error:
            self.close()
            if isinstance(error, DDHError):
                raise
            shown = without_password(address)
            raise DDHError(f"cannot connect to {shown}: {_message(error)}") from error

    @abstractmethod
    def _connect(self) -> Handle: ...

    @abstractmethod
    def _is_dropped(self, error: Exception) -> bool:
        """Whether work that raised this should be repeated on a new connection."""

    def _disconnect(self) -> None:
        self._handle.close()

    def _check_open(self) -> None:
        if self._closed:
            raise DDHError(f"the index {without_password(self._address)} is closed: open it again")

    def run(self, work: Callable[[Handle], Result]) -> Result:
        """`work`, once more from its beginning if the connection breaks: let it be repeatable."""
        with self._lock:
            self._check_open()
            try:
                return self._repeat(work)
            except self.failure as error:
                raise DDHError(f"{self.server} refuses or is gone: {_message(error)}") from error

    def _repeat(self, work: Callable[[Handle], Result]) -> Result:
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    self._disconnect()
                    self._handle = self._connect()
                return work(self._handle)
            except Exception as error:
                if attempt == ATTEMPTS - 1 or not self._is_dropped(error):
                    raise
            time.sleep(0.05 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close for good; closing twice is fine."""
        with self._lock:
            first, self._closed = not self._closed, True
            if first and hasattr(self, "_handle"):
                self._disconnect()


def _message(error: Exception) -> str:
    return (getattr(error, "message", "") or str(error)).strip()
