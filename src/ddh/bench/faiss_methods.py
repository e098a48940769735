"""LSH, PCAH and ITQ beside faiss's own: mAP, its standard error, and seconds to fit, in one run."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from ddh._core.progress import track
from ddh.bench.methods import Encoder, score
from ddh.bench.results import Record
from ddh.bench.retrieval import Task
from ddh.bench.timing import timed
from ddh.evaluation import Protocol, Score
from ddh.hashers import create

Features = NDArray[np.float32]
Fit = Callable[[Features, int, int], Encoder]  # features, bits, seed


def compare(task: Task, bits: int, seeds: Sequence[int]) -> tuple[list[Record], Protocol]:
    """One row per method: both mAPs, their difference with its standard error, and fit times."""
    rows = []
    for name in track(list(FAISS), "Methods", unit="method"):
        ours, our_times = _run(partial(_ours, name), task, bits, seeds)
        theirs, their_times = _run(FAISS[name], task, bits, seeds)
        difference = float(np.mean(ours) - np.mean(theirs))
        error = standard_error(ours, theirs)
        rows.append(
            {
                "method": name,
                "mAP": round(float(np.mean(ours)), 4),
                "faiss mAP": round(float(np.mean(theirs)), 4),
                "difference": round(difference, 4),
                "standard error": round(error, 4),
                "within noise": abs(difference) <= 2 * error,
                "fit CPU seconds": round(min(our_times), 4),
                "faiss fit CPU seconds": round(min(their_times), 4),
            }
        )
    return rows, ours[0].protocol


def _run(fit: Fit, task: Task, bits: int, seeds: Sequence[int]) -> tuple[list[Score], list[float]]:
    scores, times = [], []
    for seed in seeds:
        encode, seconds = timed(fit, task.part("train"), bits, seed)
        scores.append(score(task, encode))
        times.append(seconds["cpu"])
    return scores, times


def standard_error(ours: list[Score], theirs: list[Score]) -> float:
    """Of the difference of the means: variance over the queries (paired) and over the seeds."""
    per_query = [
        np.mean([score.per_query for score in scores], axis=0) for scores in (ours, theirs)
    ]
    paired = per_query[0] - per_query[1]
    variance = paired.var(ddof=1) / len(paired)
    if len(ours) > 1:
        variance += (np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / len(ours)
    return float(np.sqrt(variance))


def _ours(name: str, X: Features, bits: int, seed: int) -> Encoder:
    """A method of ours; LSH with orthogonal planes, as faiss has it."""
    settings = {"orthogonal": True} if name == "LSH" else {}
    return create(name, bits=bits, random_state=seed, **settings).fit(X).transform


def _faiss_lsh(X: Features, bits: int, seed: int) -> Encoder:
    """IndexLSH: random rotation, thresholds at the medians."""
    index = faiss.IndexLSH(X.shape[1], bits, True, True)
    index.rrot.init(seed + 1)
    index.train(X)

    def encode(rows: NDArray[Any]) -> NDArray[np.int8]:
        packed = index.sa_encode(np.ascontiguousarray(rows, np.float32))
        bits_first = np.unpackbits(packed, axis=1, bitorder="little")[:, :bits]
        return np.where(bits_first, 1, -1).astype(np.int8)

    return encode


def _faiss_pca(X: Features, bits: int, seed: int) -> Encoder:
    """Signs of PCAMatrix."""
    return _signs_of(faiss.PCAMatrix(X.shape[1], bits), X)


def _faiss_itq(X: Features, bits: int, seed: int) -> Encoder:
    """Signs of ITQTransform, which learns from at most 10 d rows."""
    transform = faiss.ITQTransform(X.shape[1], bits, True)
    transform.itq.seed = seed + 1
    return _signs_of(transform, X)


def _signs_of(transform: Any, X: Features) -> Encoder:
    transform.train(X)

    def encode(rows: NDArray[Any]) -> NDArray[np.int8]:
        outputs = transform.apply(np.ascontiguousarray(rows, np.float32))
        return np.where(outputs >= 0, 1, -1).astype(np.int8)

    return encode


FAISS: dict[str, Fit] = {"LSH": _faiss_lsh, "PCAH": _faiss_pca, "ITQ": _faiss_itq}


def comparison_table(rows: list[Record]) -> str:
    """The comparison as text."""
    lines = [f"{'method':<8}{'ours':>9}{'faiss':>9}{'difference':>20}{'fit CPU s':>12}{'faiss':>9}"]
    for row in rows:
        noise = f"{row['difference']:+.4f} +-{row['standard error']:.4f}"
        lines.append(
            f"{row['method']:<8}{row['mAP']:>9.4f}{row['faiss mAP']:>9.4f}{noise:>20}"
            f"{row['fit CPU seconds']:>12.4f}{row['faiss fit CPU seconds']:>9.4f}"
        )
    return "\n".join(lines)
