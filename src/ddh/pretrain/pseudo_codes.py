"""Pseudo-labels from the codes of confident neighbourhoods, with a moving-average teacher.

Each round has four parts:

1. DDH learns codes from the current features (2.1 to 2.4), and each image's code is averaged with
   those of its nearest neighbours. For the images whose neighbours agree best, the signs of that
   mean become a pseudo-label of L bits, which outvotes wrong neighbours and unlucky bits.
2. The network learns to predict these labels from strongly transformed views (affine maps, tone
   changes, cutout).
3. It also learns each bit that its moving average (the teacher) predicts confidently from a weakly
   transformed view (Sohn et al., 2020, "FixMatch"). Confidence is judged per bit, not per code: the
   few bits that separate cats from dogs may be uncertain in a code that is confident as a whole.
4. Its features predict those of the teacher, as in BYOL, which preserves information that no bit
   needs.

A two-layer head predicts the bits and is discarded after training, so the features keep
information that the bits do not need.
"""

import copy
from collections.abc import Mapping
from typing import Any, Self

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
from ddh.pretrain.byol import cosine, heads
from ddh.pretrain.recipe import TINY
from ddh.pretrain.settings import PretrainSettings, SelfSupervised, projection
from ddh.pretrain.transforms import ViewSettings
from ddh.train.head import fit_head
from ddh.train.settings import adapt
from ddh.train.settings import settings as hashing_settings

WEAK = ViewSettings(min_scale=0.7, jitter_prob=0.0, grayscale_prob=0.0)
STRONG = ViewSettings(
    min_scale=0.5, shift=0.25, jitter=0.5, jitter_prob=0.5, grayscale_prob=0.1,
    solarise_prob=0.1, affine_prob=0.2, tone_prob=0.1, cutout=0.7,
)  # fmt: skip
HIDDEN = 512
SHARPNESS = 5.0
EMA_RATE, EMA_RATE_WARMUP = 0.005, 0.05  # 1 - momentum of the moving average
STEPS, MOST_STEPS = 1800, 3600  # that adapt a network
EPOCHS = 40  # within these bounds
WARMUP = 0.1  # fraction of a round with the higher rate


