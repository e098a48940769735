"""A folder of results: each measurement is made once, so that a stopped run goes on where it was.

    results/measurements/ITQ-64-0-1f3a....json   one measurement with the key it belongs to
    results/features/9c0e....npy                 features of a data set
    results/table2/...                           what a bench wrote

A measurement is found by a digest of its whole key (library, data, split, features, method,
settings, bits, seed, cut), so two benches share what they have in common and a changed setting is
never mistaken for an old one. Whoever changes the code of a method takes a new folder.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddh._core.atomic import write_atomic
from ddh._core.errors import InputError

Key = dict[str, Any]


def key_digest(key: Key) -> str:
    """16 hexadecimal digits for a key."""
    text = json.dumps(key, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """The results folder of one user of the benches."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file; results are written into a folder")

    def folder(self, bench: str) -> Path:
        """The folder of a bench, made if need be."""
        path = self.root / bench
        path.mkdir(parents=True, exist_ok=True)
        return path

    def measure(self, name: str, key: Key, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result that is stored for `key`, or that of `compute()`, which is then stored."""
        path = self.root / "measurements" / f"{name}-{key_digest(key)}.json"
        stored = _read(path, key)
        if stored is not None:
            return stored
        result = compute()
        text = json.dumps({"key": key, "result": result}, indent=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
        return result


def _read(path: Path, key: Key) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None  # not there, or cut short: measured again
    if content.get("key") != json.loads(json.dumps(key)):
        return None
    return content["result"]
