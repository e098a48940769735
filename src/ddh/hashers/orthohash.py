"""Hoe et al. (2021), "One loss for all: deep hashing with a single cosine similarity objective"."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

from ddh._core.labels import indicators
from ddh.hashers.csq import hash_centres
from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective, standardize_batch
from ddh.train.features import Pictures


def cosine_loss(
    outputs: Tensor, targets: Tensor, concepts: Tensor, scale: float, margin: float
) -> Tensor:
    """Cross-entropy of scale (cos(z, o_c) - margin [c is a class of the row]); a row with
    several classes shares its weight among them."""
    cosines = normalize(outputs, dim=1) @ targets.T / targets.shape[1] ** 0.5
    logits = scale * (cosines - margin * concepts)
    shares = concepts / concepts.sum(dim=1, keepdim=True)
    return -(shares * log_softmax(logits, dim=1)).sum(dim=1).mean()


class OrthoHash(DeepHasher):
    """The angle to the binary code of the class, nothing else: it separates and quantises at once.

    Target codes are as CSQ's centres. Outputs are normalised per batch, and centred on the training
    rows at the end.
    """

    title = "OrthoHash"
    kind = "supervised deep"
    labels = "required"
    paper = "Hoe et al., One loss for all: deep hashing with a single cosine objective, NeurIPS"
    year = 2021

    scale: float = 8.0
    margin: float = 0.2

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        concepts = indicators(labels.cpu().numpy())
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        self.centres_ = hash_centres(concepts.shape[1], self.bits, rng)
        targets = torch.from_numpy(self.centres_).to(features.device)
        own = torch.from_numpy(concepts).to(features.device)

        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            codes = standardize_batch(outputs)
            return cosine_loss(codes, targets.to(codes), own[rows], self.scale, self.margin)

        return loss

    @torch.no_grad()
    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        self._initialise(training.layers, features)  # what the normalisation did, for all rows
