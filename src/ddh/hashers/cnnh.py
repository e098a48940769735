"""Xia et al. (2014), "Supervised hashing for image retrieval via image representation learning"."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddh._core.arrays import sgn
from ddh._core.errors import InputError
from ddh._core.labels import indicators
from ddh._core.linear_algebra import Reals
from ddh._core.progress import track
from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import HashLayers, Objective
from ddh.hashers.label_pairs import similarity

# Rows whose entries of one column move together, as a share of all rows (see `Factorisation`).
BLOCKS = 64
HALVINGS = 4


class Factorisation:
    """CNNH's stage 1: H in [-1, 1]^(n x q) that lowers ||H H^T - q S||^2, S = +1 alike, -1 not.

    Newton's step for one entry is -g' / g'' with g' = 4 L_i . h_j and
    g'' = 4 (h_j . h_j + H_ij^2 + L_ii), where L = H H^T - q S, kept inside the box. Entries of
    one column are moved for n / 64 rows at a time (one row when n <= 64: the paper's own
    coordinate descent). A move changes the objective by a polynomial that is known exactly
    (`change`); one that would raise it is halved and then dropped, so the objective never rises.
    L itself is never formed: S H and G = H^T H are enough.
    """

    def __init__(self, S: NDArray[np.float32], bits: int, rng: np.random.Generator) -> None:
        self.S, self.rng, self.bits = S, rng, bits
        self.H = rng.uniform(-1.0, 1.0, (len(S), bits))
        self.G = self.H.T @ self.H

    def objective(self) -> float:
        """||H H^T - q S||^2 = ||G||^2 - 2 q tr(H^T S H) + q^2 ||S||^2."""
        cross = np.vdot(self.H, self.S @ self.H.astype(np.float32))
        n, q = self.H.shape
        return float(np.vdot(self.G, self.G) - 2.0 * q * cross + (q * n) ** 2)

    def sweep(self) -> None:
        """Visit every entry once: blocks of rows in a random order, their columns in another."""
        n = len(self.H)
        for rows in np.array_split(self.rng.permutation(n), min(n, BLOCKS)):
            S_rows = self.S[rows].astype(np.float64)
            # Columns of S H do not mix, so one product serves all columns of these rows.
            SH, S_block = S_rows @ self.H, S_rows[:, rows]
            block = self.H[rows]
            for j in self.rng.permutation(self.bits):
                self.move(block, j, SH[:, j], S_block)
            self.H[rows] = block

    def move(self, block: Reals, j: int, Sh: Reals, S_block: Reals) -> None:
        """Newton's step for column j of a block of rows of H, in place; G follows."""
        h = block[:, j]
        Lh = block @ self.G[:, j] - self.bits * Sh
        L_diagonal = np.einsum("ik,ik->i", block, block) - self.bits * S_block.diagonal()
        curvature = self.G[j, j] + h * h + L_diagonal
        newton = -Lh / np.where(curvature > 0, curvature, 1.0)
        # Where the curvature is not positive the best entry lies on the side of the box downhill.
        step = np.where(curvature > 0, newton, -3.0 * np.sign(Lh))
        step = np.clip(h + step, -1.0, 1.0) - h
        for _ in range(HALVINGS + 1):
            moved = step @ block
            if self.change(step, h, moved, self.G[j, j], Lh, S_block) < 0:
                block[:, j] += step
                # G = H^T H changes in row and column j only: the rank-one update.
                self.G[j] += moved
                self.G[:, j] += moved
                self.G[j, j] += step @ step
                return
            step *= 0.5

    def change(
        self, step: Reals, h: Reals, moved: Reals, hh: float, Lh: Reals, S_block: Reals
    ) -> float:
        """||L + d h^T + h d^T + d d^T||^2 - ||L||^2 for a step d of a column with |h_j|^2 = hh
        that is zero outside the block; `moved` is d^T H."""
        dd, dh = step @ step, step @ h
        dLd = moved @ moved - self.bits * (step @ S_block @ step)
        return float(4 * (step @ Lh) + 2 * dLd + 2 * dd * hh + 2 * dh**2 + 4 * dd * dh + dd**2)


def target_codes(
    S: NDArray[np.float32], bits: int, sweeps: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], Reals]:
    """(codes of +-1 whose products approach bits * S, the objective after each sweep); stops when
    a sweep lowers it by less than a thousandth."""
    factors = Factorisation(S, bits, rng)
    values = [factors.objective()]
    for _ in track(range(sweeps), "CNNH: codes", unit="sweep"):
        factors.sweep()
        values.append(factors.objective())
        if values[-2] - values[-1] <= 1e-3 * values[-2]:
            break
    return sgn(factors.H, np.float32), np.array(values)


def regression(outputs: Tensor, codes: Tensor) -> Tensor:
    """Stage 2: the mean squared difference of tanh outputs and the target codes."""
    return (torch.tanh(outputs) - codes).square().mean()


class CNNH(DeepHasher):
    """Codes from the factorisation of the similarity matrix, then a network that predicts them.

    Stage 1 needs an n x n matrix, so training takes a random sample of `sample` (5,000 at the
    most) labelled rows, in both stages: 100 MB of memory at 5,000. `stage1_losses_` holds the
    objective of stage 1 after each sweep; it never rises.
    """

    title = "Convolutional neural network hashing"
    kind = "supervised deep"
    labels = "required"
    paper = "Xia, Pan, Lai, Liu & Yan, Supervised hashing via image representation learning, AAAI"
    year = 2014

    sample: int = 5000
    sweeps: int = 10

    def _most_rows(self) -> int:
        return self.sample

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        concepts = indicators(labels.cpu().numpy())
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        S = similarity(concepts, concepts)
        codes, self.stage1_losses_ = target_codes(S, self.bits, self.sweeps, rng)
        targets = torch.from_numpy(codes).to(features.device)
        return lambda outputs, rows, progress: regression(outputs, targets[rows])

    def _check(self, pictures: bool) -> None:
        super()._check(pictures)
        if not 2 <= self.sample <= 5000 or self.sweeps < 1:
            raise InputError(
                f"sample must be 2 to 5,000 rows and sweeps 1 or more; got {self.sample} and "
                f"{self.sweeps} (stage 1 takes memory that grows with the square of the sample)"
            )
