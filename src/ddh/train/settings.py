"""Every setting of the training, and the presets that choose them for the user."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from ddh._core.errors import InputError, check_numbers

Depth = Literal["head", "last stage", "network"]
DEPTHS: tuple[Depth, ...] = ("head", "last stage", "network")


FULL_BATCH = 1024  # which the rates of a network are for, with SGD
WARM_UP = 0.1  # of the training of a network
FRESH_BATCH, FRESH_RATE = 128, 7.0  # of a network from random weights; the factor of its rate


@dataclass(frozen=True)
class Settings:
    """Settings by the paper's names where it has one; the defaults are the preset "fast".

    The objective of a batch is divided by N x batch, as the authors' release does: the pairwise
    term is then a mean over pairs, and lambda1 weighs the quantisation as `lambda1 / N`. What
    a given lambda1 does thus depends on the size of the collection; `balanced` takes that away.

    Attributes
    ----------
    k1 : int
        Neighbours per image in the first ranking (2.1).
    k2 : int
        Neighbour lists that the expansion unites per image (2.1).
    views : int
        Random views per picture (crops, mirrored or not) that labels and hashing layer are
        learned from, beside the picture itself; for pictures at the depth "head".
    flip_tta : bool
        Average the features of a picture and its mirror image, in training and in encoding,
        which doubles the time; for pictures at the depth "head".
    centre : bool
        Subtract the mean feature before the cosine and before the hashing layer.
    normalize : bool
        Scale features to unit length, so that the strength of a picture's activations does not
        decide how far its bits are from flipping. Presets leave precomputed features as they
        are.
    targets : {"graded", "binary"}
        What z_i.z_j / L should be for a pair: "graded" is the cosine of the features plus the
        membership in S, so that codes keep the picture and its kind (`ddh.train.graded`), in
        closed form; "binary" is the paper's s_ij, by training. The settings from `alpha` to
        `epochs` belong to the training: giving one of them chooses "binary".
    alpha : float
        Weight of a similar pair; 1 is the paper's objective.
    lambda1 : float
        Weight of the quantisation term (Eq. 7).
    balanced : bool
        Give lambda1 in units of N / L: the quantisation then weighs the same beside the pairs,
        whatever the number of images and bits.
    lambda2 : float
        Weight of the regulariser of the hashing layer (2.4).
    pairs : {"all", "batch"}
        J1 over all pairs by the exact identity, or over the pairs of a batch (two branches).
    optimiser : {"sgd", "adam"}
        Optimiser of hashing layer and network.
    learning_rate : float
        Learning rate of the hashing layer at the start.
    final_learning_rate : float
        Learning rate at the end; on the way it falls geometrically ("sgd") or along half a
        cosine wave ("adam").
    backbone_lr_scale : float
        Learning rate of the backbone relative to that of the hashing layer (depths beyond
        "head"); with `network_epochs`, random weights have seven times that.
    momentum : float
        Momentum of "sgd".
    weight_decay : float
        Weight decay of the optimiser.
    batch_size : int
        Images per step.
    epochs : int
        Epochs of the hashing layer.
    network_epochs : int
        Depths beyond "head": the hashing layer is first trained by itself for `epochs`, then
        with the backbone for this many epochs, at `backbone_lr_scale`. 0 trains both from the
        start, as in the paper.
    refresh_labels : bool
        Build S anew before every epoch of the training of a network, from the features that it
        has by then.
    keep_better : bool
        With `network_epochs`: hold a tenth of the pictures (at most 1,000) out of the training
        of the network, and keep the network that it started with unless neighbourhoods of these
        pictures are found better after it.
    """

    k1: int = 50
    k2: int = 20
    views: int = 0
    flip_tta: bool = False
    centre: bool = True
    normalize: bool = True
    targets: Literal["graded", "binary"] = "graded"
    alpha: float = 1.0
    lambda1: float = 0.3
    balanced: bool = True
    lambda2: float = 0.0
    pairs: Literal["all", "batch"] = "all"
    optimiser: Literal["sgd", "adam"] = "adam"
    learning_rate: float = 5e-3
    final_learning_rate: float = 5e-5
    backbone_lr_scale: float = 0.03
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch_size: int = 1024
    epochs: int = 20
    network_epochs: int = 5
    refresh_labels: bool = False
    keep_better: bool = True

    def __post_init__(self) -> None:
        values = self.to_dict()
        least = {name: 0 for name, value in values.items() if isinstance(value, int | float)}
        least |= dict.fromkeys(("k1", "k2", "batch_size", "epochs"), 1)
        check_numbers(values, least, ("alpha", "learning_rate", "final_learning_rate"))
        if self.targets not in ("graded", "binary"):
            raise InputError(f"targets must be 'graded' or 'binary', not {self.targets!r}")
        if self.pairs not in ("all", "batch"):
            raise InputError(f"pairs must be 'all' or 'batch', not {self.pairs!r}")
        if self.optimiser not in ("sgd", "adam"):
            raise InputError(f"optimiser must be 'sgd' or 'adam', not {self.optimiser!r}")

    def quantisation_weight(self, images: int, bits: int) -> float:
        """lambda1 in the paper's units."""
        return self.lambda1 * images / bits if self.balanced else self.lambda1

    def learning_rate_at(self, progress: float) -> float:
        """The learning rate after this fraction of the training."""
        first, last = self.learning_rate, self.final_learning_rate
        if self.optimiser == "sgd":
            return first * (last / first) ** progress
        return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2

    def for_network(self, fresh: bool = False) -> "Settings":
        """Settings of the joint training that follows that of the hashing layer.

        Rates of SGD fall with batches below 1,024; Adam's steps have their size whatever the
        batch. A `fresh` network, from random weights, takes more and larger steps, and no part in
        the quantisation: that would hold on to the signs that it happens to begin with.
        """
        batch_size = min(self.batch_size, FRESH_BATCH) if fresh else self.batch_size
        scale = self.backbone_lr_scale
        if fresh:
            scale *= FRESH_RATE
        elif self.optimiser == "sgd":
            scale *= min(1.0, batch_size / FULL_BATCH)
        return replace(
            self,
            lambda1=0.0 if fresh else self.lambda1,
            batch_size=batch_size,
            epochs=self.network_epochs,
            learning_rate=self.learning_rate * scale,
            final_learning_rate=self.final_learning_rate * scale,
            backbone_lr_scale=1.0,
        )

    def warmed_up_rate(self, progress: float) -> float:
        """As `learning_rate_at`, rising from almost zero over the first WARM_UP of the training."""
        return self.learning_rate_at(progress) * min(1.0, (progress + 0.01) / WARM_UP)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


