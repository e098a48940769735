"""The worker of a job: a model on one CPU or GPU that reads images and encodes them."""

import pickle
import platform
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import ddh
from ddh._core.errors import DDHError, InputError, MissingDependency, ModelError
from ddh.cluster.batches import Batch, Outcome
from ddh.cluster.sources import ImageLocation, parts
from ddh.index import FileStamp, Row

MAX_TRIES = 4
FIRST_PAUSE_S = 1.0
PERMANENT = (InputError, ModelError, MissingDependency)


class ModelFiles(NamedTuple):
    """The files of a saved model, sent to each node once."""

    files: dict[str, bytes]
    id: str
    bits: int

    @classmethod
    def read(cls, folder: Path) -> "ModelFiles":
        """Read and check a model folder."""
        from ddh.hashers import storage  # here, since it imports scikit-learn

        text, data, description = storage.read_files(folder)
        files = {storage.JSON_NAME: text, storage.ARRAYS_NAME: data}
        return cls(files, storage.digest(text, data), int(description["bits"]))

    def load(self, device: str) -> Any:
        """The model, ready to encode images."""
        with tempfile.TemporaryDirectory(prefix="ddh-model-") as folder:
            for name, content in self.files.items():
                (Path(folder) / name).write_bytes(content)
            model: Any = ddh.load(folder)
        if model.model_id != self.id:
            raise ModelError(f"the model arrived as {model.model_id}, it was sent as {self.id}")
        if not hasattr(model, "encode_images"):
            raise InputError("this model encodes ready features, not pictures")
        model.device = device
        return model


class Encoder:
    """The class that Ray Data calls with one batch at a time; `model` may be a Ray reference.

    Two calls run at a time: one reads while the other one encodes. Errors are returned, not
    raised, so that only the death of a worker loses a batch.
    """

    def __init__(self, model: Any, device: str, location: ImageLocation, version: str) -> None:
        self._given = model, device, version
        self._location, self._id = location, uuid.uuid4().hex
        self._model: Any = None
        self._network, self._setup = threading.Lock(), threading.Lock()

    def __call__(self, table: Any) -> dict[str, list[bytes]]:
        batches = [pickle.loads(batch) for batch in table["batch"].to_pylist()]
        return {"outcome": [pickle.dumps(self.encode(batch)) for batch in batches]}

    def encode(self, batch: Batch) -> Outcome:
        """Encode a batch; an error that may pass is retried."""
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
            model, device, version = self._given
            if version != ddh.__version__:
                raise InputError(
                    f"a node of the cluster has ddh {ddh.__version__}, and you have {version}: "
                    "install the same version on all of them"
                )
            self._location.check()
            if not isinstance(model, ModelFiles):
                import ray

                model = ray.get(model)
            self._model = model.load(device)

    def _encode(self, batch: Batch, outcome: Outcome) -> None:
        for files in parts(batch.files):
            source = self._location.open(files)
            with self._network:
                encoded = list(self._model.encode_images(source))
            for part in encoded:
                outcome.skipped += [{"name": b.name, "reason": b.reason} for b in part.failures]
                for i, code in zip(part.indices.tolist(), part.codes, strict=True):
                    key, _, size, mtime_ns = files[i]
                    stamp = FileStamp(mtime_ns, size, source.digest(i))
                    outcome.rows.append(Row(key, code, key, stamp))
        first, bad = outcome.skipped[:1], [entry["reason"] for entry in outcome.skipped]
        if not outcome.rows and all(reason.startswith("cannot be opened") for reason in bad):
            raise DDHError(  # the node is at fault, not the images
                f"the node {platform.node()} can open none of {len(bad)} files, the first: {first}"
            )
