"""Codes of confident neighbourhoods teach the network that they came from.

Every round has four steps:

1. DDH learns codes from the features of now (2.1 to 2.4), and each picture's code is averaged
   with those of its nearest neighbours. Where they agree best, the signs of that mean are a label
   of L bits: wrong neighbours and unlucky bits are outvoted.
2. The network learns to say these labels of views that differ more from the picture than any it
   has seen before (warps, tones, holes).
3. It also learns each bit that its own moving average says of a mild view and is sure of (Sohn et
   al., 2020, "FixMatch"). A bit, not a code: a few bits tell cats from dogs, and a picture whose
   other bits are sure would pass for sure of them too.
4. Its features predict those of the moving average, as in BYOL: what no bit needs is not lost.

The bits are said by two layers that are thrown away, so that features keep more than the bits.
"""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from ddh._core.arrays import l2_normalize, sgn
from ddh._core.errors import InputError
from ddh.backbones import Backbone
from ddh.neighbours import knn
from ddh.neighbours.statistics import graph_of
from ddh.pretrain.byol import TINY, cosine, heads
from ddh.pretrain.objective import SelfSupervised, projection
from ddh.pretrain.transforms import ViewSettings
from ddh.train.features import Features
from ddh.train.fitting import Data, fit_hashing
from ddh.train.settings import adapt
from ddh.train.settings import settings as hashing_settings

if TYPE_CHECKING:
    from ddh.pretrain.settings import PretrainSettings

MILD = ViewSettings(min_scale=0.7, jitter_prob=0.0, grayscale_prob=0.0)
STRONG = ViewSettings(
    min_scale=0.5, shift=0.25, jitter=0.5, jitter_prob=0.5, grayscale_prob=0.1,
    solarise_prob=0.1, affine_prob=0.2, tone_prob=0.1, hole=0.7,
)  # fmt: skip
HIDDEN = 512
SHARPNESS = 5.0
EMA_RATE, EMA_RATE_WARMUP = 0.005, 0.05  # share of the step that the moving average goes along
FIRST = 0.1  # of a round


class Codes(SelfSupervised):
    """Labels of bits from neighbourhoods, and a teacher that is the network's moving average."""

    takes_features = True
    labels: Tensor
    labelled: Tensor
    confidence: Tensor

    @classmethod
    def defaults(cls, size: int, trained: bool) -> Mapping[str, Any]:
        if not trained:
            raise InputError(
                "codes need neighbourhoods that mean something, and random weights have none: "
                "pretrain with the objective byol first"
            )
        rate = 0.025 if size <= TINY else 0.01
        return {"views": (MILD, STRONG), "learning_rate": rate, "rounds": 2, "k1": 20}

    def __init__(self, backbone: Backbone, settings: "PretrainSettings", pictures: int) -> None:
        nn.Module.__init__(self)
        self.settings = settings
        bits = settings.code_bits
        self.backbone = backbone
        self.head = projection(backbone.dimensions, HIDDEN, bits)
        self.teacher = copy.deepcopy(backbone).requires_grad_(False)
        self.teacher_head = copy.deepcopy(self.head).requires_grad_(False)
        self.projector, self.predictor = heads(backbone.dimensions)
        self.teacher_projector = copy.deepcopy(self.projector).requires_grad_(False)
        self.register_buffer("labels", torch.zeros(pictures, bits, dtype=torch.int8))
        self.register_buffer("labelled", torch.zeros(pictures, dtype=torch.bool))
        self.register_buffer("confidence", torch.zeros(()))  # the mean of all pictures
        self._pairs: tuple[list[Tensor], list[Tensor]] | None = None  # teacher's, network's values

    def train(self, mode: bool = True) -> Self:
        """The teacher is in use, not in training; its projector normalises by the batch, as the
        target's in BYOL."""
        super().train(mode)
        self.teacher.eval()
        self.teacher_head.eval()
        return self

    def begin_round(self, features: NDArray[np.float32], seed: int) -> None:
        """New labels from `features`, and a student that starts as the teacher with a new head."""
        settings, device = self.settings, self.labels.device.type
        labels, confidence = neighbourhood_codes(
            features, settings.code_bits, settings.k1, seed, device
        )
        surest = confidence >= np.quantile(confidence, 1 - settings.labelled_share)
        self.labels.copy_(torch.from_numpy(labels))
        self.labelled.copy_(torch.from_numpy(surest))
        self.confidence.fill_(float(confidence.mean()))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = projection(self.backbone.dimensions, HIDDEN, settings.code_bits)
        self.backbone.load_state_dict(self.teacher.state_dict())
        self.head.load_state_dict(fresh.state_dict())
        self.teacher_head.load_state_dict(fresh.state_dict())

    def forward(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        """-log p(bits) of the strong view, for the labels and for what the teacher is sure of, and
        1 - cos(prediction, what the teacher knows of the mild view)."""
        with torch.no_grad():
            known = self.teacher(first)
            target = self.teacher_projector(known)
            said = _bits(self.teacher_head, known)
            sure = (said / 2).tanh().abs() >= self.settings.least_confidence
        features = self.backbone(second)
        outputs = _bits(self.head, features)
        labelled = self.labelled[rows]
        by_label = softplus(-self.labels[rows] * outputs).mean(dim=1) * labelled
        by_teacher = softplus(torch.where(said >= 0, -outputs, outputs)) * sure
        predicted = self.predictor(self.projector(features))
        consistency = self.settings.consistency * (1 - cosine(predicted, target)).mean()
        return by_label.sum() / labelled.sum().clamp(min=1) + by_teacher.mean() + consistency

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        share = EMA_RATE_WARMUP if progress < FIRST else EMA_RATE
        if self._pairs is None:
            following = self.teacher, self.teacher_head, self.teacher_projector
            online = self.backbone, self.head, self.projector
            self._pairs = _values(*following), _values(*online)
        torch._foreach_lerp_(*self._pairs, share)

    @property
    def result(self) -> Backbone:
        return self.teacher

    def signs(self) -> dict[str, float]:
        return {"confidence": float(self.confidence)}


def neighbourhood_codes(
    features: NDArray[np.float32], bits: int, k1: int, seed: int, device: str
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """DDH's codes (n, bits) averaged over neighbourhoods, as signs, and how far to believe them.

    The confidence of a picture is the mean of |mean bit| over its bits. Memory: that of `knn`
    and of the training of a hashing layer, and eight bytes a bit.
    """
    n = len(features)
    values = l2_normalize(features)
    fitted = fit_hashing(
        Data(Features(values, np.arange(n)), n),
        bits,
        adapt(hashing_settings("fast"), n),
        depth="head", seed=seed, device=device, approximate=False, folder=None, resume=False,
    )  # fmt: skip
    codes = np.where(values @ fitted.weight.T + fitted.bias >= 0, np.float32(1), np.float32(-1))
    lists = knn(values, min(k1, n - 1), centre=True, device="cuda" if device == "cuda" else None)
    mean = (graph_of(lists) @ codes + codes) / (lists.shape[1] + 1)
    return sgn(mean), np.abs(mean).mean(axis=1)


def _bits(head: nn.Module, features: Tensor) -> Tensor:
    """L logits of each view."""
    return SHARPNESS * head(normalize(features.float(), dim=1)).float()


def _values(*modules: nn.Module) -> list[Tensor]:
    """Weights and running statistics; not the counts of batches."""
    states = [module.state_dict() for module in modules]
    return [value for state in states for value in state.values() if value.is_floating_point()]
