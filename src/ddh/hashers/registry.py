"""Every method by name: `ddh methods`, `ddh.hashers.create("ITQ", bits=64)`, `ddh.load(path)`."""

import ast
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ddh
from ddh._core.errors import InputError, ModelError
from ddh._core.lazy import needs_torch
from ddh.hashers import storage

if TYPE_CHECKING:  # scikit-learn, which they build on, takes seconds to import
    from ddh.hashers.base import Hasher
    from ddh.hashers.image_hasher import ImageHasher

_NAMES = (
    "LSH", "PCAH", "SH", "SphH", "KMH", "ITQ", "IsoHash", "AGH", "IMH", "SGH",
    "SemanticHashing", "DH", "DeepBit", "GreedyHash", "BiHalf", "CIBHash", "SDC", "CroVCA",
    "SSH", "SPLH", "LFH", "KSH", "SDH", "FastH",
    "CNNH", "DSRH", "DSCH", "DRSCH", "DPSH", "HashNet", "CSQ", "OrthoHash", "DDH",
)  # fmt: skip
_ELSEWHERE = {"SemanticHashing": "semantic_hashing", "DRSCH": "dsch"}
# name -> module of ddh.hashers; a module is imported when its method is first asked for, so
# that shallow methods work without torch.
MODULES = {name: _ELSEWHERE.get(name, name.lower()) for name in _NAMES}


def method(name: str) -> "type[Hasher]":
    """The class of a method, by its name in any spelling of case."""
    known = {key.lower(): key for key in MODULES}
    if name.lower() not in known:
        raise InputError(f"there is no method {name!r}; there are: {', '.join(MODULES)}")
    proper = known[name.lower()]
    with needs_torch(proper):
        return getattr(import_module(f"ddh.hashers.{MODULES[proper]}"), proper)


FACTS = ("title", "kind", "labels", "paper", "year")


def describe() -> list[dict[str, Any]]:
    """Name, title, kind, labels, paper and year of each method, read from its source: no method
    is imported, so that this is quick and works without torch."""
    classes: dict[str, ast.ClassDef] = {}
    for module in ("base", *dict.fromkeys(MODULES.values())):
        tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
        classes |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def facts(name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if name not in classes:  # a base of another module, which states none
            return found
        for base in reversed(classes[name].bases):
            found |= facts(ast.unparse(base).rpartition(".")[2])
        for node in classes[name].body:
            target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
            if isinstance(target, ast.Name) and target.id in FACTS and getattr(node, "value", None):
                found[target.id] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
        return found

    return [
        {"name": name, **{fact: ({"labels": "none"} | facts(name))[fact] for fact in FACTS}}
        for name in MODULES
    ]


def create(name: str, bits: int = 64, **settings: Any) -> "Hasher":
    """A new, unfitted hasher: `create("itq", bits=32, random_state=1)`."""
    return method(name)(bits=bits, **settings)


def default_model() -> Path:
    """The folder of the model that comes with the package.

    Its 64-bit codes work for photographs without a fit, by the default network on ONNX Runtime.

    Examples
    --------
    >>> ddh.load(ddh.default_model()).encode("photos/")  # doctest: +SKIP
    """
    return Path(__file__).parent / "default.ddh"


def load(path: str | os.PathLike[str]) -> "Hasher":
    """Open a saved model of any method.

    Parameters
    ----------
    path
        Model folder, as written by `Hasher.save`, `ddh fit` or another machine.

    Returns
    -------
    Hasher
        Ready to encode; its `model_id` is that of the folder, whatever version wrote it.

    Raises
    ------
    ModelError
        The folder holds no model, a damaged one, or one of an unknown method.

    Examples
    --------
    >>> model = ddh.load("photos.ddh")  # doctest: +SKIP
    >>> codes = model.encode("photos/")  # doctest: +SKIP
    """
    description, arrays, model_id = storage.read(path)
    name = description.get("method")
    if not isinstance(name, str) or name not in MODULES:
        raise ModelError(f"the model in {path} is of the method {name!r}, which is not known here")
    model = method(name)._from_saved(description, arrays)
    written_alike = description.get("library") == ddh.__version__ and storage.DIGEST in description
    if written_alike and model.model_id != model_id:
        raise ModelError(
            f"the model in {path} does not read back as it was written; train or copy it again"
        )
    model._loaded_id = model_id
    return model


def load_image_encoder(
    path: str | os.PathLike[str], *, device: str = "auto", model_id: str | None = None
) -> "ImageHasher":
    """Open a saved model that encodes pictures.

    Parameters
    ----------
    path
        Model folder.
    device
        Where to encode: "auto", "cpu", "cuda", "mps". It does not change the model's id.
    model_id
        The id that the model must have, such as that of an index.

    Raises
    ------
    ModelError
        The model is damaged or has another id.
    InputError
        The model encodes ready features, not pictures.
    """
    model: Any = load(path)
    if model_id is not None and model.model_id != model_id:
        raise ModelError(
            f"the index holds codes of model {model_id}, and {path} is model {model.model_id} now: "
            "give its own model (--model), or make a new index"
        )
    if getattr(model, "_backbone", None) is None:
        raise InputError(f"{path} encodes ready features, not pictures: give features (.npy)")
    model.encode_on(device)
    return model
