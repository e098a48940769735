"""The worker of a job: a model on one CPU or GPU that reads, encodes and, where asked, writes."""

import json
import pickle
import platform
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ddh
from ddh._core.errors import DDHError, InputError, MissingDependency, ModelError
from ddh.cluster.batches import Batch, EncodedRow, ImageFile, Outcome
from ddh.cluster.sources import ImageLocation
from ddh.cluster.targets import Target
from ddh.images import Failure
from ddh.index.rows import FileStamp

MAX_TRIES = 4
FIRST_PAUSE_S = 1.0
PERMANENT = (InputError, ModelError, MissingDependency)


class ModelFiles(NamedTuple):
    """The two files of a saved model, sent to each node once."""

    description: bytes
    arrays: bytes
    id: str

    @classmethod
    def read(cls, folder: Path) -> "ModelFiles":
        """Read and check a model folder."""
        from ddh.hashers import storage  # here, since it imports scikit-learn

        _, _, model_id = storage.read(folder)
        return cls(
            (folder / storage.JSON_NAME).read_bytes(),
            (folder / storage.ARRAYS_NAME).read_bytes(),
            model_id,
        )

    @property
    def bits(self) -> int:
        """The length of its codes."""
        return int(json.loads(self.description)["bits"])

    def load(self, device: str) -> Any:
        """The model, ready to encode images."""
        from ddh.hashers import storage

        with tempfile.TemporaryDirectory(prefix="ddh-model-") as folder:
            (Path(folder) / storage.JSON_NAME).write_bytes(self.description)
            (Path(folder) / storage.ARRAYS_NAME).write_bytes(self.arrays)
            model: Any = ddh.load(folder)
        if model.model_id != self.id:
            raise ModelError(f"the model arrived as {model.model_id}, it was sent as {self.id}")
        if not hasattr(model, "encode_images"):
            raise InputError("this model encodes ready features, not pictures")
        model.device = device
        return model


@dataclass(frozen=True)
class Job:
    """What a worker needs: `model` is a Ray reference; without a `target` codes are sent back."""

    model: Any
    device: str
    location: ImageLocation
    target: Target | None
    version: str = ddh.__version__


class Encoder:
    """The class that Ray Data calls with one batch at a time.

    Two calls run at a time: one reads or writes while the other one encodes. Errors are returned,
    not raised, so that only the death of a worker loses a batch.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._id = job, uuid.uuid4().hex
        self._model: Any = None
        self._network, self._setup = threading.Lock(), threading.Lock()

    def __call__(self, table: Any) -> dict[str, list[bytes]]:
        batches = [pickle.loads(batch) for batch in table["batch"].to_pylist()]
        return {"outcome": [pickle.dumps(self.encode(batch)) for batch in batches]}

    def encode(self, batch: Batch) -> Outcome:
        """Encode a batch, and write it where the workers do; repeating a batch changes nothing."""
        for attempt in range(1, MAX_TRIES + 1):
            outcome = Outcome(batch.id, self._id)
            try:
                self._prepare()
                self._encode(batch, outcome)
                return outcome
            except PERMANENT as error:
                outcome.error = type(error)(str(error))
                return outcome
            except Exception as error:
                outcome.error = DDHError(
                    f"the pictures from {batch.files[0].key} on failed {attempt} times: "
                    f"{str(error) or type(error).__name__}\n"
                    "What is done is kept; start again to go on."
                )
            if attempt < MAX_TRIES:
                time.sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))
        return outcome

    def _prepare(self) -> None:
        """Load the model once; everything that cannot work on this node is an error here."""
        with self._setup:
            if self._model is not None:
                return
            job = self._job
            if job.version != ddh.__version__:
                raise InputError(
                    f"a node of the cluster has ddh {ddh.__version__}, and you have {job.version}: "
                    "install the same version on all of them"
                )
            job.location.check()
            if job.target is not None:
                job.target.open()
            model = job.model
            if not isinstance(model, ModelFiles):
                import ray

                model = ray.get(model)
            self._model = model.load(job.device)

    def _encode(self, batch: Batch, outcome: Outcome) -> None:
        target = self._job.target
        left = batch.files if target is None else target.pending(batch.files)
        outcome.unchanged = len(batch) - len(left)
        rows = self._rows(left, outcome) if left else []
        if target is None:
            outcome.rows = rows
        else:
            outcome.written = target.write(batch.id, rows, outcome.skipped)

    def _rows(self, files: list[ImageFile], outcome: Outcome) -> list[EncodedRow]:
        rows, failures = list[EncodedRow](), list[Failure]()
        with self._job.location.open(files) as source:
            with self._network:
                batches = list(self._model.encode_images(source))
            for batch in batches:
                failures += batch.failures
                for i, code in zip(batch.indices.tolist(), batch.codes, strict=True):
                    stamp = FileStamp(files[i].mtime_ns, files[i].size, source.digests[i])
                    rows.append(EncodedRow(files[i].key, code, stamp))
        if not rows:
            _check_node(failures)
        outcome.skipped += [
            {"name": files[bad.index].key, "reason": bad.reason} for bad in failures
        ]
        return rows


def _check_node(failures: list[Failure]) -> None:
    """Where none of the listed files can be opened, the node is at fault and not the images."""
    if all(bad.reason.startswith("cannot be opened") for bad in failures):
        raise DDHError(
            f"the node {platform.node()} can open none of {len(failures)} files, the first: "
            f"{failures[0].name}: {failures[0].reason}"
        )
