"""Which batches of a job are finished, so that another run does only what is left.

The manifest lies with the codes: JSON lines in files `_manifest-NNNNNN.jsonl`, a new file every
few seconds, since an object store cannot append. The first line of each names the job. What a
killed run had not noted yet is done again, under the same names. At the end of a job one file is
left.
"""

import json
import time
from typing import Any

from ddh._core.errors import InputError
from ddh.cluster.batches import Batch
from ddh.cluster.store import Store

FLUSH_S = 3.0
PREFIX = "_manifest-"


class Manifest:
    """Records by batch id: {"batch": id, "rows": n, "skipped": [...]}, or {..., "split": true}."""

    def __init__(self, store: Store, job: dict[str, Any]) -> None:
        self._store, self._job = store, job
        self._records: dict[str, dict[str, Any]] = {}
        self._unsaved: list[dict[str, Any]] = []
        self._flushed = time.monotonic()
        self._segments = [name for name in store.names() if name.startswith(PREFIX)]
        for name in self._segments:
            self._read(name)

    def _read(self, name: str) -> None:
        first, *lines = self._store.read(name).splitlines()
        noted = json.loads(first)
        other = [f"{key} {noted.get(key)}" for key in self._job if noted.get(key) != self._job[key]]
        if other:
            raise InputError(
                f"{self._store.location} holds the codes of another job ({', '.join(other)}): "
                "choose another folder, or delete it"
            )
        for record in map(json.loads, lines):
            self._records[record["batch"]] = record

    def record(self, batch: Batch) -> dict[str, Any] | None:
        """What is known of a batch."""
        return self._records.get(batch.id)

    def add(self, batch: Batch, **record: Any) -> None:
        """Note a batch; on disk within a few seconds, or at the next `flush`."""
        self._records[batch.id] = {"batch": batch.id, **record}
        self._unsaved.append(self._records[batch.id])
        if time.monotonic() - self._flushed > FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Save what is not saved yet."""
        if self._unsaved:
            number = int(self._segments[-1][len(PREFIX) : -len(".jsonl")]) if self._segments else 0
            self._save(number + 1, self._unsaved)
            self._unsaved = []
        self._flushed = time.monotonic()

    def finish(self, batches: set[str]) -> None:
        """The job is complete and consists of these batches: forget others, keep one file."""
        self._records = {name: self._records[name] for name in self._records if name in batches}
        self._unsaved = list(self._records.values())
        old = self._segments
        self.flush()
        for name in old:
            self._store.delete(name)

    def _save(self, number: int, records: list[dict[str, Any]]) -> None:
        name = f"{PREFIX}{number:06d}.jsonl"
        lines = [json.dumps(entry) for entry in (self._job, *records)]
        self._store.write(name, ("\n".join(lines) + "\n").encode())
        self._segments = [*self._segments, name]
