"""The final objective of the paper's section Learning (2.4), term by term.

    J = 1/2 sum_ij w_ij (z_i . z_j / L - s_ij)^2         J1, neighbourhood structure
      + lambda1 / 2 sum_i ||b_i - z_i||^2                J2, quantisation, b = sgn(z)
      + lambda2 / 2 (||W||_F^2 + ||c||^2)^2              regulariser of the hashing layer

w_ij is alpha for similar pairs and 1 for the others (alpha = 1 is the paper). Pairs of an image
with itself are left out. Sums, not means, as printed; the training loop scales them.

All pairs without all pairs: with s_ij = +1 on S_i and -1 elsewhere,

    sum_j (z.u_j/L - s_ij)^2 = z^T G z / L^2 + 2 z.m / L + N - (4/L) z . sum_{j in S_i} u_j

where G = sum_j u_j u_j^T and m = sum_j u_j over the stored outputs u_j of all N images. This
is exact and costs O(L^2 + |S_i| L) an image, whatever N is.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ddh.objective.memory import PairMemory
from ddh.objective.positives import Positives


class Terms(NamedTuple):
    """The three terms before their weights lambda1 / 2 and lambda2 / 2; J1 has its 1/2."""

    pairs: Tensor
    quantisation: Tensor
    regulariser: Tensor

    def total(self, lambda1: float, lambda2: float) -> Tensor:
        """J of the section Learning."""
        return self.pairs + lambda1 / 2 * self.quantisation + lambda2 / 2 * self.regulariser


def sgn(values: Tensor) -> Tensor:
    """Eq. 4: +1 where a value is >= 0, -1 elsewhere (torch.sign would give 0 at 0)."""
    return torch.where(values >= 0, 1.0, -1.0).to(values.dtype)


def all_pairs(
    outputs: Tensor, rows: Tensor, positives: Positives, memory: PairMemory, alpha: float = 1.0
) -> Tensor:
    """J1 of the images `rows` against all others: 1/2 sum_i sum_{j != i} w_ij (...)^2.

    The stored outputs are constants here, as in the authors' release; only `outputs` (the z_i
    of the batch) carries a gradient. Call `memory.update` first, so that the pairs within the
    batch are up to date too.
    """
    L, z = memory.bits, outputs
    G, m = memory.gram.to(z.dtype), memory.total.to(z.dtype)
    own = (z * memory.outputs[rows]).sum(dim=1) / L
    everyone = ((z @ G) * z).sum(dim=1) / L**2 + 2 * (z @ m) / L + len(memory)
    similar = 4 / L * (z * positives.sums(rows, memory)).sum(dim=1)
    losses = everyone - similar - (own + 1).square()
    if alpha != 1:
        losses = losses + (alpha - 1) * positives.squares(rows, z, memory)
    return losses.sum() / 2


def in_batch(outputs: Tensor, similar: Tensor, alpha: float = 1.0) -> Tensor:
    """J1 over the pairs of a batch, both branches with a gradient (the two-branch form)."""
    bits = outputs.shape[1]
    signs = torch.where(similar, 1.0, -1.0).to(outputs.dtype)
    weights = torch.where(similar, alpha, 1.0).to(outputs.dtype).fill_diagonal_(0)
    return (weights * (outputs @ outputs.T / bits - signs).square()).sum() / 2


def quantisation(outputs: Tensor) -> Tensor:
    """sum_i ||b_i - z_i||^2 with b = sgn(z), a constant."""
    return (outputs - sgn(outputs.detach())).square().sum()


def regulariser(weight: Tensor, bias: Tensor) -> Tensor:
    """(||W||_F^2 + ||c||^2)^2, squared as the paper prints it."""
    return (weight.square().sum() + bias.square().sum()).square()


def gradient(
    outputs: Tensor, rows: Tensor, positives: Positives, memory: PairMemory, lambda1: float
) -> Tensor:
    """dJ / dz_i in the paper's closed form (2.4), alpha = 1, the sum over all j written out by G:

        1/L^2 sum_j (z_i . u_j) u_j - 1/L sum_j s_ij u_j + lambda1 (z_i - b_i)

    Training uses autograd; this is here because the paper gives it and the tests compare.
    """
    L, z = memory.bits, outputs
    G, m = memory.gram.to(z.dtype), memory.total.to(z.dtype)
    own = memory.outputs[rows]
    products = z @ G - (z * own).sum(dim=1, keepdim=True) * own
    signed = 2 * positives.sums(rows, memory) - m + own
    return products / L**2 - signed / L + lambda1 * (z - sgn(z))
