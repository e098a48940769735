"""A Milvus connection, the collections of an index, their rows, and filters as expressions."""

import json
import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import grpc  # type: ignore[import-untyped]
import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import ConnectError, MilvusException, MilvusUnavailableException

from ddh._core.errors import DDHError, InputError, MissingDependency
from ddh.codes import code_bytes
from ddh.index.connection import Connection
from ddh.index.filters import Filter, Scalar
from ddh.index.header import IndexHeader
from ddh.index.rows import MAX_TEXT_BYTES, Columns, FileStamp, Row, key_digest, read_metadata

RPC_ATTEMPTS = 3
FLAT, IVF = "BIN_FLAT", "BIN_IVF_FLAT"
LISTS = 1024  # of an IVF index; probing all of them is exact
PROBED_LISTS = 32
ROWS_SETTING = "rows_collection"

ROW_FIELDS = ["id", "key", "code", "path", "stamp", "metadata"]
PATIENCE = 10.0  # seconds for a request that a healthy server answers at once
# No pings on an idle channel, as gRPC has it: Milvus Lite closes one that pings every 10 seconds.
CHANNEL_OPTIONS = {"grpc.keepalive_time_ms": 2**31 - 1}

_NO_VECTOR = b"\0"  # every collection must have a vector, that of the settings too
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_LITE_HINT = (
    'binary vectors in a file need Milvus Lite 2.5: pip install "milvus-lite==2.5.1" '
    '"setuptools<82"'
)

# It writes a traceback to the terminal for every error that it raises as well.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


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
        """A new client; a shared channel that the server has closed fails once, and is new then."""
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
            client = MilvusClient(
                uri=self._file or address, timeout=10, grpc_options=CHANNEL_OPTIONS
            )
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


class Collections:
    """The two collections of one index: its rows and its settings.

    Rows that were given the codes of another model lie in a collection of their own, which the
    setting ROWS_SETTING names: writing that setting makes them the rows of the index.
    """

    def __init__(self, name: str) -> None:
        self.name = self.rows = name
        self.settings_name = f"{name}_settings"

    def load(self, client: MilvusClient) -> None:
        """Bring what is there into the server's memory, as searching wants it."""
        if client.has_collection(self.settings_name, timeout=PATIENCE):
            client.load_collection(self.settings_name, timeout=PATIENCE)
            self.rows = self.settings(client).get(ROWS_SETTING, self.name)
        if client.has_collection(self.rows, timeout=PATIENCE):
            client.load_collection(self.rows, timeout=PATIENCE)

    def begin_recoding(self, client: MilvusClient, header: IndexHeader) -> str:
        """A new, empty collection for the rows with other codes."""
        name = f"{self.name}_rows_{key_digest(str(header.model_id))[:16]}"
        if name == self.rows:
            name += "_2"
        client.drop_collection(name)  # of an attempt that was cut off
        _create_rows(client, name, header)
        client.load_collection(name)
        return name

    def end_recoding(self, client: MilvusClient, name: str, settings: Mapping[str, str]) -> None:
        """Make the rows of that collection those of the index."""
        before = self.rows
        self.set_settings(client, {**settings, ROWS_SETTING: name})
        self.rows = name
        client.drop_collection(before)

    def header(self, client: MilvusClient) -> IndexHeader | None:
        """What the index is, as its collection's description says; None where it is not there."""
        if not client.has_collection(self.rows, timeout=PATIENCE):
            return None
        return IndexHeader.from_text(
            json.loads(client.describe_collection(self.rows)["description"])
        )

    def create(self, client: MilvusClient, header: IndexHeader) -> IndexHeader:
        """Make the collection of the rows, and say what is there then."""
        _create_rows(client, self.rows, header)
        return self.header(client) or header

    def kind(self, client: MilvusClient) -> str:
        """The kind of the index over the codes."""
        return str(client.describe_index(self.rows, "code")["index_type"])

    def use_lists(self, client: MilvusClient) -> None:
        """Search through lists (IVF) from now on."""
        if self.kind(client) == IVF:
            return
        client.release_collection(self.rows)
        client.drop_index(self.rows, "code")
        try:
            client.create_index(self.rows, _vector_index(client, IVF))
        except MilvusException as error:
            client.create_index(self.rows, _vector_index(client, FLAT))
            raise DDHError(
                f"this Milvus keeps no {IVF} index (Milvus Lite has {FLAT} only), so it cannot "
                "search approximately: open without approximate"
            ) from error
        finally:
            client.load_collection(self.rows)

    def settings(self, client: MilvusClient) -> dict[str, str]:
        """All settings."""
        if not client.has_collection(self.settings_name, timeout=PATIENCE):
            return {}
        found = client.query(
            self.settings_name, filter='name != ""', output_fields=["name", "value"]
        )
        return {row["name"]: row["value"] for row in found}

    def set_settings(self, client: MilvusClient, settings: Mapping[str, str]) -> None:
        """Write settings; their collection is made when there are any."""
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=256)
        schema.add_field("value", DataType.VARCHAR, max_length=65535)
        schema.add_field("code", DataType.BINARY_VECTOR, dim=8)
        _create(client, self.settings_name, schema)
        rows = [
            {"name": name, "value": value, "code": _NO_VECTOR} for name, value in settings.items()
        ]
        client.upsert(self.settings_name, rows)

    def compact(self, client: MilvusClient) -> None:
        """Ask for a compaction, where the server has one (Milvus Lite has none)."""
        try:
            client.compact(self.rows)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise


