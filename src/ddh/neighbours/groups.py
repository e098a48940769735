"""The labelled variant of S: images grouped by their labels, similarity known between groups."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh.errors import InputError


@dataclass(frozen=True)
class LabelGroups:
    """Images with the same set of labels form a group; two groups are related if they share one."""

    group_of: NDArray[np.int32]
    relation: sparse.csr_array
    sizes: NDArray[np.int64]

    def degree(self) -> NDArray[np.int64]:
        """|S_i| of each image, itself not counted."""
        related = self.relation.astype(np.int64) @ self.sizes
        return related[self.group_of] - self.relation.diagonal().astype(np.int64)[self.group_of]


def label_groups(y: ArrayLike) -> LabelGroups:
    """Groups from a vector of classes (-1: unlabelled) or a 0/1 matrix (N, concepts)."""
    labels = np.asarray(y)
    if labels.ndim == 1:
        classes, group_of = np.unique(labels, return_inverse=True)
        relation = sparse.csr_array(sparse.diags_array((classes != -1).astype(np.int8)))
        relation.eliminate_zeros()
    elif labels.ndim == 2:
        sets, group_of = np.unique(labels, axis=0, return_inverse=True)
        wide = sparse.csr_array(sets.astype(np.int32))
        relation = ((wide @ wide.T) > 0).astype(np.int8).tocsr()
    else:
        raise InputError(f"labels are a vector or a 0/1 matrix, not of shape {labels.shape}")
    sizes = np.bincount(group_of.ravel(), minlength=relation.shape[0]).astype(np.int64)
    return LabelGroups(group_of.ravel().astype(np.int32), sparse.csr_array(relation), sizes)