PRESETS: dict[str, Settings] = {
    # Section 3.2: K1=15, K2=6, lr 0.001, lambda1=15, lambda2=1e-5, batch 128. The paper names
    # neither momentum, epochs nor a schedule. Its released code differs: K1=20, K2=30, batch 50,
    # lr 1e-2 to 1e-6 over 100 epochs, weight decay 5e-4, no momentum.
    "paper": Settings(
        k1=15, k2=6, centre=False, normalize=False, targets="binary", lambda1=15.0,
        balanced=False, lambda2=1e-5, optimiser="sgd", learning_rate=1e-3,
        final_learning_rate=1e-3, backbone_lr_scale=0.1, batch_size=128, epochs=100,
        network_epochs=0,
    ),
    "fast": Settings(),
    "quality": Settings(flip_tta=True),  # `ddh.pretrain.recipe` adds a pretraining
}  # fmt: skip


#: Settings of the training with binary targets.
TRAINED = {
    "alpha", "lambda1", "balanced", "lambda2", "pairs", "optimiser", "learning_rate",
    "final_learning_rate", "momentum", "weight_decay", "batch_size", "epochs",
}  # fmt: skip

#: Names of settings in models of older versions -> names now.
RENAMED = {"unit": "normalize", "mirror": "flip_tta", "network_rate": "backbone_lr_scale"}


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a saved model under the names that they have now."""
    return {RENAMED.get(name, name): value for name, value in values.items()}


def settings(preset: str = "fast", **changes: Any) -> Settings:
    """A preset with some settings changed.

    Parameters
    ----------
    preset : {"fast", "quality", "paper"}
    **changes
        Fields of `Settings`; None keeps the preset's value.

    Returns
    -------
    Settings
    """
    if preset not in PRESETS:
        raise InputError(f"there is no preset {preset!r}; there are: {', '.join(PRESETS)}")
    known = list(Settings.__dataclass_fields__)
    for name in changes.keys() - set(known):
        near = get_close_matches(RENAMED.get(name, name), known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
        raise InputError(f"there is no setting {name!r}; {hint}")
    given = {name: value for name, value in changes.items() if value is not None}
    if TRAINED & given.keys():
        given.setdefault("targets", "binary")
    return replace(PRESETS[preset], **given)


LEAST_STEPS = 1200


def adapt(chosen: Settings, images: int, fixed: Collection[str] = ()) -> Settings:
    """Fit a preset that was made for tens of thousands of images to a smaller collection.

    A neighbourhood must stay a small part of the collection (K1 at most N / 80 and K2 at most
    N / 200, as long as that leaves 10 and 6, and never more than a third of the images), batches
    at most N / 20, and there must be enough steps. Settings in `fixed`, those that a user named,
    stay as they are.
    """
    third = max(1, images // 3)
    smaller: dict[str, Any] = {
        "k1": min(chosen.k1, max(10, images // 80), third),
        "k2": min(chosen.k2, max(6, images // 200), third),
        "batch_size": min(chosen.batch_size, max(32, images // 20)),
    }
    changes = {name: value for name, value in smaller.items() if name not in fixed}
    adapted = replace(chosen, **changes)
    if "epochs" in fixed:
        return adapted
    steps = -(-images // adapted.batch_size)
    return replace(adapted, epochs=max(adapted.epochs, -(-LEAST_STEPS // steps)))
