"""Settings of a pretraining run, and the interface of the objectives that it can have."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ddh._core.errors import InputError, check_numbers
from ddh.backbones import Backbone
from ddh.pretrain.transforms import ViewSettings

# name -> "module:class" below ddh.pretrain
OBJECTIVES = {"byol": "byol:BYOL", "pseudo-codes": "pseudo_codes:PseudoCodes"}
LOWEST = {
    "epochs": 1, "steps": 1, "batch_size": 2, "rounds": 1, "code_bits": 1, "k1": 1,
    "warmup_epochs": 0, "momentum": 0, "weight_decay": 0, "neighbours_from": 0,
    "neighbours_prob": 0, "min_overlap": 0, "min_confidence": 0, "consistency": 0, "muon_step": 0,
    "view_size": 8, "head_width": 1, "target_momentum": 0,
}  # fmt: skip
LENGTHS = ("epochs", "steps", "minutes")
HIGHEST = {"labelled_fraction": 1, "target_momentum": 1}
POSITIVE = ("minutes", "learning_rate", "neighbours_refresh", "labelled_fraction")
FORMER_NAMES = {"codes": "pseudo-codes"}  # in settings stored by version 0.1


@dataclass(frozen=True)
class PretrainSettings:
    """Settings of one pretraining run; `pretrain_settings` chooses the defaults for an objective.

    Parameters
    ----------
    objective : str
        "byol" or "pseudo-codes".
    epochs, steps, minutes : int, int, float
        Length of the run; give one of them. The schedule is planned to fit the minutes, which
        count from the first step.
    batch_size : int
        Images per step; at most the number of images, or a fifth of them with `steps`.
    learning_rate : float
        Peak learning rate for 256 images per step, scaled linearly with the batch size.
    warmup_epochs : float
        Epochs of linear warm-up, at most a tenth of a cycle; half a cosine wave follows.
    rounds : int
        Number of warm-up/decay cycles; "pseudo-codes" regenerates its labels at the start of each.
    momentum, weight_decay : float
        Of SGD.
    decay_all : bool
        Decay biases and batch norms too, not only weight matrices.
    muon_step : float
        Train weight matrices by Muon instead of SGD, with peak steps of this size relative to
        their norm, such as 0.02; worth it for fewer than 100 epochs. 0: SGD for all.
    view_size : int, optional
        Side of the views in pixels, where it is to be smaller than the network's input. Steps take
        less time; features are computed at the size of the input all the same.
    head_width : int
        Hidden units of BYOL's projector and predictor.
    target_momentum : float
        Of BYOL's moving average at the start; it rises to 1.
    neighbours_from : float
        Fraction of training after which a confident neighbour may replace the second view.
    neighbours_prob : float
        Probability that it does; own views keep wrong neighbours from reinforcing each other.
    neighbours_refresh : float
        Fraction of training after which the neighbours are recomputed.
    k1, min_overlap : int, float
        Length of the neighbour lists, and fraction of it that confident neighbours share.
    code_bits, labelled_fraction : int, float
        Length of pseudo-codes, and fraction of the images (the most confident) that get one.
    min_confidence : float
        |2p - 1| from which a bit of the teacher is trusted; p is its predicted probability.
    consistency : float
        Weight of the BYOL term of "pseudo-codes".
    keep_better : bool
        Keep the initial weights unless neighbours agree more between two views afterwards.
    views : pair of ViewSettings
        Random transforms of the first and of the second view.
    """

    objective: str = "byol"
    epochs: int | None = None
    steps: int | None = None
    minutes: float | None = None
    batch_size: int = 512
    learning_rate: float = 0.12
    warmup_epochs: float = 5
    rounds: int = 1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay_all: bool = False
    muon_step: float = 0.0
    view_size: int | None = None
    head_width: int = 1024
    target_momentum: float = 0.99
    neighbours_from: float = 1.0
    neighbours_prob: float = 0.5
    neighbours_refresh: float = 0.05
    k1: int = 15
    min_overlap: float = 0.3
    code_bits: int = 32
    labelled_fraction: float = 0.7
    min_confidence: float = 0.9
    consistency: float = 4.0
    keep_better: bool = False
    views: tuple[ViewSettings, ViewSettings] = (ViewSettings(), ViewSettings())

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", FORMER_NAMES.get(self.objective, self.objective))
        if self.objective not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise InputError(f"there is no objective {self.objective!r}; choose one of: {known}")
        if sum(getattr(self, name) is not None for name in LENGTHS) != 1:
            raise InputError("give either epochs, steps or minutes, to say how long to pretrain")
        check_numbers(vars(self), LOWEST, POSITIVE)
        for name, highest in HIGHEST.items():
            if (value := getattr(self, name)) > highest:
                raise InputError(f"{name} is up to {highest}, not {value}")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON."""
        return asdict(self)


