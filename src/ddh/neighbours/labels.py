"""Label similarity: two images are similar (s_ij = +1) if they share a label.

`LabelGroups` is S of the paper's supervised variant: images with the same label set have the same
row of S, so the groups alone determine it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh._core.errors import InputError
from ddh._core.labels import check_labels


@dataclass(frozen=True)
class LabelGroups:
    """S from labels, held between groups of images that have the same label set.

    `group_of` (N,) is the group of each image, `relation` (groups, groups) is 1 where two groups
    share a label, `sizes` counts the images per group. Unlabelled images are similar to nothing,
    themselves included, and stay in N as negatives of everything.
    """

    group_of: NDArray[np.int32]
    relation: sparse.csr_array
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.group_of)

    def degree(self) -> NDArray[np.int64]:
        """|S_i| of each image, the image itself not counted."""
        related = self.relation.astype(np.int64) @ self.sizes
        return np.asarray((related - self.relation.diagonal())[self.group_of])

    def labelled(self) -> NDArray[np.bool_]:
        """Which images carry a label."""
        return np.asarray(self.relation.diagonal()[self.group_of] != 0)

    def similar(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether the images i[p] and j[p] share a label, for each pair p."""
        groups = len(self.sizes)
        wanted = self.group_of[i].astype(np.int64) * groups + self.group_of[j]
        known = self._related_pairs
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return known[place] == wanted if len(known) else np.zeros(len(wanted), bool)

    def to_csr(self, *, max_entries: int = 100_000_000) -> sparse.csr_array:
        """S as a matrix, for small N: refused above `max_entries` (5 bytes each)."""
        entries = int(self.degree().sum())
        if entries > max_entries:
            raise InputError(
                f"S of these labels has {entries:,} entries, more than {max_entries:,}: "
                "use the groups themselves, or fewer images"
            )
        S = self.relation[self.group_of][:, self.group_of]
        S.setdiag(0)
        S.eliminate_zeros()
        S.sort_indices()
        return S

    @cached_property
    def _related_pairs(self) -> NDArray[np.int64]:
        """Ascending numbers g * groups + h of all related groups g and h."""
        groups = len(self.sizes)
        owner = np.repeat(np.arange(groups, dtype=np.int64), np.diff(self.relation.indptr))
        return np.asarray(owner * groups + self.relation.indices)


def label_groups(y: ArrayLike) -> LabelGroups:
    """Group images by label set; `y`: classes (N,), -1 if unlabelled, or 0/1 (N, concepts)."""
    labels = check_labels(y)
    sets = labels if labels.ndim == 1 else np.packbits(labels.astype(bool), axis=1)
    _, first, group_of, sizes = np.unique(
        sets, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    if labels.ndim == 1:
        known = np.flatnonzero(labels[first] >= 0)
        relation = sparse.csr_array(
            (np.ones(len(known), np.int8), (known, known)), shape=(len(first), len(first))
        )
    else:
        concepts = sparse.csr_array(labels[first].astype(np.int32))
        relation = ((concepts @ concepts.T) > 0).astype(np.int8).tocsr()
    relation.sort_indices()
    return LabelGroups(group_of.reshape(-1).astype(np.int32), relation, sizes)
