"""LSH, PCAH and ITQ of faiss, for `ddh bench methods --against-faiss`."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from ddh.bench.methods import Encoder, Features, Fit


def _lsh(X: Features, bits: int, seed: int) -> Encoder:
    """IndexLSH: random rotation, thresholds at the medians."""
    index = faiss.IndexLSH(X.shape[1], bits, True, True)
    index.rrot.init(seed + 1)
    index.train(X)

    def encode(rows: NDArray[Any]) -> NDArray[np.int8]:
        packed = index.sa_encode(np.ascontiguousarray(rows, np.float32))
        bits_first = np.unpackbits(packed, axis=1, bitorder="little")[:, :bits]
        return np.where(bits_first, 1, -1).astype(np.int8)

    return encode


def _pcah(X: Features, bits: int, seed: int) -> Encoder:
    """Signs of PCAMatrix."""
    return _signs_of(faiss.PCAMatrix(X.shape[1], bits), X)


def _itq(X: Features, bits: int, seed: int) -> Encoder:
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


FAISS: dict[str, Fit] = {"LSH": _lsh, "PCAH": _pcah, "ITQ": _itq}
