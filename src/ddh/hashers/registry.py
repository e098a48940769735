"""Every method by name: `ddh methods`, `ddh.hashers.create("ITQ", bits=64)`, `ddh.load(path)`."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddh._core.errors import InputError, ModelError
from ddh.hashers import storage

if TYPE_CHECKING:  # scikit-learn, which it builds on, takes seconds to import on a small machine
    from ddh.hashers.base import Hasher

# name -> module of ddh.hashers; a module is imported when its method is first asked for, so
# that shallow methods work without torch.
MODULES: dict[str, str] = {
    "LSH": "lsh",
    "PCAH": "pcah",
    "SH": "sh",
    "SphH": "sphh",
    "KMH": "kmh",
    "ITQ": "itq",
    "IsoHash": "isohash",
    "SemanticHashing": "semantic_hashing",
    "DH": "dh",
    "DeepBit": "deepbit",
    "SSH": "ssh",
    "SPLH": "splh",
    "LFH": "lfh",
    "KSH": "ksh",
    "SDH": "sdh",
    "FastH": "fasth",
    "CNNH": "cnnh",
    "DSRH": "dsrh",
    "DSCH": "dsch",
    "DRSCH": "drsch",
    "DPSH": "dpsh",
    "HashNet": "hashnet",
    "DDH": "ddh",
}


def method(name: str) -> "type[Hasher]":
    """The class of a method, by its name in any spelling of case."""
    known = {key.lower(): key for key in MODULES}
    if name.lower() not in known:
        raise InputError(f"there is no method {name!r}; there are: {', '.join(MODULES)}")
    proper = known[name.lower()]
    return getattr(import_module(f"ddh.hashers.{MODULES[proper]}"), proper)


def create(name: str, bits: int = 64, **settings: Any) -> "Hasher":
    """A new, unfitted hasher: `create("itq", bits=32, random_state=1)`."""
    return method(name)(bits=bits, **settings)


def load(path: str | os.PathLike[str]) -> "Hasher":
    """Open a saved model folder of any method; the object encodes at once."""
    description, arrays, model_id = storage.read(path)
    name = description.get("method", "")
    if name not in MODULES:
        raise ModelError(f"the model in {path} is of the method {name!r}, which is not known here")
    model = method(name)._from_saved(description, arrays)
    if model.model_id != model_id:
        raise ModelError(
            f"the model in {path} does not read back as it was written; "
            f"it was saved by library version {description.get('library')}"
        )
    return model
