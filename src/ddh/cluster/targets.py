"""Where the rows of a job go, written by the driver: an index, or a folder of Parquet shards."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError
from ddh.cluster.batches import Batch, Outcome, Report
from ddh.cluster.sources import is_url, open_url
from ddh.index import Index, Written
from ddh.index.collection import write_codes
from ddh.index.exports import code_schema, record_batch


class IndexTarget:
    """An open index, where the stamp of each row tells whether it is current."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def plan(self, batch: Batch, report: Report) -> Batch | None:
        """What is left to do of a batch; the rest is counted in the report."""
        rows = self._index.get_many([file.key for file in batch.files])
        stamps = {row.key: row.stamp[:2] for row in rows if row.stamp is not None}
        files = [file for file in batch.files if stamps.get(file.key) != (file.mtime_ns, file.size)]
        report.unchanged += len(batch) - len(files)
        return Batch(files) if files else None

    def write(self, batch: Batch, outcome: Outcome) -> Written:
        """Write the rows of a batch durably; writing a batch twice changes nothing."""
        rows = outcome.rows
        keys, codes = [row.key for row in rows], [row.code for row in rows]
        return write_codes(self._index, keys, codes, [row.stamp for row in rows])

    def finish(self) -> None:
        """All batches are done."""


class ShardTarget:
    """A folder or a URL of Parquet shards, one per batch.

    Columns as in `ddh.index.exports.to_parquet`; the metadata of each file also names the source
    and the images that were skipped. A batch is done when its shard is there.
    """

    def __init__(self, location: str, source: str, bits: int, model_id: str) -> None:
        self.location, self._fs, self._root = open_url(location)
        self._schema = code_schema(bits, model_id, **{"ddh.source": source})
        shards = [name for name in self._names() if name.startswith("codes-")]
        with ThreadPoolExecutor() as pool:
            self._done = dict(zip(shards, pool.map(self._read, shards), strict=True))
        self._keep: set[str] = set()

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _names(self) -> list[str]:
        """The names of all files, also of those that a killed writer left half done."""
        if not self._fs.exists(self._root):
            return []
        return [PurePosixPath(path).name for path in self._fs.ls(self._root, detail=False)]

    def _read(self, name: str) -> tuple[int, list[dict[str, str]]]:
        """Rows and skipped images of a shard; one of another model or other images is refused."""
        from pyarrow import parquet

        with self._fs.open(self._path(name), "rb") as stream:
            footer = parquet.read_metadata(stream)
        found, own = footer.metadata, self._schema.metadata
        other = [f"{key.decode()} {found.get(key)}" for key in own if found.get(key) != own[key]]
        if other:
            raise InputError(
                f"{self.location} holds the codes of another job ({', '.join(other)}): "
                "choose another folder, or delete it"
            )
        return footer.num_rows, json.loads(found[b"ddh.skipped"])

    def plan(self, batch: Batch, report: Report) -> Batch | None:
        """The batch, or None where an earlier run has done it, which is counted in the report."""
        name = f"codes-{batch.id}.parquet"
        self._keep.add(name)
        if name not in self._done:
            return batch
        rows, skipped = self._done[name]
        report.unchanged += rows
        report.skipped += skipped
        return None

    def write(self, batch: Batch, outcome: Outcome) -> Written:
        """Write the shard of a batch durably; writing it twice changes nothing."""
        from pyarrow import parquet

        described = {**self._schema.metadata, "ddh.skipped": json.dumps(outcome.skipped)}
        content = io.BytesIO()
        with parquet.ParquetWriter(content, self._schema.with_metadata(described)) as writer:
            writer.write_batch(record_batch(outcome.rows, self._schema))
        path = self._path(f"codes-{batch.id}.parquet")
        if is_url(self.location):  # objects are there whole or not at all
            self._fs.pipe_file(path, content.getvalue())
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(Path(path), content.getvalue(), durable=True)
        return Written(len(outcome.rows), 0)

    def finish(self) -> None:
        """Remove shards of images that are gone or have changed since an earlier run."""
        for name in self._names():
            if name.startswith(("codes-", ".codes-")) and name not in self._keep:
                self._fs.rm_file(self._path(name))


Target = IndexTarget | ShardTarget
