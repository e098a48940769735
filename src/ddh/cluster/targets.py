"""Where the rows of a job go: an index, or a folder of Parquet shards.

A target is used by the driver, and a pickled copy of it by the workers where these write.
"""

import io
import json
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

import ddh.index
from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError
from ddh.cluster.batches import Batch, EncodedRow, ImageFile, Outcome
from ddh.cluster.sources import is_url, open_url
from ddh.index.exports import code_schema
from ddh.index.rows import Written

Skipped = list[dict[str, str]]


class Target:
    """Where rows go. `on_driver`: the driver writes them, since the workers cannot."""

    on_driver: bool

    def open(self) -> None:
        """Connect on a worker, or raise an error that says why that is not possible there."""

    def pending(self, files: list[ImageFile]) -> list[ImageFile]:
        """The images whose rows are missing, or are those of older files."""
        return files

    def write(self, batch_id: str, rows: list[EncodedRow], skipped: Skipped) -> Written:
        """Write the rows of a batch durably; writing a batch twice changes nothing."""
        raise NotImplementedError

    def plan(self, batch: Batch) -> tuple[Batch | None, Outcome]:
        """What is left to do of a batch, and the outcome of what an earlier run has done."""
        return batch, Outcome()

    def done(self, batch: Batch, outcome: Outcome) -> None:
        """Take what came of a batch."""
        if outcome.rows is not None:
            outcome.written = self.write(batch.id, outcome.rows, outcome.skipped)

    def finish(self) -> None:
        """All batches are done."""

    def close(self) -> None:
        """The run ends, whether the job is complete or not."""


class IndexTarget(Target):
    """An index, where the stamp of each row tells whether it is current.

    A database is written by the workers, an index on this machine by the driver.

    Parameters
    ----------
    location
        As for `ddh.index.open`; the index must be there.
    bits, model_id
        The model whose codes it holds.
    """

    def __init__(self, location: str, bits: int, model_id: str) -> None:
        self.location, self.bits, self.model_id = location, bits, model_id
        self.on_driver = not is_url(location)
        self._opened: ddh.index.Index | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def open(self) -> None:
        self._index()

    def _index(self) -> ddh.index.Index:
        if self._opened is None:
            self._opened = ddh.index.open(
                self.location, bits=self.bits, model_id=self.model_id, create=False
            )
        return self._opened

    def pending(self, files: list[ImageFile]) -> list[ImageFile]:
        rows = self._index().get_many([file.key for file in files])
        stamps = {row.key: row.stamp[:2] for row in rows if row.stamp is not None}
        return [file for file in files if stamps.get(file.key) != (file.mtime_ns, file.size)]

    def write(self, batch_id: str, rows: list[EncodedRow], skipped: Skipped) -> Written:
        if not rows:
            return Written(0, 0)
        keys, index = [row.key for row in rows], self._index()
        before = {row.key: row.metadata for row in index.get_many(keys)}
        return index.upsert(
            keys,
            np.stack([row.code for row in rows]),
            paths=keys,
            stamps=[row.stamp for row in rows],
            metadata=[before.get(key) for key in keys],
        )

    def plan(self, batch: Batch) -> tuple[Batch | None, Outcome]:
        if not self.on_driver:
            return super().plan(batch)
        files = self.pending(batch.files)
        return Batch(files) if files else None, Outcome(unchanged=len(batch) - len(files))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class Shard(NamedTuple):
    """The file of a batch. Its name tells how many rows it has and how many images it lacks."""

    batch: str
    rows: int
    skipped: int

    @property
    def name(self) -> str:
        return f"codes-{self.batch}-{self.rows}-{self.skipped}.parquet"

    @classmethod
    def parse(cls, name: str) -> "Shard | None":
        """The inverse of `name`; None for any other file."""
        parts = name.removesuffix(".parquet").split("-")
        if len(parts) != 4 or not (parts[2] + parts[3]).isdigit():
            return None
        shard = cls(parts[1], int(parts[2]), int(parts[3]))
        return shard if shard.name == name else None


class ShardTarget(Target):
    """A folder of Parquet shards, written by the driver, or a URL, written by the workers.

    Columns as in `ddh.index.exports.to_parquet`. The metadata of each file tells the model, the
    source, and the images that were skipped. A batch is done when its shard is there.

    Parameters
    ----------
    location
        A folder on this machine, or a URL such as ``s3://bucket/codes``.
    source
        Where the images come from.
    bits, model_id
        The model that encodes.
    """

    def __init__(self, location: str, source: str, bits: int, model_id: str) -> None:
        self.on_driver = not is_url(location)
        path = location.removeprefix("file://")
        self.location = path if is_url(path) else str(Path(path).resolve())
        self._fs, self._root = open_url(self.location)
        self._job = {"ddh.bits": str(bits), "ddh.model_id": model_id, "ddh.source": source}
        self._schema = code_schema(bits, model_id, **{"ddh.source": source})
        self._shards = {
            shard.batch: shard for name in self._names() if (shard := Shard.parse(name))
        }
        self._keep: set[str] = set()
        self._check()

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _names(self) -> list[str]:
        """The names of all files, also of those that a killed writer left half done."""
        if not self._fs.exists(self._root):
            return []
        return [PurePosixPath(path).name for path in self._fs.ls(self._root, detail=False)]

    def _metadata(self, name: str) -> dict[str, str]:
        from pyarrow import parquet

        with self._fs.open(self._path(name), "rb") as stream:
            found = parquet.read_metadata(stream).metadata
        return {key.decode(): value.decode() for key, value in found.items()}

    def _check(self) -> None:
        """Refuse a folder with the codes of another model or of other images."""
        first = min((name for name in self._names() if name.startswith("codes-")), default=None)
        found = self._job if first is None else self._metadata(first)
        other = [f"{key} {found.get(key)}" for key in self._job if found.get(key) != self._job[key]]
        if other:
            raise InputError(
                f"{self.location} holds the codes of another job ({', '.join(other)}): "
                "choose another folder, or delete it"
            )

    def write(self, batch_id: str, rows: list[EncodedRow], skipped: Skipped) -> Written:
        import pyarrow as pa
        from pyarrow import parquet

        keys = [row.key for row in rows]
        columns = [keys, [row.code.tobytes() for row in rows], keys, ["{}"] * len(rows)]
        schema = self._schema.with_metadata(
            {**self._schema.metadata, "ddh.skipped": json.dumps(skipped)}
        )
        content = io.BytesIO()
        parquet.write_table(pa.table(columns, schema=schema), content)
        path = self._path(Shard(batch_id, len(rows), len(skipped)).name)
        if is_url(self.location):  # objects are there whole or not at all
            self._fs.pipe_file(path, content.getvalue())
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(Path(path), content.getvalue(), durable=True)
        return Written(len(rows), 0)

    def plan(self, batch: Batch) -> tuple[Batch | None, Outcome]:
        shard = self._shards.get(batch.id)
        if shard is None:
            return super().plan(batch)
        self._keep.add(shard.name)
        skipped = json.loads(self._metadata(shard.name)["ddh.skipped"]) if shard.skipped else []
        return None, Outcome(unchanged=shard.rows, skipped=skipped)

    def done(self, batch: Batch, outcome: Outcome) -> None:
        super().done(batch, outcome)
        self._keep.add(Shard(batch.id, outcome.written.added, len(outcome.skipped)).name)

    def finish(self) -> None:
        """Remove shards of images that are gone or have changed since an earlier run."""
        for name in self._names():
            if name.startswith(("codes-", ".codes-")) and name not in self._keep:
                self._fs.rm_file(self._path(name))
