"""What a job fills, as the driver sees it: what is there already, and what has come of a batch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from ddh.cluster.batches import Batch
from ddh.cluster.manifest import Manifest
from ddh.cluster.shards import ShardWriter, shard_name
from ddh.cluster.sources import is_url
from ddh.cluster.store import Store
from ddh.cluster.writing import IndexWriter, Outcome, Writer
from ddh.index.base import BIT_ORDER


@dataclass
class Report:
    """What a job has done. `rows` were written or found current; `lost` workers died on the way."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    workers: int = 0
    lost: int = 0

    @property
    def rows(self) -> int:
        """Rows that are there now."""
        return self.new + self.changed + self.unchanged

    def add(self, outcome: Outcome) -> None:
        """Count a batch."""
        self.new += outcome.written.added
        self.changed += outcome.written.replaced
        self.unchanged += outcome.unchanged
        self.skipped += outcome.skipped


class Target(ABC):
    """Where the rows of a job go.

    `writer` is used by the workers, or with `writes_here` by the driver alone.
    """

    writer: Writer
    writes_here: bool

    @abstractmethod
    def left(self, batch: Batch, report: Report) -> list[Batch]:
        """What is to be done of a batch; the rest is counted in the report."""

    @abstractmethod
    def split(self, batch: Batch) -> None:
        """Note that a batch goes on as its two halves."""

    def done(self, batch: Batch, outcome: Outcome) -> None:
        """Take what a worker made of a batch."""
        if outcome.rows is not None and len(outcome.rows):
            outcome.written = self.writer.write(batch.id, outcome.rows)

    @abstractmethod
    def finish(self) -> None:
        """All batches are done."""

    @abstractmethod
    def close(self) -> None:
        """The run ends, whether the job is complete or not."""


class IndexTarget(Target):
    """An index. A database is written by the workers, a file on this machine by the driver."""

    def __init__(self, location: str, bits: int, model_id: str) -> None:
        self.writer: IndexWriter = IndexWriter(location, bits, model_id)
        self.writes_here = not is_url(location)
        if self.writes_here:
            self.writer.open()

    def left(self, batch: Batch, report: Report) -> list[Batch]:
        if not self.writes_here:
            return [batch]
        pictures = self.writer.left(batch.pictures)
        report.unchanged += len(batch) - len(pictures)
        return [Batch(pictures)] if pictures else []

    def split(self, batch: Batch) -> None:
        pass

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self.writer.close()


class ShardTarget(Target):
    """A folder of Parquet shards, written by the driver, or a URL, written by the workers."""

    def __init__(self, location: str, source: str, bits: int, model_id: str) -> None:
        self.store = Store(location)
        self.writer: ShardWriter = ShardWriter(self.store, bits, model_id)
        self.writes_here = not is_url(location)
        self.writer.open()
        job = {"model_id": model_id, "bits": bits, "bit_order": BIT_ORDER, "source": source}
        self._manifest = Manifest(self.store, job)
        self._shards = set(self.store.names())
        self._batches: set[str] = set()

    def left(self, batch: Batch, report: Report) -> list[Batch]:
        self._batches.add(batch.id)
        record = self._manifest.record(batch)
        if record is None or (record.get("rows") and shard_name(batch.id) not in self._shards):
            return [batch]
        if record.get("split"):
            return [left for half in batch.halves() for left in self.left(half, report)]
        report.unchanged += record["rows"]
        report.skipped += record["skipped"]
        return []

    def split(self, batch: Batch) -> None:
        self._manifest.add(batch, split=True)
        self._batches.update(half.id for half in batch.halves())

    def done(self, batch: Batch, outcome: Outcome) -> None:
        super().done(batch, outcome)
        self._manifest.add(batch, rows=outcome.written.added, skipped=outcome.skipped)

    def finish(self) -> None:
        """Also remove shards of pictures that are gone or have changed since an earlier run."""
        keep = {shard_name(batch) for batch in self._batches}
        for name in self.store.names():
            if name not in keep and name.startswith(("codes-", ".codes-", "._manifest-")):
                self.store.delete(name)
        self._manifest.finish(self._batches)

    def close(self) -> None:
        self._manifest.flush()
