"""Codes of confident neighbourhoods teach the network that they came from.

Every round has three steps:

1. DDH learns codes from the features of now (2.1 to 2.4), and each picture's code is averaged
   with those of its nearest neighbours. Where they agree, the signs of that mean are a label of L
   bits: wrong neighbours and unlucky bits are outvoted.
2. The network learns to say these labels of views that differ more from the picture than any it
   has seen before (warps, tones, holes).
3. Of pictures without a label it learns what its own moving average says of a mild view, where
   that is sure of itself (Sohn et al., 2020, "FixMatch").

The bits are said by two layers that are thrown away, so that features keep what no bit needs.
"""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from ddh.backbones import Backbone
from ddh.errors import InputError
from ddh.neighbours import knn
from ddh.training.features import Features
from ddh.training.fitting import Data, fit_hashing
from ddh.training.pretraining.objective import SelfSupervised, projection
from ddh.training.pretraining.views import ViewSettings
from ddh.training.settings import adapt
from ddh.training.settings import settings as hashing_settings
from ddh.unit_rows import unit_rows

if TYPE_CHECKING:
    from ddh.training.pretraining.settings import PretrainSettings

MILD = ViewSettings(least_area=0.7, jitter_chance=0.0, grey_chance=0.0)
STRONG = ViewSettings(
    least_area=0.5, shift=0.25, jitter=0.5, jitter_chance=0.5, grey_chance=0.1,
    solarise_chance=0.15, warp_chance=0.3, tone_chance=0.15, hole=0.7,
)  # fmt: skip
HIDDEN = 512
SHARPNESS = 5.0
FOLLOWING, FOLLOWING_FIRST = 0.005, 0.05  # share of the step that the moving average goes along
FIRST = 0.1  # of a round
LEAST_SHARE = 0.25  # of the pictures have a label, the surest ones, whatever their confidence


class Codes(SelfSupervised):
    """Labels of bits from neighbourhoods, and a teacher that is the network's moving average."""

    takes_features = True
    labels: Tensor
    labelled: Tensor

    @classmethod
    def defaults(cls, size: int, trained: bool) -> Mapping[str, Any]:
        if not trained:
            raise InputError(
                "codes need neighbourhoods that mean something, and random weights have none: "
                "pretrain with the objective byol first"
            )
        return {"views": (MILD, STRONG), "learning_rate": 0.05, "rounds": 4, "k1": 20}

    def __init__(self, backbone: Backbone, settings: "PretrainSettings", pictures: int) -> None:
        nn.Module.__init__(self)
        self.settings = settings
        bits = settings.code_bits
        self.backbone = backbone
        self.head = projection(backbone.dimensions, HIDDEN, bits)
        self.teacher = copy.deepcopy(backbone).requires_grad_(False)
        self.teacher_head = copy.deepcopy(self.head).requires_grad_(False)
        self.register_buffer("labels", torch.zeros(pictures, bits, dtype=torch.int8))
        self.register_buffer("labelled", torch.zeros(pictures, dtype=torch.bool))
        self._pairs: tuple[list[Tensor], list[Tensor]] | None = None  # teacher's, network's values

    def train(self, mode: bool = True) -> Self:
        """The teacher is in use, not in training."""
        super().train(mode)
        self.teacher.eval()
        self.teacher_head.eval()
        return self

    def begin_round(self, features: NDArray[np.float32], seed: int) -> None:
        """New labels from `features`, and a student that starts as the teacher with a new head."""
        device = self.labels.device
        labels, labelled = confident_codes(
            features, self.settings.code_bits, self.settings.k1, self.settings.least_confidence,
            seed, device.type,
        )  # fmt: skip
        self.labels.copy_(torch.from_numpy(labels))
        self.labelled.copy_(torch.from_numpy(labelled))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = projection(self.backbone.dimensions, HIDDEN, self.settings.code_bits)
        self.backbone.load_state_dict(self.teacher.state_dict())
        self.head.load_state_dict(fresh.state_dict())
        self.teacher_head.load_state_dict(fresh.state_dict())

    def forward(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        """-log p(bits) of the strong view, for the labels and for what the teacher is sure of."""
        with torch.no_grad():
            said = _bits(self.teacher, self.teacher_head, first)
            sure = (said / 2).tanh().abs().mean(dim=1) >= self.settings.least_confidence
        outputs = _bits(self.backbone, self.head, second)
        labelled = self.labelled[rows]
        by_label = softplus(-self.labels[rows] * outputs).mean(dim=1) * labelled
        by_teacher = softplus(-_signs(said) * outputs).mean(dim=1) * sure
        return by_label.sum() / labelled.sum().clamp(min=1) + by_teacher.mean()

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        share = FOLLOWING_FIRST if progress < FIRST else FOLLOWING
        if self._pairs is None:
            online = [*_values(self.backbone), *_values(self.head)]
            self._pairs = [*_values(self.teacher), *_values(self.teacher_head)], online
        torch._foreach_lerp_(*self._pairs, share)

    @property
    def result(self) -> Backbone:
        return self.teacher

    def signs(self) -> dict[str, float]:
        return {"labelled": float(self.labelled.float().mean())}


def confident_codes(
    features: NDArray[np.float32],
    bits: int,
    k1: int,
    least_confidence: float,
    seed: int,
    device: str,
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """DDH's codes (n, bits) averaged over neighbourhoods, as signs, and where to believe them.

    The confidence of a picture is the mean of |mean bit| over its bits. Memory: that of `knn`
    and of the training of a hashing layer, and eight bytes a bit.
    """
    n = len(features)
    values = unit_rows(features)
    fitted = fit_hashing(
        Data(Features(values, np.arange(n)), n),
        bits,
        adapt(hashing_settings("fast"), n),
        depth="head", seed=seed, device=device, approximate=False, folder=None, resume=False,
    )  # fmt: skip
    codes = np.where(values @ fitted.weight.T + fitted.bias >= 0, np.float32(1), np.float32(-1))
    lists = knn(values, min(k1, n - 1), centre=True, device="cuda" if device == "cuda" else None)
    k = lists.shape[1]
    votes = sparse.csr_array(
        (np.ones(n * k, np.float32), lists.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n)
    )
    mean = (votes @ codes + codes) / (k + 1)
    confidence = np.abs(mean).mean(axis=1)
    enough = min(least_confidence, float(np.quantile(confidence, 1 - LEAST_SHARE)))
    return np.where(mean >= 0, np.int8(1), np.int8(-1)), confidence >= enough


def _bits(network: Backbone, head: nn.Module, views: Tensor) -> Tensor:
    """L logits of each view."""
    return SHARPNESS * head(normalize(network(views).float(), dim=1)).float()


def _signs(values: Tensor) -> Tensor:
    return torch.where(values >= 0, 1.0, -1.0)


def _values(module: nn.Module) -> list[Tensor]:
    """Weights and running statistics; not the counts of batches."""
    return [value for value in module.state_dict().values() if value.is_floating_point()]
