"""Visual words: a vocabulary learned by k-means on training images, and histograms of its words."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.descriptors.extraction import LocalFeatures

SAMPLES = 100_000  # vectors that the vocabulary is learned from, at most


class Vocabulary:
    """k-means centres of local vectors; `histograms` counts the nearest word of each vector."""

    def __init__(self, words: int, *, random_state: int = 0) -> None:
        self.words = words
        self.random_state = random_state

    def fit(self, features: LocalFeatures, images: NDArray[Any]) -> "Vocabulary":
        """Learn the words from some vectors of the given images only."""
        from sklearn.cluster import MiniBatchKMeans

        rows = features.rows_of(images)
        if len(rows) > SAMPLES:
            rng = np.random.default_rng(self.random_state)
            rows = np.sort(rng.choice(rows, SAMPLES, replace=False))
        sample = features.vectors[rows].astype(np.float32)
        different = len(np.unique(sample, axis=0))
        if different < self.words:
            raise InputError(
                f"{different} different local vectors cannot make {self.words} words; "
                "give more training images"
            )
        model = MiniBatchKMeans(
            self.words,
            batch_size=4096,
            max_iter=30,
            n_init=1,
            init_size=3 * self.words,
            reassignment_ratio=0.01,
            random_state=self.random_state,
        )
        self.centres_ = model.fit(sample).cluster_centers_.astype(np.float32)
        return self

    def assign(self, vectors: NDArray[Any]) -> NDArray[np.intp]:
        """The nearest word of each vector; distances are computed in chunks."""
        from sklearn.metrics import pairwise_distances_argmin

        return pairwise_distances_argmin(vectors.astype(np.float32), self.centres_)

    def histograms(self, features: LocalFeatures) -> NDArray[np.float32]:
        """Fraction of each word in each image (images, words); rows sum to 1."""
        counts = np.bincount(
            features.owner() * self.words + self.assign(features.vectors),
            minlength=len(features) * self.words,
        ).reshape(len(features), self.words)
        return (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
