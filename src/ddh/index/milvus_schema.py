"""The collections of an index in Milvus, how a row looks in them, and filters as expressions."""

import json
from collections.abc import Mapping
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from ddh._core.errors import DDHError, InputError
from ddh.codes import code_bytes
from ddh.index.base import IndexHeader
from ddh.index.filters import Filter, Scalar
from ddh.index.rows import MAX_TEXT_BYTES, Columns, FileStamp, Row, key_digest, read_metadata

FLAT, IVF = "BIN_FLAT", "BIN_IVF_FLAT"
LISTS = 1024  # of an IVF index; probing all of them is exact
PROBED_LISTS = 32

ROW_FIELDS = ["id", "key", "code", "path", "stamp", "metadata"]
PATIENCE = 10.0  # seconds for a request that a healthy server answers at once

_NO_VECTOR = b"\0"  # every collection must have a vector, that of the settings too


class Collections:
    """The two collections of one index: its rows and its settings."""

    def __init__(self, name: str) -> None:
        self.rows, self.settings_name = name, f"{name}_settings"

    def load(self, client: MilvusClient) -> None:
        """Bring what is there into the server's memory, as searching wants it."""
        for name in (self.rows, self.settings_name):
            if client.has_collection(name, timeout=PATIENCE):
                client.load_collection(name, timeout=PATIENCE)

    def header(self, client: MilvusClient) -> IndexHeader | None:
        """What the index is, as its collection's description says; None where it is not there."""
        if not client.has_collection(self.rows, timeout=PATIENCE):
            return None
        return IndexHeader.from_text(
            json.loads(client.describe_collection(self.rows)["description"])
        )

    def create(self, client: MilvusClient, header: IndexHeader) -> IndexHeader:
        """Make the collection of the rows, and say what is there then."""
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
        _create(client, self.rows, schema)
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


def _create(client: MilvusClient, name: str, schema: Any) -> None:
    if not client.has_collection(name, timeout=PATIENCE):
        client.create_collection(
            name,
            schema=schema,
            index_params=_vector_index(client, FLAT),
            consistency_level="Strong",  # a search sees every row written before it
        )


def _vector_index(client: MilvusClient, kind: str) -> Any:
    params = client.prepare_index_params()
    lists = {"nlist": LISTS} if kind == IVF else {}
    params.add_index("code", index_type=kind, metric_type="HAMMING", params=lists)
    return params


def milvus_rows(rows: Columns, written: int) -> list[dict[str, Any]]:
    """Rows as `MilvusClient.insert` takes them; `written` is the order of the first."""
    return [
        {
            "id": key_digest(key),
            "key": key,
            "code": code,
            "written": position,
            "path": path or "",  # Milvus Lite has no null
            "stamp": list(stamp) if stamp else [],
            "metadata": read_metadata(metadata),
        }
        for position, (key, code, path, stamp, metadata) in enumerate(
            rows.rows(map(bytes, rows.codes)), written
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
