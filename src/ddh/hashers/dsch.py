"""Zhang et al. (2015), "Bit-scalable deep hashing with regularized similarity learning"."""

import torch
from torch import Tensor, nn

from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective, shared_labels, triplets
from ddh.train.features import Pictures


def affinity(codes: Tensor, weights: Tensor) -> Tensor:
    """H(i, j) = -sum_k w_k^2 h_k(i) h_k(j): the smaller, the more alike (an affine Hamming)."""
    return -(codes * weights.square()) @ codes.T


def triplet_loss(affinities: Tensor, relevance: Tensor, floor: float) -> Tensor:
    """The mean of max(H(i, i+) - H(i, i-), C) over the triplets of a batch, C = floor = -q / 2."""
    anchor, better, worse = triplets(relevance)
    difference = affinities[anchor, better][:, None] - affinities[anchor]
    return (difference.clamp(min=floor) * worse).sum() / worse.sum().clamp(min=1)


class WeightedTriplets(nn.Module):
    """Triplets under bit weights that are learned with the network, sum_k w_k^2 = bits.

    The sum is held because C = -bits / 2 would mean nothing if the weights could grow. Codes
    are h = 2 / (1 + e^(-beta v)) - 1, beta growing from 1 to `beta`.
    """

    def __init__(self, labels: Tensor, bits: int, beta: float, consistency: float) -> None:
        super().__init__()
        self.labels, self.beta, self.consistency = labels, beta, consistency
        self.free_weights = nn.Parameter(torch.ones(bits, device=labels.device))

    @property
    def weights(self) -> Tensor:
        return self.free_weights * (len(self.free_weights) ** 0.5 / self.free_weights.norm())

    def forward(self, outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
        beta = self.beta**progress
        codes = 2.0 * torch.sigmoid(beta * outputs) - 1.0
        labels = self.labels[rows]
        relevance = (shared_labels(labels, labels) > 0).float()
        affinities = affinity(codes, self.weights)
        bits = outputs.shape[1]
        loss = triplet_loss(affinities, relevance, floor=-bits / 2)
        if self.consistency:
            loss = loss + self.consistency * adjacency_consistency(affinities, relevance)
        return loss / bits


def adjacency_consistency(affinities: Tensor, relevance: Tensor) -> Tensor:
    """DRSCH's regulariser, the mean of S_ij H(i, j) over pairs of a batch; S = +1 alike, -1 not."""
    other = 1.0 - torch.eye(len(affinities), device=affinities.device)
    signs = torch.where(relevance > 0, 1.0, -1.0) * other
    return (signs * affinities).sum() / other.sum().clamp(min=1)


class DSCH(DeepHasher):
    """Triplets with learned bit weights, without the regulariser of DRSCH.

    The bits are sorted by weight, the heaviest first, so the first m bits of a code are the
    best code of m bits that this model has. Codes are compared by plain Hamming distance;
    `bit_weights_` (w_k^2, their mean is 1) serves those who want the weighted distance.
    """

    title = "Deep semantic comparison hashing"
    kind = "supervised deep"
    labels = "required"
    paper = "Zhang, Lin, Zhang, Zuo & Zhang, Bit-scalable deep hashing, TIP"
    year = 2015

    batch_size: int = 128
    beta: float = 10.0

    consistency = 0.0  # the weight of DRSCH's regulariser

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        return WeightedTriplets(labels, self.bits, self.beta, self.consistency)

    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        assert isinstance(training.objective, WeightedTriplets)
        weights = training.objective.weights.detach().square()
        order = weights.argsort(descending=True, stable=True)
        layer = training.layers.linear[-1]
        with torch.no_grad():
            layer.weight.copy_(layer.weight[order])
            layer.bias.copy_(layer.bias[order])
        self.bit_weights_ = weights[order].cpu().numpy()


class DRSCH(DSCH):
    """DSCH and a regulariser that keeps pairs consistent: + lambda sum_ij S_ij H(i, j).

    Bits are sorted by `bit_weights_` and compared by plain Hamming distance, as in DSCH.
    """

    title = "Deep regularised similarity comparison hashing"

    consistency: float = 0.1
