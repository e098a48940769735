"""Zhao et al. (2015), "Deep semantic ranking based hashing for multi-label image retrieval"."""

import torch
from torch import Tensor

from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import HashLayers, Objective, shared_labels, triplets


def ideal_gain(relevance: Tensor) -> Tensor:
    """Z of each row: the largest DCG that a list with these relevances (n, m) can have."""
    best = relevance.sort(dim=1, descending=True).values
    rank = torch.arange(1, relevance.shape[1] + 1).to(relevance)
    return ((torch.exp2(best) - 1) / torch.log2(1 + rank)).sum(dim=1)


def ranking_loss(codes: Tensor, relevance: Tensor, margin: float) -> Tensor:
    """DSRH, Eq. 6, the mean over all triplets of a batch, relevance (b, b) the shared labels.

    For a query q a pair with r_i > r_j costs (2^r_i - 2^r_j) / Z_q [d(q, i) - d(q, j) + margin]_+,
    where d is the share of bits that differ, (1 - h_q . h_i / bits) / 2.
    """
    distance = 0.5 - 0.5 * codes @ codes.T / codes.shape[1]
    query, better, worse = triplets(relevance)
    others = relevance.clone().fill_diagonal_(0)
    gain = torch.exp2(others)
    weight = (gain[query, better][:, None] - gain[query]) / ideal_gain(others)[query][:, None]
    hinge = torch.relu(distance[query, better][:, None] - distance[query] + margin)
    return (weight * hinge * worse).sum() / worse.sum().clamp(min=1)


def balance(codes: Tensor) -> Tensor:
    """DSRH, Eq. 7's second term: half the squared mean code, per bit."""
    return 0.5 * codes.mean(dim=0).square().mean()


class DSRH(DeepHasher):
    """Triplets ranked by how many labels they share, weighted like NDCG.

    `margin` is a share of the bits; `weight_decay` is the paper's (beta / 2) ||W||^2. The hash
    layer reads the features beside the last hidden layer, as it reads fc6 beside fc7 there.
    """

    title = "Deep semantic ranking based hashing"
    kind = "supervised deep"
    labels = "required"
    paper = "Zhao, Huang, Wang & Tan, Deep semantic ranking based hashing, CVPR"
    year = 2015

    batch_size: int = 128
    margin: float = 0.25
    alpha: float = 0.1

    def _layers(self, dimensions: int) -> HashLayers:
        return HashLayers(self._sizes(dimensions), skip=True)

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            codes, own = torch.tanh(outputs), labels[rows]
            ranking = ranking_loss(codes, shared_labels(own, own), self.margin)
            return ranking + self.alpha * balance(codes)

        return loss
