"""Settings of a pretraining, and where the objectives are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from typing import Any

from ddh._core.errors import InputError
from ddh.pretrain.objective import SelfSupervised
from ddh.pretrain.transforms import ViewSettings

# name -> "module:class" below ddh.pretrain
OBJECTIVES = {"byol": "byol:BYOL", "codes": "codes:Codes"}


@dataclass(frozen=True)
class PretrainSettings:
    """Either `epochs` or `minutes` says how long; the defaults are BYOL's on small pictures."""

    objective: str = "byol"
    epochs: int | None = None
    minutes: float | None = None
    """Time for the training, measured from its first step; the schedule is planned to fit."""
    batch_size: int = 512
    learning_rate: float = 0.12
    """For 256 pictures a batch; it grows in proportion, and falls along half a cosine wave."""
    warm_up: float = 5
    """Epochs in which the rate rises from 0, a tenth of a round at most."""
    rounds: int = 1
    """The rate rises and falls so many times; "codes" makes its labels anew each time."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    neighbours_from: float = 1.0
    """After this share of the training a picture's second view may be one of a confident
    neighbour; 1 is never."""
    neighbours_chance: float = 0.5
    """How often a neighbour does; a picture's own view in the rest keeps wrong neighbours from
    confirming each other."""
    neighbours_refresh: float = 0.05
    """Neighbours are found anew after this share of the training."""
    k1: int = 15
    """Length of the lists that neighbours are taken from."""
    least_overlap: float = 0.3
    """Share of their lists that neighbours must have in common."""
    code_bits: int = 32
    """Length of the labels of "codes"."""
    labelled_share: float = 0.7
    """Of the pictures, that "codes" labels: those whose neighbourhoods agree best."""
    least_confidence: float = 0.9
    """|2p - 1| from which "codes" believes a bit of its teacher; p is the bit's probability."""
    consistency: float = 4.0
    """Weight of BYOL's term beside the bits of "codes"."""
    views: tuple[ViewSettings, ViewSettings] = (ViewSettings(), ViewSettings())
    """Of the first and the second view of a picture."""

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise InputError(f"there is no objective {self.objective!r}; there are: {known}")
        if (self.epochs is None) == (self.minutes is None):
            raise InputError("give either epochs or minutes, to say how long to pretrain")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs must be at least 1, not {self.epochs}")
        if self.minutes is not None and not self.minutes > 0:
            raise InputError(f"minutes must be positive, not {self.minutes}")
        if self.batch_size < 2 or not self.learning_rate > 0:
            raise InputError("batch_size is 2 or more, and learning_rate positive")
        for name in (
            "warm_up", "momentum", "weight_decay", "neighbours_from", "neighbours_chance",
            "least_overlap", "least_confidence", "consistency",
        ):  # fmt: skip
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative, not {getattr(self, name)}")
        if self.rounds < 1 or self.code_bits < 1:
            raise InputError("rounds and code_bits are 1 or more")
        if not 0 < self.labelled_share <= 1:
            raise InputError(f"labelled_share is above 0, up to 1, not {self.labelled_share}")
        if self.k1 < 1 or not self.neighbours_refresh > 0:
            raise InputError("k1 is 1 or more, and neighbours_refresh positive")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def objective_class(name: str) -> type[SelfSupervised]:
    """The class of an objective by its name."""
    module, _, attribute = OBJECTIVES[name].partition(":")
    return getattr(import_module(f"ddh.pretrain.{module}"), attribute)


def pretrain_settings(
    size: int, trained: bool, changes: Mapping[str, Any] | None = None
) -> PretrainSettings:
    """Defaults for pictures of `size` pixels and for weights that are `trained` already or not.

    They depend on the objective. `changes` are settings by name; those of views are for both.
    """
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    of_views = {field.name for field in fields(ViewSettings)}
    known = {field.name for field in fields(PretrainSettings)} | of_views
    if unknown := sorted(given.keys() - known):
        raise InputError(f"there is no setting {unknown[0]!r}; there are: {sorted(known)}")
    changed = {name: given.pop(name) for name in of_views & given.keys()}
    chosen = PretrainSettings(**given)
    defaults = objective_class(chosen.objective).defaults(size, trained)
    chosen = PretrainSettings(**{**defaults, **given})
    first, second = (replace(view, **changed) for view in chosen.views)
    return replace(chosen, views=(first, second))
