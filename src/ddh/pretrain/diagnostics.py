"""Measures of training progress on a fixed sample of the images, without labels, and detection of
representation collapse."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

SAMPLE = 4096
NEIGHBOURS = 10
CODE_BITS = 16
MIN_SPREAD = 0.02
MIN_RANK = 1.5


@dataclass(frozen=True)
class Diagnostics:
    """Quality of features, measured without labels.

    - `instance_accuracy`: how often an image's nearest second view is its own;
    - `stability`: fraction of the 10 nearest neighbours that were neighbours at the previous
      evaluation too, None at the first; rises towards 1 as the neighbourhoods settle;
    - `entropy` of 16-bit codes (signs of the first principal components), relative to its maximum;
    - `spread`: standard deviation of the normalised features, 1 when directions are uniform;
    - `rank`: effective rank, the exponential of the entropy of the covariance eigenvalues.
    """

    instance_accuracy: float
    stability: float | None
    entropy: float
    spread: float
    rank: float

    @property
    def collapsed(self) -> bool:
        """Whether all images have nearly the same features, or differ along one line only."""
        return self.spread < MIN_SPREAD or self.rank < MIN_RANK


def neighbours(features: Tensor) -> Tensor:
    """Nearest rows of each row of a sample by the cosine of centred features, (n, 10 or fewer)."""
    x = normalize(features - features.mean(dim=0), dim=1)
    similarity = x @ x.T
    similarity.fill_diagonal_(-2)
    return similarity.topk(min(NEIGHBOURS, len(x) - 1), dim=1).indices


def agreement(first: Tensor, second: Tensor) -> float:
    """Fraction of the nearest neighbours by one view of the images that are so by the other too.

    It rises if a network learns what the images have in common, whatever the view, and falls
    if it forgets what it knew.
    """
    return _shared(neighbours(first.double()), neighbours(second.double()))


def diagnostics(first: Tensor, second: Tensor, earlier: Tensor | None) -> Diagnostics:
    """Measure the features (n, d) of two views; `earlier` are the neighbours last time."""
    first, second = first.double(), second.double()
    directions = normalize(first, dim=1)
    stability = None
    if earlier is not None:
        stability = _shared(neighbours(first), earlier)
    variances = torch.linalg.eigvalsh(torch.cov(first.T)).clamp(min=0)
    return Diagnostics(
        instance_accuracy=_instance_accuracy(first, second),
        stability=stability,
        entropy=_code_entropy(first),
        spread=float(directions.var(dim=0, correction=0).sum().sqrt()),
        rank=_effective_rank(variances),
    )


def _shared(lists: Tensor, others: Tensor) -> float:
    """Mean fraction of each list (n, k) that is in the other list too."""
    return float((lists[:, :, None] == others[:, None, :]).any(dim=2).double().mean())


def _instance_accuracy(first: Tensor, second: Tensor) -> float:
    mean = torch.cat([first, second]).mean(dim=0)
    similarity = normalize(first - mean, dim=1) @ normalize(second - mean, dim=1).T
    own = torch.arange(len(first), device=first.device)
    return float((similarity.argmax(dim=1) == own).double().mean())


def _code_entropy(features: Tensor) -> float:
    centred = features - features.mean(dim=0)
    bits = min(CODE_BITS, *centred.shape)
    axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -bits:]
    powers = 2 ** torch.arange(bits, device=features.device)
    codes = ((centred @ axes >= 0) * powers).sum(dim=1)
    p = codes.unique(return_counts=True)[1].double() / len(codes)
    highest = min(bits, torch.tensor(float(len(codes))).log2().item())
    return float(-(p * p.log2()).sum() / highest)


def _effective_rank(variances: Tensor) -> float:
    total = variances.sum()
    if not total > 0:
        return 0.0
    p = variances[variances > 0] / total
    return float((-(p * p.log()).sum()).exp())