class SelfSupervised(nn.Module, ABC):
    """Base class of the objectives: owns the backbone being trained and its auxiliary networks.

    All parameters that require a gradient are trained. To add an objective, derive from this class
    in a module of `ddh.pretrain` and register it in `OBJECTIVES`.
    """

    #: Whether `begin_round` needs the features of all images.
    needs_features = False

    @classmethod
    def defaults(cls, size: int, trained: bool, images: int) -> Mapping[str, Any]:
        """Settings for inputs of `size` pixels, trained or random initial weights, and so many
        images."""
        return {}

    @abstractmethod
    def __init__(self, backbone: Backbone, settings: PretrainSettings, images: int) -> None: ...

    @abstractmethod
    def forward(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        """The loss of a batch: two normalised views (n, 3, size, size) of the images `rows`."""

    @abstractmethod
    def after_step(self, progress: float) -> None:
        """Update what is not trained by gradients; `progress` is the fraction of the round done."""

    @property
    @abstractmethod
    def result(self) -> Backbone:
        """The backbone to extract features with."""

    def begin_round(self, features: NDArray[np.float32], seed: int) -> None:
        """Prepare a round of training from the current features of all images."""

    def diagnostics(self) -> dict[str, float]:
        """Figures specific to this objective, for the training history."""
        return {}


def projection(dimensions: int, hidden: int, out: int) -> nn.Sequential:
    """The usual two-layer head with a batch norm in between."""
    return nn.Sequential(
        nn.Linear(dimensions, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out),
    )


def objective_class(name: str) -> type[SelfSupervised]:
    """The class of an objective, by its name."""
    module, _, attribute = OBJECTIVES[name].partition(":")
    return getattr(import_module(f"ddh.pretrain.{module}"), attribute)


def pretrain_settings(
    size: int, trained: bool, changes: Mapping[str, Any] | None = None, images: int = 0
) -> PretrainSettings:
    """Return the default settings of an objective, with some of them changed.

    They are for inputs of `size` pixels, for initial weights that are `trained` or random, and for
    a collection of so many `images`.
    `changes` are fields of `PretrainSettings`, and of `ViewSettings` for both views, by name.

    >>> pretrain_settings(32, trained=False, changes={"epochs": 200}).learning_rate
    0.12
    """
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    view_names = {field.name for field in fields(ViewSettings)}
    known = {field.name for field in fields(PretrainSettings)} | view_names
    if unknown := sorted(given.keys() - known):
        raise InputError(f"there is no setting {unknown[0]!r}; there are: {sorted(known)}")
    view_changes = {name: given.pop(name) for name in view_names & given.keys()}
    objective = PretrainSettings(**{"epochs": 1, **_without_length(given)}).objective
    defaults = objective_class(objective).defaults(size, trained, images)
    if any(name in given for name in LENGTHS):
        defaults = _without_length(defaults)
    chosen = PretrainSettings(**{**defaults, **given})
    first, second = (replace(view, **view_changes) for view in chosen.views)
    return replace(chosen, views=(first, second))


def _without_length(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in LENGTHS}
