"""Yuan et al. (2020), "Central similarity quantization for efficient image and video retrieval"."""

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, softplus

from ddh._core.labels import indicators
from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import HashLayers, Objective

DRAWS = 100


def hash_centres(classes: int, bits: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Codes of +-1 for the classes, far apart: rows of a Hadamard matrix and of its
    negative where `bits` is a power of two that has enough of them, else balanced random rows, of
    `DRAWS` draws the one whose two closest rows are the farthest apart."""
    if bits & (bits - 1) == 0 and classes <= 2 * bits:
        H = scipy.linalg.hadamard(bits)
        return np.concatenate([H, -H])[:classes].astype(np.float32)
    half = np.where(np.arange(bits) < (bits + 1) // 2, 1.0, -1.0)
    best, farthest = np.empty(0), -1.0
    for _ in range(DRAWS):
        centres = rng.permuted(np.tile(half, (classes, 1)), axis=1)
        distances = (bits - centres @ centres.T) / 2
        np.fill_diagonal(distances, bits)
        if distances.min() > farthest:
            best, farthest = centres, distances.min()
    return best.astype(np.float32)


def centres_of(
    concepts: NDArray[np.float32], centres: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float32]:
    """The centre of each row: that of its class, or the majority of those of its concepts; where
    they are even, the bit of one code that is drawn for all rows."""
    votes = concepts @ centres
    undecided = rng.choice([-1.0, 1.0], centres.shape[1])
    return np.where(votes == 0, undecided, np.sign(votes)).astype(np.float32)


def central_similarity(codes: Tensor, centres: Tensor) -> Tensor:
    """L_C: binary cross-entropy of (h + 1) / 2 against the bits of the centre, h in [-1, 1]."""
    return binary_cross_entropy((codes + 1) / 2, (centres + 1) / 2)


def quantisation(codes: Tensor) -> Tensor:
    """L_Q: the mean of log cosh(|h| - 1), written so that it cannot overflow."""
    x = codes.abs() - 1
    return (softplus(-2 * x) + x - np.log(2)).mean()


class CSQ(DeepHasher):
    """Every image is drawn to the hash centre of its class, or of its set of concepts.

    `lambda1` weighs the quantisation. The centres are in `centres_`.
    """

    title = "Central similarity quantization"
    kind = "supervised deep"
    labels = "required"
    paper = "Yuan et al., Central similarity quantization, CVPR"
    year = 2020

    lambda1: float = 1e-4

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        concepts = indicators(labels.cpu().numpy())
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        self.centres_ = hash_centres(concepts.shape[1], self.bits, rng)
        targets = torch.from_numpy(centres_of(concepts, self.centres_, rng)).to(features.device)

        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            codes = torch.tanh(outputs)
            similar = central_similarity(codes, targets[rows].to(codes.dtype))
            return similar + self.lambda1 * quantisation(codes)

        return loss
