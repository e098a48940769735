"""Ng et al. (2023), "Unsupervised hashing with similarity distribution calibration"."""

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from ddh._core.errors import InputError
from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import (
    DeepTraining,
    HashLayers,
    Objective,
    cosine_similarities,
    standardize_batch,
)
from ddh.train.features import Pictures


def calibration(pairs: int, shape: float) -> Tensor:
    """Similarities in rising order: quantiles of Beta(shape, shape) over [-1, 1], cut at 0."""
    levels = (np.arange(pairs) + 0.5) / pairs
    return torch.from_numpy(2 * scipy.stats.beta.ppf(levels, shape, shape) - 1).relu()


def calibration_loss(codes: Tensor, features: Tensor, target: Tensor) -> Tensor:
    """The mean difference between the codes' similarities, pairs sorted by the features' ones,
    and the calibration distribution: their Wasserstein-1 distance when both have one order."""
    first, second = torch.triu_indices(len(codes), len(codes), 1, device=codes.device)
    order = cosine_similarities(features)[first, second].argsort(stable=True)
    similarity = cosine_similarities(codes)[first, second][order]
    return (similarity - target).abs().mean()


class SDC(DeepHasher):
    """Code similarities with a given, wide distribution, in the order of the features' ones.

    The distribution is Beta(`shape`, `shape`) over the whole range, negative values cut at 0, as in
    the release. Outputs are normalised per batch, and centred on the training rows at the end.
    """

    title = "Similarity distribution calibration"
    kind = "unsupervised deep"
    paper = "Ng et al., Unsupervised hashing with similarity distribution calibration, BMVC"
    year = 2023

    learning_rate: float = 1e-4
    shape: float = 2.0

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        targets: dict[int, Tensor] = {}

        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            pairs = len(rows) * (len(rows) - 1) // 2
            if not pairs:  # the last batch of an epoch may be one image
                return 0 * outputs.sum()
            if pairs not in targets:
                targets[pairs] = calibration(pairs, self.shape).to(outputs)
            return calibration_loss(standardize_batch(outputs), features[rows], targets[pairs])

        return loss

    @torch.no_grad()
    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        self._initialise(training.layers, features)  # what the normalisation did, for all rows

    def _check(self, pictures: bool) -> None:
        super()._check(pictures)
        if not self.shape > 0:
            raise InputError(f"shape of the Beta distribution must be positive, not {self.shape}")
