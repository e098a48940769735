"""The worker of a job: a model on one CPU or GPU that reads, encodes and, where asked, writes."""

import json
import platform
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ddh
from ddh._core.errors import DDHError, InputError
from ddh.cluster.pictures import Picture
from ddh.cluster.sources import Place
from ddh.cluster.writing import Outcome, Rows, Writer
from ddh.images import Failure
from ddh.index.rows import FileStamp


class ModelFiles(NamedTuple):
    """The two files of a saved model, put into Ray's store once and sent to each node once."""

    description: bytes
    arrays: bytes
    id: str

    @classmethod
    def read(cls, folder: Path) -> "ModelFiles":
        """Those of a model folder, checked."""
        from ddh.hashers import storage  # here, since it brings scikit-learn with it

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
        """The model, ready to encode pictures."""
        from ddh.hashers import load_image_encoder, storage

        with tempfile.TemporaryDirectory(prefix="ddh-model-") as folder:
            (Path(folder) / storage.JSON_NAME).write_bytes(self.description)
            (Path(folder) / storage.ARRAYS_NAME).write_bytes(self.arrays)
            return load_image_encoder(folder, device=device, model_id=self.id)


class Encoder:
    """An actor. Two calls run at a time: one reads or writes while the other one encodes."""

    def prepare(
        self, version: str, model: ModelFiles, device: str, place: Place, writer: Writer | None
    ) -> None:
        """Take the job; everything that cannot work on this node is an error here.

        Without a `writer` the codes go back to the driver.
        """
        if version != ddh.__version__:
            raise InputError(
                f"a node of the cluster has ddh {ddh.__version__}, and you have {version}: "
                "install the same version on all of them"
            )
        place.check()
        self._place, self._writer = place, writer
        if writer is not None:
            writer.open()
        self._model = model.load(device)
        self._network = threading.Lock()

    def encode(self, batch_id: str, pictures: list[Picture]) -> Outcome:
        """Encode the pictures that have no current row yet, and write them where that is done here.

        Doing a batch again changes nothing.
        """
        outcome = Outcome()
        left = pictures if self._writer is None else self._writer.left(pictures)
        outcome.unchanged = len(pictures) - len(left)
        if not left:
            return outcome
        rows = self._rows(left, outcome)
        if self._writer is None:
            outcome.rows = rows
        elif len(rows):
            outcome.written = self._writer.write(batch_id, rows)
        return outcome

    def _rows(self, pictures: list[Picture], outcome: Outcome) -> Rows:
        with self._place.source(pictures) as source:
            with self._network:
                batches = list(self._model.encode_images(source))
            failures = [bad for batch in batches for bad in batch.failures]
            if len(failures) == len(pictures):
                _check_seen(failures)
            encoded = np.concatenate([batch.indices for batch in batches]).tolist()
            stamps = [
                FileStamp(pictures[i].mtime_ns, pictures[i].size, self._place.digest(source, i))
                for i in encoded
            ]
        outcome.skipped += [
            {"name": pictures[bad.index].key, "reason": bad.reason} for bad in failures
        ]
        codes = np.concatenate([batch.codes for batch in batches])
        return Rows([pictures[i].key for i in encoded], codes, stamps)


def _check_seen(failures: list[Failure]) -> None:
    """Where none of the listed files can be opened the node is at fault, and not the pictures."""
    if all(bad.reason.startswith("cannot be opened") for bad in failures):
        raise DDHError(
            f"the node {platform.node()} can open none of {len(failures)} files, the first: "
            f"{failures[0].name}: {failures[0].reason}"
        )
