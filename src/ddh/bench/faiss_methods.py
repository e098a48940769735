"""LSH, PCAH and ITQ beside faiss's own: mAP, its noise, and seconds to fit, in one run."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.arrays import sgn
from ddh._core.progress import track
from ddh.bench.method_task import Task
from ddh.bench.timing import timed
from ddh.evaluation import Score
from ddh.hashers import create

Encoder = Callable[[NDArray[Any]], NDArray[np.int8]]
Fit = Callable[[NDArray[np.float32], int, int], Encoder]


def compare(task: Task, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """One row a method: both mAPs, their difference with its standard error, and fit times."""
    names = track(list(FAISS), "Methods", unit="method")
    return [_row(name, _ours(name), FAISS[name], task, seeds) for name in names]


def _row(name: str, ours: Fit, other: Fit, task: Task, seeds: Sequence[int]) -> dict[str, Any]:
    our_scores, our_times = _run(ours, task, seeds)
    faiss_scores, faiss_times = _run(other, task, seeds)
    difference = float(np.mean(our_scores) - np.mean(faiss_scores))
    error = standard_error(our_scores, faiss_scores)
    return {
        "method": name,
        "mAP": round(float(np.mean(our_scores)), 4),
        "faiss mAP": round(float(np.mean(faiss_scores)), 4),
        "difference": round(difference, 4),
        "standard error": round(error, 4),
        "within noise": abs(difference) <= 2 * error,
        "fit CPU seconds": round(min(our_times), 4),
        "faiss fit CPU seconds": round(min(faiss_times), 4),
    }


def _run(fit: Fit, task: Task, seeds: Sequence[int]) -> tuple[list[Score], list[float]]:
    scores, times = [], []
    for seed in seeds:
        encode, seconds = timed(fit, task.database, task.bits, seed)
        scores.append(task.score(encode))
        times.append(seconds["cpu"])
    return scores, times


def standard_error(ours: list[Score], theirs: list[Score]) -> float:
    """Of the difference of the means: chance in the queries (paired) and in the seeds."""
    per_query = [
        np.mean([score.per_query for score in scores], axis=0) for scores in (ours, theirs)
    ]
    paired = per_query[0] - per_query[1]
    variance = paired.var(ddof=1) / len(paired)
    if len(ours) > 1:
        variance += (np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / len(ours)
    return float(np.sqrt(variance))


def _ours(name: str) -> Fit:
    """A method of ours as a `Fit`; LSH with orthogonal planes, which is what faiss has."""
    settings = {"orthogonal": True} if name == "LSH" else {}

    def fit(X: NDArray[np.float32], bits: int, seed: int) -> Encoder:
        return create(name, bits=bits, random_state=seed, **settings).fit(X).transform

    return fit


def _faiss_lsh(X: NDArray[np.float32], bits: int, seed: int) -> Encoder:
    """IndexLSH: random rotation, thresholds at the medians."""
    import faiss

    index = faiss.IndexLSH(X.shape[1], bits, True, True)
    index.rrot.init(seed + 1)
    index.train(X)

    def encode(rows: NDArray[Any]) -> NDArray[np.int8]:
        packed = index.sa_encode(np.ascontiguousarray(rows, np.float32))
        bits_first = np.unpackbits(packed, axis=1, bitorder="little")[:, :bits]
        return np.where(bits_first, 1, -1).astype(np.int8)

    return encode


def _faiss_pca(X: NDArray[np.float32], bits: int, seed: int) -> Encoder:
    """Signs of PCAMatrix."""
    import faiss

    return _signs_of(faiss.PCAMatrix(X.shape[1], bits), X)


def _faiss_itq(X: NDArray[np.float32], bits: int, seed: int) -> Encoder:
    """Signs of ITQTransform, which learns from 10 d rows at most."""
    import faiss

    transform = faiss.ITQTransform(X.shape[1], bits, True)
    transform.itq.seed = seed + 1
    return _signs_of(transform, X)


def _signs_of(transform: Any, X: NDArray[np.float32]) -> Encoder:
    transform.train(X)

    def encode(rows: NDArray[Any]) -> NDArray[np.int8]:
        outputs = transform.apply(np.ascontiguousarray(rows, np.float32))
        return sgn(outputs)

    return encode


FAISS: dict[str, Fit] = {"LSH": _faiss_lsh, "PCAH": _faiss_pca, "ITQ": _faiss_itq}


def comparison_table(rows: list[dict[str, Any]]) -> str:
    """The comparison for people."""
    head = f"{'method':<8}{'ours':>9}{'faiss':>9}{'difference':>20}{'fit CPU s':>12}{'faiss':>9}"
    lines = [head]
    for row in rows:
        noise = f"{row['difference']:+.4f} +-{row['standard error']:.4f}"
        lines.append(
            f"{row['method']:<8}{row['mAP']:>9.4f}{row['faiss mAP']:>9.4f}{noise:>20}"
            f"{row['fit CPU seconds']:>12.4f}{row['faiss fit CPU seconds']:>9.4f}"
        )
    return "\n".join(lines)
