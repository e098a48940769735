"""What `ddh bench chaos` kills: processes that work, and tell what they have done.

Each function runs in a process of its own, forked from one that has imported everything, and tells
its parent through a pipe: what it begins, and what was acknowledged.
"""

import hashlib
import os
import random
import runpy
import sys
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import ddh.index
from ddh._core.errors import DDHError
from ddh.hashers import storage

with suppress(ImportError):  # what a part of the trials needs, imported once for all of them
    import torch  # noqa: F401

    import ddh.hashers.ddh
    import ddh.pretrain.pretraining
    import ddh.serve
    import ddh.train.linear
    import ddh.train.trainer

BITS = 128
COMPONENTS = 8
SIZES = (1, 10, 300)
Write = tuple[str, str, int, int]  # what, stem of the keys, their number, version of the rows


def row_of(key: str, version: int) -> bytes:
    """Code and stored features of a row, by its key and version."""
    name = f"{key} {version}".encode()
    return hashlib.blake2b(name, digest_size=BITS // 8 + COMPONENTS).digest()


def _columns(keys: list[str], version: int) -> dict[str, Any]:
    rows = np.frombuffer(b"".join(row_of(key, version) for key in keys), np.uint8)
    codes, features = np.split(rows.reshape(len(keys), -1), [BITS // 8], axis=1)
    metadata = [{"version": version}] * len(keys)
    return {"codes": codes, "features": features.view(np.int8), "metadata": metadata}


def keys_of(stem: str, count: int) -> list[str]:
    """The keys that a write has told by their stem and number."""
    return [f"{stem}-{i}" for i in range(count)]


def create_index(folder: str) -> None:
    """An empty index with stored features."""
    with ddh.index.open(folder, bits=BITS, features=COMPONENTS) as index:
        index.fit_features(np.random.default_rng(0).standard_normal((64, 12)).astype(np.float32))


def write(told: Connection, index: ddh.index.Index, what: str, stem: str, n: int, v: int) -> None:
    """One call of the index, told before and after."""
    told.send(("doing", (what, stem, n, v)))
    keys = keys_of(stem, n)
    if what == "delete":
        index.delete(keys)
    else:
        index.upsert(keys, **_columns(keys, v))
    told.send(("done", (what, stem, n, v)))


def write_rows(told: Connection, folder: str, seed: int, compactions: float) -> None:
    """Write, replace and delete rows, and compact with a probability, until killed."""
    rng = random.Random(seed)
    with ddh.index.open(folder) as index:
        told.send(("ready", None))
        for step in range(10**6):
            size = rng.choice(SIZES)
            write(told, index, "write", f"{seed}-{step}", size, 0)
            write(told, index, "write", f"{seed}-{step}", 1 + size // 3, 1)
            write(told, index, "delete", f"{seed}-{step}", 1 + size // 5, 0)
            if rng.random() < compactions:
                told.send(("compacting", None))
                index.compact()
                told.send(("compacted", None))


def save_models(told: Connection, folder: str, seed: int) -> None:
    """Save one of two models over the other, until killed."""
    told.send(("ready", None))
    for step in range(10**6):
        told.send(("doing", None))
        storage.write(folder, {"bits": 8}, model_arrays((seed + step) % 2))
        told.send(("done", None))


def model_arrays(which: int) -> dict[str, Any]:
    """The arrays of one of two models."""
    return {"weights": np.full((200, 300), which, np.float32)}


def serve(told: Connection, folder: str, port: int) -> None:
    """A writable service, until killed."""
    _be_quiet()
    settings = ddh.serve.Settings(writable=True, cache=Path(folder + ".cache"))
    ddh.serve.run(folder, settings, host="127.0.0.1", port=port)


def command(told: Connection, arguments: list[str]) -> None:
    """A command of `ddh` with checkpoints after every step."""
    _be_quiet()
    ddh.train.trainer.CHECKPOINT_SECONDS = ddh.train.linear.CHECKPOINT_SECONDS = 0.0
    ddh.pretrain.pretraining.CHECKPOINT_SECONDS = 0
    import_module("ddh.cli.encode").PART_IMAGES = 4  # type: ignore[attr-defined]
    told.send(("ready", None))
    sys.argv = ["ddh", *arguments]
    runpy.run_module("ddh", run_name="__main__")
    told.send(("done", None))


def without_room(told: Connection, folder: str, seed: int) -> None:
    """Write to an index while no file may grow beyond a limit, then with the same handle again."""
    import resource

    limit, rng = resource.RLIMIT_FSIZE, random.Random(seed)
    soft, hard = resource.getrlimit(limit)
    with ddh.index.open(folder) as index:
        told.send(("ready", None))
        largest = max(file.stat().st_size for file in Path(folder).iterdir())
        resource.setrlimit(limit, (rng.randint(1, largest + 200_000), hard))
        with suppress(DDHError):
            for step in range(20):
                write(told, index, "write", f"{seed}-{step}", rng.choice(SIZES), 0)
        told.send(("refused", None))
        resource.setrlimit(limit, (soft, hard))
        write(told, index, "write", f"{seed}-after", 3, 0)


def without_descriptors(told: Connection, folder: str, seed: int) -> None:
    """Use an index while hardly any file can be opened, then with the same handle again."""
    import resource

    limit, rng = resource.RLIMIT_NOFILE, random.Random(seed)
    soft, hard = resource.getrlimit(limit)
    with ddh.index.open(folder) as index:
        told.send(("ready", None))
        for step in range(8):
            spare = len([*Path("/proc/self/fd").iterdir()]) - 1 + rng.randint(0, 3)
            resource.setrlimit(limit, (spare, hard))
            with suppress(DDHError):
                write(told, index, "write", f"{seed}-{step}", 2, 0)
            with suppress(DDHError):
                index.search(np.zeros((1, BITS // 8), np.uint8), 3)
            with suppress(DDHError):
                list(index.items())
            resource.setrlimit(limit, (soft, hard))
        told.send(("refused", None))
        write(told, index, "write", f"{seed}-after", 3, 0)
        index.search(np.zeros((1, BITS // 8), np.uint8), 3)


def _be_quiet() -> None:
    """Nothing of a process that will be killed belongs on the terminal."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
