"""He, Wen & Sun (2013), "K-means hashing: an affinity-preserving quantization method"."""

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.linear_algebra import Reals, principal_components, project, require_dimensions
from ddh._core.progress import track
from ddh.hashers.base import Floats, Hasher

# a subspace of b bits has 2^b codewords and 4^b pairs of them
MOST_SUBSPACE_BITS = 8
MAJORISATION_STEPS = 5


class KMH(Hasher):
    """K-means whose codewords are numbered so that their Hamming distances follow their own.

    The space is cut into subspaces of b bits with 2^b codewords each, which minimise
    E_quan + `affinity` E_aff (Sec. 3.2): the squared error of the codewords, and the weighted
    differences between codeword distances and s sqrt(Hamming distance of their numbers).
    `losses_` (subspace, iteration) holds the objective. Needs as many dimensions as bits.
    Memory: d x d, and n x d / subspaces.

    Parameters
    ----------
    subspace_bits : int
        Bits b per subspace; the last one has fewer where `bits` is not a multiple.
    affinity : float
        Weight of E_aff beside the quantisation error.
    iterations : int
        Alternations of assigning rows to codewords and moving the codewords.
    samples : int
        Largest number of rows to learn from.
    """

    title = "K-means hashing"
    kind = "unsupervised"
    paper = "He, Wen & Sun, K-means hashing, CVPR"
    year = 2013

    subspace_bits: int = 4
    affinity: float = 10.0
    iterations: int = 50
    samples: int = 100_000

    def _fit(self, X: Floats, y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        if not 1 <= self.subspace_bits <= MOST_SUBSPACE_BITS:
            raise InputError(
                f"subspace_bits must be 1 to {MOST_SUBSPACE_BITS}, not {self.subspace_bits}"
            )
        require_dimensions(self.bits, X.shape[1])
        if len(X) > self.samples:
            X = X[np.sort(rng.choice(len(X), self.samples, replace=False))]
        self.mean_, components, variances = principal_components(X, X.shape[1])
        widths = self._widths()
        shares = balanced_shares(variances, widths)
        directions, offsets, losses = [], [], []
        for dims, width in track(list(zip(shares, widths, strict=True)), "K-means hashing"):
            Z = project(X, self.mean_, components[:, dims])
            codewords, loss = learn_codewords(Z, width, self.affinity, self.iterations)
            directions.append(components[:, dims] @ codewords.T)
            offsets.append(np.square(codewords).sum(axis=1))
            losses.append(loss)
        self.directions_ = np.concatenate(directions, axis=1)
        self.offsets_ = np.concatenate(offsets)
        self.losses_ = np.stack(losses)

    def _widths(self) -> list[int]:
        """Bits of each subspace."""
        whole, rest = divmod(self.bits, self.subspace_bits)
        return [self.subspace_bits] * whole + ([rest] if rest else [])

    def _outputs(self, X: Floats) -> Floats:
        """Per bit: how much farther the nearest codeword with -1 is than the nearest with +1."""
        # ||z||^2 is the same for all codewords of a subspace and drops out of the difference
        scores = self.offsets_ - 2 * ((X - self.mean_) @ self.directions_)
        margins = np.empty((len(X), self.bits))
        bit = first = 0
        for width in self._widths():
            block = scores[:, first : first + 2**width]
            for k in range(width):
                by_bit = block.reshape(len(X), 2**k, 2, -1).min(axis=(1, 3))
                margins[:, bit + k] = by_bit[:, 0] - by_bit[:, 1]
            bit, first = bit + width, first + 2**width
        return margins


def balanced_shares(variances: Reals, widths: list[int]) -> list[NDArray[np.int64]]:
    """Deal principal axes to subspaces so that the products of their variances are alike: from the
    largest down, each to the smallest product with room, which is in proportion to its bits."""
    bits = np.cumsum([0, *widths])
    room = np.diff(len(variances) * bits // bits[-1])
    floor = max(variances[0], np.finfo(np.float64).tiny) * 1e-9
    logs = np.log(np.maximum(variances, floor))
    logs -= logs[-1]
    totals = np.zeros(len(widths))
    dealt: list[list[int]] = [[] for _ in widths]
    for axis, value in enumerate(logs):
        open_totals = np.where(room > 0, totals, np.inf)
        chosen = int(open_totals.argmin())
        dealt[chosen].append(axis)
        totals[chosen] += value
        room[chosen] -= 1
    return [np.array(axes, np.int64) for axes in dealt]


def corner_signs(bits: int) -> NDArray[np.int8]:
    """(2^bits, bits): the code of each number as -1 and +1, first bit most significant."""
    numbers = np.arange(2**bits)[:, None]
    return np.where(numbers >> np.arange(bits)[::-1] & 1, 1, -1).astype(np.int8)


def learn_codewords(Z: Floats, bits: int, affinity: float, iterations: int) -> tuple[Reals, Reals]:
    """(2^bits codewords, objective after each iteration) for one subspace; largest axis first."""
    signs = corner_signs(bits)
    codewords = np.zeros((len(signs), Z.shape[1]))
    codewords[:, :bits] = signs * Z[:, :bits].std(axis=0, dtype=np.float64)
    roots = np.sqrt((signs[:, None] != signs).sum(axis=2))
    energy = float(np.square(Z, dtype=np.float64).sum() / len(Z))
    shares, means = assign(Z, codewords)
    targets = best_scale(codewords, shares, roots) * roots
    losses = np.empty(iterations)
    for i in range(iterations):
        codewords = move_codewords(codewords, shares, means, targets, affinity)
        losses[i] = objective(codewords, shares, means, targets, affinity, energy)
        if i + 1 < iterations:
            shares, means = assign(Z, codewords)
    return codewords, losses


def assign(Z: Floats, codewords: Reals) -> tuple[Reals, Reals]:
    """(share of the rows, mean row) of each codeword, rows going to the nearest one."""
    C = codewords.astype(Z.dtype)
    nearest = (np.square(C).sum(axis=1) - 2 * (Z @ C.T)).argmin(axis=1)
    counts = np.bincount(nearest, minlength=len(C))
    n = len(Z)
    membership = scipy.sparse.csr_array((np.ones(n), nearest, np.arange(n + 1)), shape=(n, len(C)))
    sums = membership.T @ Z
    return counts / n, sums / np.maximum(counts, 1)[:, None]


def best_scale(codewords: Reals, shares: Reals, roots: Reals) -> float:
    """s that minimises sum w_ij (||c_i - c_j|| - s sqrt(h_ij))^2."""
    weights = np.outer(shares, shares)
    distances = np.linalg.norm(codewords[:, None] - codewords, axis=2)
    divisor = float((weights * roots**2).sum())
    return float((weights * distances * roots).sum()) / divisor if divisor > 0 else 0.0


def objective(
    codewords: Reals,
    shares: Reals,
    means: Reals,
    targets: Reals,
    affinity: float,
    energy: float,
) -> float:
    """E_quan + affinity E_aff for rows of mean squared norm `energy`."""
    spread = np.square(codewords).sum(axis=1) - 2 * (means * codewords).sum(axis=1)
    distances = np.linalg.norm(codewords[:, None] - codewords, axis=2)
    misfit = np.outer(shares, shares) * np.square(distances - targets)
    return energy + float(shares @ spread) + affinity * float(misfit.sum())


def move_codewords(
    codewords: Reals,
    shares: Reals,
    means: Reals,
    targets: Reals,
    affinity: float,
) -> Reals:
    """Lower the objective in each codeword in turn; one without rows keeps its place.

    With the others fixed, (||c - c_i|| - t)^2 <= ||c - c_i - t e_i||^2 with e_i the present unit
    vector from c_i to c (Cauchy-Schwarz): a quadratic with its minimum in closed form.
    """
    C = codewords.copy()
    for j in np.flatnonzero(shares):
        weights = 2 * affinity * shares[j] * shares
        weights[j] = 0
        total = shares[j] + weights.sum()
        for _ in range(MAJORISATION_STEPS):
            away = C[j] - C
            lengths = np.linalg.norm(away, axis=1)
            pull = np.divide(targets[j], lengths, out=np.zeros_like(lengths), where=lengths > 0)
            C[j] = (shares[j] * means[j] + weights @ (C + pull[:, None] * away)) / total
    return C
