"""Visual words: a vocabulary learned by k-means on training images, and histograms of its words."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh.descriptors.extraction import LocalFeatures

# Vectors that the vocabulary is learned from, at most, and distances held at once.
SAMPLES = 100_000
BLOCK = 1 << 23


class Vocabulary:
    """k-means centres of local vectors; `histograms` counts the nearest word of each vector."""

    def __init__(self, words: int, *, random_state: int = 0) -> None:
        self.words = words
        self.random_state = random_state

    def fit(self, features: LocalFeatures, images: NDArray[Any]) -> "Vocabulary":
        """Learn the words from some vectors of the given images only."""
        from sklearn.cluster import MiniBatchKMeans

        rng = np.random.default_rng(self.random_state)
        rows = features.rows_of(images)
        if len(rows) > SAMPLES:
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
        """The nearest word of each vector; 32 MB of distances at a time."""
        words = np.empty(len(vectors), np.intp)
        half_squares = np.square(self.centres_).sum(axis=1) / 2
        step = max(1, BLOCK // len(self.centres_))
        for start in range(0, len(vectors), step):
            block = vectors[start : start + step].astype(np.float32)
            # |x - c|^2 is smallest where x.c - |c|^2 / 2 is largest
            words[start : start + step] = (block @ self.centres_.T - half_squares).argmax(axis=1)
        return words

    def histograms(self, features: LocalFeatures) -> NDArray[np.float32]:
        """Share of each word in each image (images, words); rows sum to 1."""
        counts = np.bincount(
            features.owner() * self.words + self.assign(features.vectors),
            minlength=len(features) * self.words,
        ).reshape(len(features), self.words)
        return (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
