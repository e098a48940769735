"""Vector quantisers of faiss as codes of a given number of bytes, each by a stated recipe."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError

RECIPES = {
    "PQ": "one byte per subspace",
    "OPQ": "PCA to 8 dimensions per byte, a learned rotation, then PQ",
    "RaBitQ": "PCA to 8 dimensions per byte with a random rotation, queries in 8 bits; it stores 8 "
    "bytes of factors beside the bits",
    "SQ": "PCA to 2 dimensions per byte, 4 bits each",
}
QUERY_BITS = 8
CENTROIDS = 256  # of a byte: product quantisers need as many training images


def quantizer(method: str, dimensions: int, size: int, seed: int) -> Any:
    """An untrained faiss index with codes of `size` bytes (RaBitQ: and its factors), L2."""
    import faiss

    if method == "PQ":
        padded = -(-dimensions // size) * size
        remap: Any = faiss.RemapDimensionsTransform  # with zeros behind the dimensions
        pad = remap(dimensions, padded, False)
        return faiss.IndexPreTransform(pad, _product(padded, size, seed))
    if method == "OPQ":
        reduced = min(8 * size, dimensions // size * size)
        rotation: Any = faiss.OPQMatrix(reduced, size)
        learner = _product(reduced, size, seed)
        rotation.pq, rotation.learner = learner.pq, learner  # faiss does not keep it alive
        index = faiss.IndexPreTransform(rotation, _product(reduced, size, seed))
        index.prepend_transform(faiss.PCAMatrix(dimensions, reduced))
        return index
    if method == "RaBitQ":
        reduced = min(8 * size, dimensions)
        bits = faiss.IndexRaBitQ(reduced, faiss.METRIC_L2)
        bits.qb = QUERY_BITS
        return faiss.IndexPreTransform(faiss.PCAMatrix(dimensions, reduced, 0, True), bits)
    reduced = min(2 * size, dimensions)
    scalar = faiss.IndexScalarQuantizer(reduced, faiss.ScalarQuantizer.QT_4bit)
    return faiss.IndexPreTransform(faiss.PCAMatrix(dimensions, reduced), scalar)


def _product(dimensions: int, size: int, seed: int) -> Any:
    import faiss

    index = faiss.IndexPQ(dimensions, size, 8)
    index.pq.cp.seed = seed + 1
    index.pq.cp.min_points_per_centroid = 1  # a small collection is no mistake
    return index


def train(index: Any, method: str, features: NDArray[np.float32]) -> None:
    """Learn from the training images."""
    if method in ("PQ", "OPQ") and len(features) < CENTROIDS:
        raise InputError(
            f"{method} learns {CENTROIDS} centroids per byte, there are {len(features)} training "
            "images: leave it out with --methods"
        )
    index.train(features)


def rank(index: Any, queries: NDArray[np.float32], k: int, *, encoded: bool) -> NDArray[np.int64]:
    """The k nearest stored rows; `encoded`: the query is known by its own code alone."""
    asked = index.sa_decode(index.sa_encode(queries)) if encoded else queries
    found: NDArray[np.int64] = index.search(asked, k)[1]
    return found
