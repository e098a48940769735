"""A Milvus client that comes back after it was dropped, and lets go of a Milvus Lite file."""

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import grpc  # type: ignore[import-untyped]
from pymilvus import MilvusClient
from pymilvus.exceptions import ConnectError, MilvusException, MilvusUnavailableException

from ddh._core.errors import DDHError, MissingDependency
from ddh.index.location import without_password
from ddh.index.retries import with_retries

Result = TypeVar("Result")

RPC_ATTEMPTS = 3

# It writes a traceback to the terminal for every error that it raises as well.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)

_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_LITE_HINT = (
    'binary vectors in a file need Milvus Lite 2.5: pip install "milvus-lite==2.5.1" '
    '"setuptools<82"'
)


class Connection:
    """One client; a call on it is repeated on a new connection if the old one breaks.

    `prepare` is called with every new client before anything else.
    """

    _lite_users: ClassVar[Counter[str]] = Counter()
    _lite_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, address: str, prepare: Callable[[MilvusClient], None]) -> None:
        self._address = address.replace("milvus://", "http://", 1)
        self._file = None if "://" in address else str(Path(address).resolve())
        self._prepare = prepare
        self._lock = threading.RLock()
        self._open = True
        with self._lite_lock:
            self._lite_users[self._file or ""] += 1
        try:
            self._client = self._first()
        except Exception as error:
            self.close()
            if self._file and "milvus-lite is required" in str(error):
                raise MissingDependency(_LITE_HINT) from error
            shown = without_password(address)
            raise DDHError(f"cannot connect to {shown}: {_message(error)}") from error

    def _first(self) -> MilvusClient:
        """The client of a new connection. pymilvus shares channels, also one that the server has
        closed since ("Too many pings"): it fails once and is a new one the next time."""
        try:
            return self._connect()
        except Exception as error:
            if not _is_dropped(error):
                raise
        return self._connect()

    def _connect(self) -> MilvusClient:
        if self._file:
            Path(self._file).parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "pkg_resources is deprecated")  # by Milvus Lite
            client = MilvusClient(uri=self._file or self._address, timeout=10)
        self._prepare(client)
        return client

    def _reconnect(self) -> None:
        self._client.close()
        if self._file:
            _stop_lite(self._file)
        self._client = self._connect()

    def run(self, work: Callable[[MilvusClient], Result]) -> Result:
        """`work`, once more from its beginning if the connection breaks: let it be repeatable."""
        with self._lock:
            if not self._open:
                raise DDHError(f"the index in {without_password(self._address)} is closed")
            try:
                return with_retries(lambda: work(self._client), _is_dropped, self._reconnect)
            except MilvusException as error:
                raise DDHError(f"Milvus refuses or is gone: {_message(error)}") from error

    def call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """A method of the client; it repeats little by itself, since it keeps a dead server's."""
        return self.run(partial(method, retry_times=RPC_ATTEMPTS, **arguments))

    def close(self) -> None:
        """Close the client; the last one that uses a Milvus Lite file stops its server."""
        if not self._open:
            return
        self._open = False
        if hasattr(self, "_client"):
            self._client.close()
        with self._lite_lock:
            self._lite_users[self._file or ""] -= 1
            if self._file and not self._lite_users[self._file]:
                _stop_lite(self._file)


def _stop_lite(file: str) -> None:
    try:
        from milvus_lite.server_manager import server_manager_instance
    except ImportError:
        return
    if file in server_manager_instance._servers:
        server_manager_instance.release_server(file)


def _is_dropped(error: Exception) -> bool:
    if isinstance(error, grpc.RpcError):
        code: Any = getattr(error, "code", lambda: None)()
        return code in _LOST
    if isinstance(error, ConnectError | MilvusUnavailableException):
        return True
    if isinstance(error, MilvusException):
        return error.code in _LOST or "Fail connecting to server" in str(error)
    return isinstance(error, ValueError) and "closed channel" in str(error)


def _message(error: Exception) -> str:
    return getattr(error, "message", "") or str(error)
