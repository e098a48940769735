"""A Milvus client that comes back after it was dropped, and lets go of a Milvus Lite file."""

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import grpc  # type: ignore[import-untyped]
from pymilvus import MilvusClient
from pymilvus.exceptions import ConnectError, MilvusException, MilvusUnavailableException

from ddh._core.errors import MissingDependency
from ddh.index.connection import Connection

RPC_ATTEMPTS = 3

# It writes a traceback to the terminal for every error that it raises as well.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)

_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_LITE_HINT = (
    'binary vectors in a file need Milvus Lite 2.5: pip install "milvus-lite==2.5.1" '
    '"setuptools<82"'
)


class MilvusConnection(Connection[MilvusClient]):
    """`prepare` is called with every new client before anything else."""

    server, failure = "Milvus", MilvusException
    _lite_users: ClassVar[Counter[str]] = Counter()
    _lite_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, address: str, prepare: Callable[[MilvusClient], None]) -> None:
        self._file = None if "://" in address else str(Path(address).resolve())
        self._prepare = prepare
        with self._lite_lock:
            self._lite_users[self._file or ""] += 1
        super().__init__(address)

    def _connect(self) -> MilvusClient:
        """A new client. pymilvus shares channels, also one that the server has closed since ("Too
        many pings"): it fails once and is a new one the next time."""
        try:
            return self._new_client()
        except Exception as error:
            if self._file and "milvus-lite is required" in str(error):
                raise MissingDependency(_LITE_HINT) from error
            if hasattr(self, "_handle") or not self._is_dropped(error):
                raise
        return self._new_client()

    def _new_client(self) -> MilvusClient:
        if self._file:
            Path(self._file).parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "pkg_resources is deprecated")  # by Milvus Lite
            address = self._address.replace("milvus://", "http://", 1)
            client = MilvusClient(uri=self._file or address, timeout=10)
        self._prepare(client)
        return client

    def _disconnect(self) -> None:
        self._handle.close()
        if self._file and not self._closed:
            _stop_lite(self._file)

    def call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """A method of the client; it repeats little by itself, since it keeps a dead server's."""
        return self.run(partial(method, retry_times=RPC_ATTEMPTS, **arguments))

    def close(self) -> None:
        """Close the client; the last one that uses a Milvus Lite file stops its server."""
        if self._closed:
            return
        super().close()
        with self._lite_lock:
            self._lite_users[self._file or ""] -= 1
            if self._file and not self._lite_users[self._file]:
                _stop_lite(self._file)

    def _is_dropped(self, error: Exception) -> bool:
        if isinstance(error, grpc.RpcError):
            code: Any = getattr(error, "code", lambda: None)()
            return code in _LOST
        if isinstance(error, ConnectError | MilvusUnavailableException):
            return True
        if isinstance(error, MilvusException):
            return error.code in _LOST or "Fail connecting to server" in str(error)
        return isinstance(error, ValueError) and "closed channel" in str(error)


def _stop_lite(file: str) -> None:
    try:
        from milvus_lite.server_manager import server_manager_instance
    except ImportError:
        return
    if file in server_manager_instance._servers:
        server_manager_instance.release_server(file)
