"""An index carried over to other tools, one line each; every row in the order written.

The bits need no turning: faiss, Milvus, Lance and Parquet take the packed bytes as they are,
PostgreSQL's `bit(n)` text is the same bits read from left to right. Rows are walked through a few
thousand at a time; only faiss, which lives in memory, holds all codes.
"""

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddh._core.atomic import atomic_path, write_atomic
from ddh._core.errors import InputError, optional
from ddh.codes import code_bytes
from ddh.index.base import Index
from ddh.index.header import BIT_ORDER
from ddh.index.rows import Row, bit_strings, key_digest

if TYPE_CHECKING:
    import faiss
    import pyarrow

BATCH_ROWS = 8192

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def to_faiss(
    index: Index, path: str | os.PathLike[str] | None = None
) -> tuple["faiss.IndexBinaryFlat", list[str]]:
    """A faiss `IndexBinaryFlat` and the keys of its rows.

    With a `path` both are written too: the index for `faiss.read_index_binary`, the keys as a
    JSON list to the same name with `.keys.json` behind it. faiss counts in whole bytes, so its
    dimension is the number of bits rounded up to a multiple of 8; distances are the same.
    """
    faiss = optional("faiss", 'the export to faiss needs it: pip install "ddh[faiss]"')
    flat = faiss.IndexBinaryFlat(8 * index.code_bytes)
    keys: list[str] = []
    for rows in _batches(index):
        flat.add(np.stack([row.code for row in rows]))
        keys += [row.key for row in rows]
    if path is not None:
        with atomic_path(Path(path)) as target:
            faiss.write_index_binary(flat, str(target))
        listing = Path(f"{os.fspath(path)}.keys.json")
        write_atomic(listing, json.dumps(keys, ensure_ascii=False).encode())
    return flat, keys


def to_pgvector(index: Index, path: str | os.PathLike[str]) -> int:
    """A text file for PostgreSQL's COPY, and the number of its rows.

    Columns: key, code, path, metadata, for
    `CREATE TABLE photos (key text, code bit(64), path text, metadata jsonb)` and
    `\\copy photos FROM 'photos.copy'`.
    """
    count = 0
    with (
        atomic_path(Path(path)) as target,
        target.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        for rows in _batches(index):
            codes = bit_strings(np.stack([row.code for row in rows]), index.bits)
            for row, code in zip(rows, codes, strict=True):
                metadata = json.dumps(row.metadata, ensure_ascii=False).translate(_ESCAPES)
                where = "\\N" if row.path is None else row.path.translate(_ESCAPES)
                stream.write(f"{row.key.translate(_ESCAPES)}\t{code}\t{where}\t{metadata}\n")
            count += len(rows)
    return count


def to_milvus(index: Index) -> Iterator[list[dict[str, Any]]]:
    """Lists of rows as `MilvusClient.insert(collection, rows)` takes them.

    Fields: id (VARCHAR of 32), a digest of the key for the primary key, since not every Milvus
    takes quotes in one; key (VARCHAR); code (BINARY_VECTOR, its dimension the bits rounded up to
    a multiple of 8); path (VARCHAR, empty where there is none); metadata (JSON).
    """
    for rows in _batches(index):
        yield [
            {
                "id": key_digest(row.key),
                "key": row.key,
                "code": row.code.tobytes(),
                "path": row.path or "",
                "metadata": row.metadata,
            }
            for row in rows
        ]


def to_parquet(index: Index, path: str | os.PathLike[str]) -> int:
    """A Parquet file, and the number of its rows.

    Columns: key, code (fixed-size binary), path, metadata (JSON text). The file's own metadata
    tells `ddh.bits`, `ddh.bit_order` and `ddh.model_id`.
    """
    schema = code_schema(index.bits, index.model_id)
    from pyarrow import parquet

    count = 0
    with atomic_path(Path(path)) as target, parquet.ParquetWriter(target, schema) as writer:
        for rows in _batches(index):
            writer.write_batch(record_batch(rows, schema))
            count += len(rows)
    return count


def to_lance(index: Index, path: str | os.PathLike[str]) -> int:
    """A new Lance data set, and the number of its rows.

    Columns as in Parquet, but the code is a list of `uint8` of fixed length, which Lance can
    search by `metric="hamming"`.
    """
    pa = _pyarrow()
    lance = optional("lance", "a Lance data set needs: pip install pylance")
    if Path(path).exists():
        raise InputError(f"{os.fspath(path)} is there already: choose another name")
    schema = code_schema(index.bits, index.model_id, pa.list_(pa.uint8(), index.code_bytes))
    batches = (record_batch(rows, schema) for rows in _batches(index))
    written = lance.write_dataset(batches, os.fspath(path), schema=schema)
    return int(written.count_rows())


def _batches(index: Index) -> Iterator[list[Row]]:
    rows = index.items()
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch


def _pyarrow() -> Any:
    return optional("pyarrow", 'this export needs: pip install "ddh[parquet]"')


def code_schema(bits: int, model_id: str | None, code: Any = None, **more: str) -> "pyarrow.Schema":
    """The columns of exported rows, and the metadata that tells what the codes are."""
    pa = _pyarrow()
    described = {"ddh.bits": str(bits), "ddh.bit_order": BIT_ORDER, **more}
    if model_id:
        described["ddh.model_id"] = model_id
    code = code or pa.binary(code_bytes(bits))
    columns = {"key": pa.string(), "code": code, "path": pa.string(), "metadata": pa.string()}
    return pa.schema(columns, metadata=described)


def record_batch(rows: list[Row], schema: "pyarrow.Schema") -> "pyarrow.RecordBatch":
    """Rows in the columns of `code_schema`."""
    pa = _pyarrow()
    binary = pa.types.is_fixed_size_binary(schema.field("code").type)
    columns = [
        [row.key for row in rows],
        [row.code.tobytes() if binary else row.code for row in rows],
        [row.path for row in rows],
        [json.dumps(row.metadata, ensure_ascii=False) for row in rows],
    ]
    return pa.record_batch(columns, schema=schema)