def _create_rows(client: MilvusClient, name: str, header: IndexHeader) -> None:
    """Make a collection for rows, unless it is there."""
    schema = client.create_schema(
        auto_id=False, enable_dynamic_field=False, description=json.dumps(header.as_text())
    )
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=32)
    schema.add_field("key", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=8 * code_bytes(header.bits))
    schema.add_field("written", DataType.INT64)
    schema.add_field("path", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("stamp", DataType.JSON)
    schema.add_field("metadata", DataType.JSON)
    if header.features:  # bytes as they are; their bits are never compared
        schema.add_field("features", DataType.BINARY_VECTOR, dim=8 * header.features)
    _create(client, name, schema, *(["features"] if header.features else []))


def _create(client: MilvusClient, name: str, schema: Any, *vectors: str) -> None:
    params = _vector_index(client, FLAT)
    for field in vectors:  # Milvus loads no collection with a vector that has no index
        params.add_index(field, index_type=FLAT, metric_type="HAMMING", params={})
    if not client.has_collection(name, timeout=PATIENCE):
        client.create_collection(
            name,
            schema=schema,
            index_params=params,
            consistency_level="Strong",  # a search sees every row written before it
        )


def _vector_index(client: MilvusClient, kind: str) -> Any:
    params = client.prepare_index_params()
    lists = {"nlist": LISTS} if kind == IVF else {}
    params.add_index("code", index_type=kind, metric_type="HAMMING", params=lists)
    return params


def milvus_rows(rows: Columns, written: int) -> list[dict[str, Any]]:
    """Rows as `MilvusClient.insert` takes them; `written` is the order of the first."""
    features: Iterable[dict[str, Any]] = repeat({})
    if rows.features is not None:
        features = ({"features": row.tobytes()} for row in rows.features)
    return [
        {
            "id": key_digest(key),
            "key": key,
            "code": code,
            "written": position,
            "path": path or "",  # Milvus Lite has no null
            "stamp": list(stamp) if stamp else [],
            "metadata": read_metadata(metadata),
            **more,
        }
        for position, ((key, code, path, stamp, metadata), more) in enumerate(
            zip(rows.rows(map(bytes, rows.codes)), features, strict=False), written
        )
    ]


def read_row(found: Mapping[str, Any]) -> Row:
    """The inverse of `milvus_rows`."""
    code = np.frombuffer(found["code"][0], np.uint8)
    stamp = FileStamp(*found["stamp"]) if found["stamp"] else None
    return Row(found["key"], code, found["path"] or None, stamp, found["metadata"])


def expression(only: Filter) -> str:
    """The filter in Milvus's language."""
    parts = [f"metadata[{_literal(name)}] == {_literal(value)}" for name, value in only.equal]
    if only.folder:
        first, behind = only.folder
        parts.append(f"path >= {_literal(first)} and path < {_literal(behind)}")
    return " and ".join(parts)


def _literal(value: Scalar) -> str:
    """A value as Milvus's language writes it; it knows no escapes but those of these two."""
    if not isinstance(value, str):
        return json.dumps(value)
    if set(value) & set("\r\n"):
        raise InputError(f"Milvus cannot compare text with line breaks: {value!r}")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
