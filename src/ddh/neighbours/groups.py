"""The labelled variant of S: similarity from known labels, held between groups of images.

The paper: "by constructing the neighbourhood structure using the labels". Two images are similar
(s_ij = +1) when they share a label. Images with the same set of labels have the same row of S,
so S is known from the groups alone: N numbers and a relation of groups, whatever N is.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh._core.errors import InputError

UNLABELLED = -1


@dataclass(frozen=True)
class LabelGroups:
    """Images with the same set of labels form a group; two groups are related if they share one.

    `group_of` (N,) names the group of each image, `relation` (groups x groups, int8) is 1 where
    two groups are similar, `sizes` counts the images of each group. An image without a label
    (-1 in a vector, a row of zeros in a matrix) is similar to nothing, itself included: it stays
    in N as a negative of everything.
    """

    group_of: NDArray[np.int32]
    relation: sparse.csr_array
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.group_of)

    def degree(self) -> NDArray[np.int64]:
        """|S_i| of each image, itself not counted."""
        related = self.relation.astype(np.int64) @ self.sizes
        return (related - self.relation.diagonal())[self.group_of]

    def rows(self, i: int) -> NDArray[np.int32]:
        """S_i: the images similar to image i, in order, itself not among them."""
        group = self.group_of[i]
        related = self.relation.indices[slice(*self.relation.indptr[group : group + 2])]
        order, starts = self._members
        parts = [order[starts[g] : starts[g + 1]] for g in related]
        found = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int32)
        return found[found != i]

    def to_csr(self, *, most: int = 100_000_000) -> sparse.csr_array:
        """S as a matrix, for small N: refused above `most` entries (5 bytes each)."""
        entries = int(self.degree().sum())
        if entries > most:
            raise InputError(
                f"S of these labels has {entries:,} entries, more than {most:,}: "
                "use the groups themselves, or ask for fewer images"
            )
        images = len(self)
        starts = np.arange(images + 1, dtype=np.int32)
        member = sparse.csr_array(
            (np.ones(images, np.int8), self.group_of, starts), shape=(images, len(self.sizes))
        )
        S = (member @ self.relation @ member.T).tocsr()
        S.setdiag(0)
        S.eliminate_zeros()
        S.sort_indices()
        return S

    @cached_property
    def _members(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The images of each group in order, and where each group starts."""
        order = np.argsort(self.group_of, kind="stable").astype(np.int32)
        return order, np.concatenate([[0], np.cumsum(self.sizes)])


def label_groups(y: ArrayLike) -> LabelGroups:
    """Groups from a vector of classes (-1: unlabelled) or a 0/1 matrix (N, concepts)."""
    labels = np.asarray(y)
    if labels.ndim not in (1, 2) or 0 in labels.shape:
        raise InputError(
            f"labels are a vector of classes or a 0/1 matrix, not an array of shape {labels.shape}"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(f"labels hold NaN or infinity; mark unlabelled images by {UNLABELLED}")
    return _from_classes(labels) if labels.ndim == 1 else _from_concepts(labels)


def _from_classes(labels: NDArray) -> LabelGroups:
    classes, group_of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    known = np.ones(len(classes), bool) if labels.dtype.kind in "US" else classes != UNLABELLED
    itself = np.flatnonzero(known)
    shape = (len(classes), len(classes))
    relation = sparse.csr_array((np.ones(len(itself), np.int8), (itself, itself)), shape=shape)
    return LabelGroups(group_of.astype(np.int32), relation, sizes)


def _from_concepts(labels: NDArray) -> LabelGroups:
    present = labels != 0
    if not np.array_equal(present, labels):
        raise InputError("a label matrix holds 0 and 1 only, one column a concept")
    _, first, group_of, sizes = np.unique(
        np.packbits(present, axis=1),
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    concepts = sparse.csr_array(present[first].astype(np.int32))
    relation = ((concepts @ concepts.T) > 0).astype(np.int8).tocsr()
    relation.sort_indices()
    return LabelGroups(group_of.reshape(-1).astype(np.int32), relation, sizes)
