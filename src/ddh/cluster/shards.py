"""Parquet shards: the codes of each batch in a file of its own, named by the batch."""

import io
from typing import Any

from ddh._core.errors import MissingDependency
from ddh.cluster.pictures import Picture
from ddh.cluster.store import Store
from ddh.cluster.writing import Rows
from ddh.codes import code_bytes
from ddh.index.base import BIT_ORDER
from ddh.index.rows import Written


def shard_name(batch_id: str) -> str:
    """The file of a batch."""
    return f"codes-{batch_id}.parquet"


class ShardWriter:
    """Columns as in `ddh.index.exports.to_parquet`: key, code, path, metadata (JSON text).

    The code is fixed-size binary in the bit order of `ddh.codes`; the file's own metadata tells
    `ddh.bits`, `ddh.bit_order` and `ddh.model_id`. A batch written twice is the same file.
    """

    def __init__(self, store: Store, bits: int, model_id: str) -> None:
        self.store, self.bits, self.model_id = store, bits, model_id

    def open(self) -> None:
        _pyarrow()

    def left(self, pictures: list[Picture]) -> list[Picture]:
        """All of them: the driver's manifest knows which batches are done."""
        return pictures

    def write(self, batch_id: str, rows: Rows) -> Written:
        pa, parquet = _pyarrow()
        code = pa.binary(code_bytes(self.bits))
        schema = pa.schema(
            {"key": pa.string(), "code": code, "path": pa.string(), "metadata": pa.string()},
            metadata={
                "ddh.bits": str(self.bits), "ddh.bit_order": BIT_ORDER,
                "ddh.model_id": self.model_id,
            },
        )  # fmt: skip
        codes = pa.FixedSizeBinaryArray.from_buffers(
            code, len(rows), [None, pa.py_buffer(rows.codes.tobytes())]
        )
        keys = pa.array(rows.keys, pa.string())
        table = pa.table([keys, codes, keys, pa.array(["{}"] * len(rows))], schema=schema)
        content = io.BytesIO()
        parquet.write_table(table, content)
        self.store.write(shard_name(batch_id), content.getvalue())
        return Written(len(rows), 0)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency('Parquet shards need: pip install "ddh[parquet]"') from error
    return pyarrow, parquet
