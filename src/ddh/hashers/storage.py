"""A model on disk: a folder with `model.json` and `model.safetensors`, and no pickle.

The id of a model is a digest of both files, so an index can tell whose codes it holds. They are
written beside the old ones and moved into place: a reader never sees half a model.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as dump_arrays

from ddh._core.atomic import write_atomic
from ddh._core.errors import ModelError

FORMAT = 1
JSON_NAME = "model.json"
ARRAYS_NAME = "model.safetensors"

Arrays = dict[str, np.ndarray]


def serialise(description: dict[str, Any], arrays: Arrays) -> tuple[bytes, bytes]:
    """The two files of a model as bytes; the same model always gives the same bytes."""
    text = json.dumps(
        {"format": FORMAT, **description}, indent=2, sort_keys=True, default=_plain_number
    )
    tidy = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    return (text + "\n").encode(), dump_arrays(tidy)


def _plain_number(value: Any) -> Any:
    """NumPy scalars, which json refuses, as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a model cannot be saved with {value!r}: settings are plain values")


def digest(description: bytes, arrays: bytes) -> str:
    """The id of a model: 16 hexadecimal digits of SHA-256 over both files."""
    inner = hashlib.sha256(description).digest() + hashlib.sha256(arrays).digest()
    return hashlib.sha256(inner).hexdigest()[:16]


def write(path: str | os.PathLike[str], description: dict[str, Any], arrays: Arrays) -> str:
    """Save a model folder and return its id."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file; a model is saved as a folder, choose another name")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / JSON_NAME).exists():
        raise ModelError(f"{folder} is a folder with other things in it; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    text, data = serialise(description, arrays)
    for name, content in ((ARRAYS_NAME, data), (JSON_NAME, text)):
        write_atomic(folder / name, content, durable=True)
    return digest(text, data)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays, str]:
    """Open a model folder: (description, arrays, id)."""
    folder = Path(path)
    if not (folder / JSON_NAME).is_file():
        raise ModelError(f"{folder} is not a ddh model: it has no {JSON_NAME}")
    try:
        text = (folder / JSON_NAME).read_bytes()
        data = (folder / ARRAYS_NAME).read_bytes()
        description = json.loads(text)
        arrays = load_arrays(data)
    except FileNotFoundError as error:
        raise ModelError(f"{folder} is incomplete: {ARRAYS_NAME} is missing") from error
    except (ValueError, SafetensorError) as error:
        raise ModelError(
            f"the model in {folder} is damaged ({error}); train or copy it again"
        ) from error
    found = description.get("format") if isinstance(description, dict) else None
    if found != FORMAT:
        raise ModelError(
            f"the model in {folder} has format {found}, this library reads format {FORMAT}"
        )
    return description, arrays, digest(text, data)