class PseudoCodes(SelfSupervised):
    """Learns the codes of neighbourhoods; the result is the teacher, a moving average."""

    needs_features = True
    labels: Tensor
    labelled: Tensor
    confidence: Tensor

    @classmethod
    def defaults(cls, size: int, trained: bool, images: int) -> Mapping[str, Any]:
        if not trained:
            raise InputError(
                "pseudo-codes need meaningful neighbourhoods, which random weights do not give: "
                "pretrain with the objective byol first"
            )
        chosen: dict[str, Any] = {"views": (WEAK, STRONG), "rounds": 2, "k1": 20}
        if size <= TINY:
            chosen["learning_rate"] = 0.025
        else:
            steps = EPOCHS * images // PretrainSettings.batch_size
            steps = min(max(STEPS, steps), MOST_STEPS)
            chosen |= {"learning_rate": 0.01, "keep_better": True, "steps": steps}
        return chosen

    def __init__(self, backbone: Backbone, settings: PretrainSettings, images: int) -> None:
        nn.Module.__init__(self)
        self.settings = settings
        bits = settings.code_bits
        self.backbone = backbone
        self.head = projection(backbone.dimensions, HIDDEN, bits)
        self.teacher = copy.deepcopy(backbone).requires_grad_(False)
        self.teacher_head = copy.deepcopy(self.head).requires_grad_(False)
        self.projector, self.predictor = heads(backbone.dimensions, settings.head_width)
        self.teacher_projector = copy.deepcopy(self.projector).requires_grad_(False)
        self.register_buffer("labels", torch.zeros(images, bits, dtype=torch.int8))
        self.register_buffer("labelled", torch.zeros(images, dtype=torch.bool))
        self.register_buffer("confidence", torch.zeros(()))  # mean over all images
        self._pairs: tuple[list[Tensor], list[Tensor]] | None = None  # teacher's, student's values

    def train(self, mode: bool = True) -> Self:
        """Keep the teacher in evaluation mode, but for its projector, as the target of BYOL
        does."""
        super().train(mode)
        self.teacher.eval()
        self.teacher_head.eval()
        return self

    def begin_round(self, features: NDArray[np.float32], seed: int) -> None:
        """Make new labels from `features`, and restart the student as the teacher with new head."""
        settings, device = self.settings, self.labels.device.type
        labels, confidence = neighbourhood_codes(
            features, settings.code_bits, settings.k1, seed, device
        )
        confident = confidence >= np.quantile(confidence, 1 - settings.labelled_fraction)
        self.labels.copy_(torch.from_numpy(labels))
        self.labelled.copy_(torch.from_numpy(confident))
        self.confidence.fill_(float(confidence.mean()))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = projection(self.backbone.dimensions, HIDDEN, settings.code_bits)
        self.backbone.load_state_dict(self.teacher.state_dict())
        self.head.load_state_dict(fresh.state_dict())
        self.teacher_head.load_state_dict(fresh.state_dict())

    def forward(self, first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        """-log p(bits) of the strong view, for labels and for confident bits of the teacher, plus
        1 - cos(prediction, projection of the weak view by the teacher)."""
        with torch.no_grad():
            features = self.teacher(first)
            target = self.teacher_projector(features)
            teacher_logits = _logits(self.teacher_head, features)
            confident = (teacher_logits / 2).tanh().abs() >= self.settings.min_confidence
        features = self.backbone(second)
        logits = _logits(self.head, features)
        labelled = self.labelled[rows]
        by_label = softplus(-self.labels[rows] * logits).mean(dim=1) * labelled
        by_teacher = softplus(torch.where(teacher_logits >= 0, -logits, logits)) * confident
        predicted = self.predictor(self.projector(features))
        consistency = self.settings.consistency * (1 - cosine(predicted, target)).mean()
        return by_label.sum() / labelled.sum().clamp(min=1) + by_teacher.mean() + consistency

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        """Move the teacher towards the student, faster at the start of a round."""
        if self._pairs is None:
            teacher = self.teacher, self.teacher_head, self.teacher_projector
            student = self.backbone, self.head, self.projector
            self._pairs = _values(*teacher), _values(*student)
        torch._foreach_lerp_(*self._pairs, EMA_RATE_WARMUP if progress < WARMUP else EMA_RATE)

    @property
    def result(self) -> Backbone:
        return self.teacher

    def diagnostics(self) -> dict[str, float]:
        return {"confidence": float(self.confidence)}


def neighbourhood_codes(
    features: NDArray[np.float32], bits: int, k1: int, seed: int, device: str
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Signs (n, bits) of DDH's codes averaged over neighbourhoods, and per image the mean |mean
    bit|."""
    n = len(features)
    values = l2_normalize(features)
    chosen = adapt(hashing_settings("fast", targets="binary"), n)  # kinds are what it is after
    head = fit_head(values, bits, chosen, seed=seed, device=device)
    codes = np.where(values @ head.weight.T + head.bias >= 0, np.float32(1), np.float32(-1))
    lists = knn(values, min(k1, n - 1), centre=True, device="cuda" if device == "cuda" else None)
    mean = (graph_of(lists) @ codes + codes) / (lists.shape[1] + 1)
    return sgn(mean), np.abs(mean).mean(axis=1)


def _logits(head: nn.Module, features: Tensor) -> Tensor:
    """Logits (n, L) of the bits."""
    return SHARPNESS * head(normalize(features.float(), dim=1)).float()


def _values(*modules: nn.Module) -> list[Tensor]:
    """Weights and running statistics, without the batch counters."""
    states = [module.state_dict() for module in modules]
    return [value for state in states for value in state.values() if value.is_floating_point()]
