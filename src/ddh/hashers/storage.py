"""A model on disk: a folder with `model.json` and `model.safetensors`, and no pickle.

The id of a model is a digest of both files, so an index can tell whose codes it holds.

`model.json` names the digest of its arrays, and moving it into place completes a save. Until the
arrays get their own name they lie beside it under a hidden one that ends with their digest, where
`read` finds them too: a kill at any moment leaves the old model or the new one.
"""

import hashlib
import json
import os
import re
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
DIGEST = "arrays_sha256"  # earlier versions have none
LEFTOVER = re.compile(
    r"\.+model\.(json|safetensors)(\.[0-9a-f]{32,})+"
)  # of a save that was killed
ATTEMPTS = 3  # to read a model while another process saves one

Arrays = dict[str, np.ndarray]


def serialise(description: dict[str, Any], arrays: Arrays) -> tuple[bytes, bytes]:
    """The two files of a model as bytes; the same model always gives the same bytes."""
    data = dump_arrays({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})
    document = {"format": FORMAT, DIGEST: _sha256(data), **description}
    text = json.dumps(document, indent=2, sort_keys=True, default=_plain_number)
    return (text + "\n").encode(), data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
    kept = list(folder.iterdir()) if folder.is_dir() else []
    leftovers = [file for file in kept if LEFTOVER.fullmatch(file.name)]
    if len(kept) > len(leftovers) and not (folder / JSON_NAME).exists():
        raise ModelError(f"{folder} is a folder with other things in it; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    text, data = serialise(description, arrays)
    hidden = _hidden(folder, _sha256(data))
    write_atomic(hidden, data, durable=True)
    write_atomic(folder / JSON_NAME, text, durable=True)
    hidden.replace(folder / ARRAYS_NAME)
    for file in leftovers:
        file.unlink(missing_ok=True)
    return digest(text, data)


def _hidden(folder: Path, arrays_digest: str) -> Path:
    """Where arrays lie until they get their own name."""
    return folder / f".{ARRAYS_NAME}.{arrays_digest}"


def read_files(path: str | os.PathLike[str]) -> tuple[bytes, bytes, dict[str, Any]]:
    """The two files of a model, which belong together, and the parsed `model.json`."""
    folder = Path(path)
    if not (folder / JSON_NAME).is_file():
        raise ModelError(f"{folder} is not a ddh model: it has no {JSON_NAME}")
    for _ in range(ATTEMPTS):
        try:
            text = (folder / JSON_NAME).read_bytes()
            description = json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(folder, error) from error
        found = description.get("format") if isinstance(description, dict) else None
        if found != FORMAT:
            raise ModelError(
                f"the model in {folder} has format {found}, this library reads format {FORMAT}"
            )
        if type(description.get("bits")) is not int:
            raise _damaged(folder, f"its bits are {description.get('bits')!r}")
        wanted = description.get(DIGEST)
        for file in (folder / ARRAYS_NAME, _hidden(folder, str(wanted))):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _damaged(folder, error) from error
            if wanted is None or _sha256(data) == wanted:
                return text, data, description
    if not (folder / ARRAYS_NAME).exists():
        raise ModelError(f"{folder} is incomplete: {ARRAYS_NAME} is missing")
    raise _damaged(folder, f"{ARRAYS_NAME} does not belong to {JSON_NAME}")


def _damaged(folder: Path, reason: object) -> ModelError:
    return ModelError(f"the model in {folder} is damaged ({reason}); train or copy it again")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays, str]:
    """Open a model folder: (description, arrays, id)."""
    text, data, description = read_files(path)
    try:
        arrays = load_arrays(data)
    except (KeyError, TypeError, ValueError, SafetensorError) as error:  # KeyError: a strange dtype
        raise _damaged(Path(path), error) from error
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise _damaged(Path(path), f"{name} holds NaN")
    return description, arrays, digest(text, data)
