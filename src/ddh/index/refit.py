"""Fit a new model on the features that an index stores, and give all rows its codes.

The network is not run: the hashing layer is fitted on the stored components z of the features x,
and z = P x makes it a layer on x, so the new model is an ordinary one with the same network.

The model is saved before the codes are changed, and the codes change in one step that also notes
the model: a kill at any moment leaves an index whose codes are those of the model it names.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.index.base import Index
from ddh.index.collection import Collection

if TYPE_CHECKING:
    from ddh.hashers import DDH
    from ddh.hashers.base import Hasher

FITTED_ROWS = 100_000  # at most; the labels of more cost time and change little
ATTEMPT = "refit"  # the setting that names the model of an attempt that may have been cut off


@dataclass(frozen=True)
class Refit:
    """What `refit` did: the new model, and the rows that it was fitted on."""

    model: str
    model_id: str
    former_model_id: str | None
    bits: int
    rows: int
    fitted_rows: int


def refit(
    index: Index,
    output: str | os.PathLike[str] | None = None,
    *,
    bits: int | None = None,
    device: str = "auto",
    random_state: int = 0,
) -> Refit:
    """Fit DDH on the features that an index stores, save the model, and re-encode every row.

    Run it again after an interruption. Whoever has the index open must open it again, or
    `follow`.

    Parameters
    ----------
    index : Index
        It was made with `features`; the model that it names is needed for its network.
    output : path, optional
        Folder for the new model; by default a new one beside the present model.
    bits : int, optional
        Length of the new codes; as before by default.
    device, random_state
        As in `DDH`.

    Returns
    -------
    Refit
    """
    transform = index.feature_transform
    if transform is None:
        raise InputError(
            f"{index.location} stores no features to fit a model on: make the index with "
            "`ddh index add --features 128`"
        )
    collection = Collection(index)
    former, length = _former_model(collection), bits or index.bits
    folder = _output(collection, output)
    stored = index.sample_features(FITTED_ROWS, random_state)
    fitted = _unfitted(former, length, device, random_state).fit(transform.decode(stored))
    index.set_setting(**{ATTEMPT: str(folder)})
    model = fitted.before(transform.projection, getattr(former, "_backbone", None))
    before, model_id = index.model_id, model.save(folder)

    def encode(part: NDArray[Any]) -> NDArray[Any]:
        return fitted.encode(transform.decode(part))

    settings = collection.path_settings("model", folder)
    index.recode(encode, bits=length, model_id=model_id, settings=settings)
    return Refit(str(folder), model_id, before, length, len(index), len(stored))


def _former_model(collection: Collection) -> "Hasher | None":
    """The model of the index; None where it never had a folder, as with features of your own."""
    from ddh.hashers import load

    noted = collection.index.settings().get("model")
    if noted is None:
        return None
    if collection.model is None:
        raise InputError(
            f"the model of this index is not at {noted} any more, and its network is needed: put "
            "it back, or note its new place with `ddh index add FOLDER --index ... --model MODEL`"
        )
    model = load(collection.model)
    if model.model_id != collection.index.model_id:
        raise InputError(
            f"the index holds codes of model {collection.index.model_id}, and {collection.model} "
            f"is model {model.model_id} now"
        )
    return model


def _output(collection: Collection, wanted: str | os.PathLike[str] | None) -> Path:
    """Where to save the model: not over the present one, which the index needs until the end."""
    present = collection.model
    if wanted is not None:
        folder = Path(wanted).resolve()
        if folder == present:
            raise InputError(f"{folder} is the present model of the index: choose another folder")
        return folder
    attempt = collection.index.settings().get(ATTEMPT)
    if attempt and Path(attempt) != present:
        return Path(attempt)
    if present is None:
        raise InputError("say where to save the new model: --model FOLDER")
    stem, dot, number = present.stem.rpartition(".")
    stem = stem if dot and number.isdigit() else present.stem
    names = (present.with_name(f"{stem}.{n}{present.suffix}") for n in range(2, 10**6))
    return next(path for path in names if not path.exists())


def _unfitted(former: "Hasher | None", bits: int, device: str, seed: int) -> "DDH":
    """DDH with the preset and the settings of the present model, if that is one."""
    from ddh.hashers import DDH

    options: dict[str, Any] = {}
    if isinstance(former, DDH):
        of_pictures = ("views", "flip_tta", "normalize")
        kept = {k: v for k, v in (former.settings or {}).items() if k not in of_pictures}
        options = {"preset": former.preset, "settings": kept or None}
    return DDH(bits, device=device, random_state=seed, **options)
