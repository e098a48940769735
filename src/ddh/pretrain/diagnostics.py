"""Signs of progress for those who have no labels, and the signs of a collapse.

All are taken on a fixed sample of the pictures, from the features that codes would be made of.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

SAMPLE = 4096
NEIGHBOURS = 10
CODE_BITS = 16
LEAST_SPREAD = 0.02
LEAST_RANK = 1.5


@dataclass(frozen=True)
class Signs:
    """What can be told about features without labels.

    - `agreement`: how often the nearest of the second views of all pictures is a picture's own;
    - `stability`: the share of the 10 nearest neighbours that were there at the last look too,
      None at the first one; it rises towards 1 as the neighbourhoods settle;
    - `entropy`: of codes of 16 bits (signs of the first principal components), as a share of
      what so many pictures can have;
    - `spread`: deviation of the directions of the features, 1 for directions all over the sphere;
    - `rank`: how many dimensions are in use (exponential of the entropy of the variances).
    """

    agreement: float
    stability: float | None
    entropy: float
    spread: float
    rank: float

    @property
    def collapsed(self) -> bool:
        """Whether all pictures look (nearly) the same to the network, or differ along one line."""
        return self.spread < LEAST_SPREAD or self.rank < LEAST_RANK

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)


def neighbours(features: Tensor) -> Tensor:
    """The nearest rows of each row by the cosine of centred features, (n, 10 or fewer).

    Memory: n^2 floats, for the sample of at most 4,096.
    """
    x = normalize(features - features.mean(dim=0), dim=1)
    similarity = x @ x.T
    similarity.fill_diagonal_(-2)
    return similarity.topk(min(NEIGHBOURS, len(x) - 1), dim=1).indices


def signs(first: Tensor, second: Tensor, earlier: Tensor | None) -> Signs:
    """Signs of the features (n, d) of two views of a sample; `earlier` are the neighbours of
    the last look."""
    first, second = first.double(), second.double()
    directions = normalize(first, dim=1)
    variances = torch.linalg.eigvalsh(torch.cov(first.T)).clamp(min=0)
    return Signs(
        agreement=_agreement(first, second),
        stability=None if earlier is None else _shared(neighbours(first), earlier),
        entropy=_code_entropy(first),
        spread=float(directions.var(dim=0, correction=0).sum().sqrt()),
        rank=_effective_number(variances),
    )


def _agreement(first: Tensor, second: Tensor) -> float:
    mean = torch.cat([first, second]).mean(dim=0)
    similarity = normalize(first - mean, dim=1) @ normalize(second - mean, dim=1).T
    own = torch.arange(len(first), device=first.device)
    return float((similarity.argmax(dim=1) == own).double().mean())


def _shared(now: Tensor, earlier: Tensor) -> float:
    return float((now[:, :, None] == earlier[:, None, :]).any(dim=2).double().mean())


def _code_entropy(features: Tensor) -> float:
    centred = features - features.mean(dim=0)
    bits = min(CODE_BITS, *centred.shape)
    axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -bits:]
    places = 2 ** torch.arange(bits, device=features.device)
    codes = ((centred @ axes >= 0) * places).sum(dim=1)
    share = codes.unique(return_counts=True)[1].double() / len(codes)
    most = min(bits, torch.tensor(float(len(codes))).log2().item())
    return float(-(share * share.log2()).sum() / most)


def _effective_number(variances: Tensor) -> float:
    total = variances.sum()
    if not total > 0:
        return 0.0
    share = variances[variances > 0] / total
    return float((-(share * share.log()).sum()).exp())
