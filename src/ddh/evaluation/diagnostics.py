"""Is a set of codes healthy? Uniqueness, balance, correlation, entropy and collisions."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.spans import spans
from ddh.codes import unpack
from ddh.codes.inputs import binary_codes

BLOCK_ROWS = 8192


@dataclass(frozen=True)
class CodeDiagnostics:
    """What `diagnose` found; bits are numbered as columns of the codes."""

    rows: int
    bits: int
    unique_codes: int
    unique_ratio: float
    largest_bucket: int
    collision_probability: float
    code_entropy: float
    balance: NDArray[np.float64]
    bit_entropy: NDArray[np.float64]
    correlation: NDArray[np.float64]

    @property
    def worst_balance(self) -> float:
        """Largest distance of a bit's mean from 0; 1 is a bit that never changes."""
        return float(np.abs(self.balance).max())

    @property
    def mean_correlation(self) -> float:
        """Mean size of the correlation between two different bits; constant bits count as 0."""
        if self.bits == 1:
            return 0.0
        off = np.abs(self.correlation).sum() - np.abs(np.diag(self.correlation)).sum()
        return float(off / (self.bits * (self.bits - 1)))

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with the two summaries and without the correlation matrix."""
        values = asdict(self)
        del values["correlation"]
        values |= {name: values[name].tolist() for name in ("balance", "bit_entropy")}
        names = ("worst_balance", "mean_correlation")
        return values | {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} codes of {self.bits} bits: {self.unique_codes:,} different "
            f"({self.unique_ratio:.1%}), largest bucket {self.largest_bucket:,}, two random images "
            f"collide with {self.collision_probability:.2e}; entropy {self.code_entropy:.2f} bits; "
            f"worst bit balance {self.worst_balance:.3f}, mean |correlation| "
            f"{self.mean_correlation:.3f}"
        )


def diagnose(codes: ArrayLike, *, bits: int | None = None) -> CodeDiagnostics:
    """Measure a set of codes, +-1 (n, bits) or packed with `bits`.

    `balance` is the mean of each bit as +-1 (0 is best), `bit_entropy` its entropy, at most 1;
    `code_entropy` is the entropy of the distribution over different codes, at most
    min(bits, log2 n); `collision_probability` is the chance that two different rows have one
    code. Memory: one block of unpacked rows and (bits x bits).
    """
    packed, bits = binary_codes(codes, bits, "the")
    rows = len(packed)
    whole = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    buckets = np.unique(whole, return_counts=True)[1].astype(np.float64)
    share = buckets / rows
    sums, products = np.zeros(bits), np.zeros((bits, bits))
    for span in spans(rows, BLOCK_ROWS):
        block = unpack(packed[span], bits).astype(np.float32)
        sums += block.sum(axis=0, dtype=np.float64)
        products += block.T @ block  # whole numbers below 2^24: exact in float32
    balance = sums / rows
    pairs = rows * (rows - 1)
    return CodeDiagnostics(
        rows=rows,
        bits=bits,
        unique_codes=len(buckets),
        unique_ratio=len(buckets) / rows,
        largest_bucket=int(buckets.max()),
        collision_probability=float((buckets * (buckets - 1)).sum() / pairs) if pairs else 0.0,
        code_entropy=float(max(0.0, -(share * np.log2(share)).sum())),
        balance=balance,
        bit_entropy=_binary_entropy((1 + balance) / 2),
        correlation=_correlation(products / rows, balance),
    )


def _binary_entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    terms = [np.where(q > 0, -q * np.log2(np.maximum(q, 1e-300)), 0.0) for q in (p, 1 - p)]
    return terms[0] + terms[1]


def _correlation(products: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    covariance = products - np.outer(means, means)
    deviation = np.sqrt(np.maximum(1 - means**2, 0.0))
    scale = np.outer(deviation, deviation)
    result = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 1e-12)
    return np.asarray(np.clip(result, -1.0, 1.0))
