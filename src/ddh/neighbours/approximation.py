"""What approximate neighbours cost: recall of the lists, and how far the labels are the exact ones.

The labels of a few sampled rows are made twice by Alg. 1 (before S is made symmetric): from the
approximate lists, and from exact lists of the row and of the rows that may be among its K2.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddh.neighbours.approximate import SAMPLE, ApproximateLists, exact_rows
from ddh.neighbours.cosine import CosineSpace

LABEL_SAMPLE = 24
# Rows that may be among the K2 of a row: so many times K2, by the overlap of approximate lists.
CANDIDATES = 2
BLOCK = 1 << 20


@dataclass(frozen=True)
class Approximation:
    """How approximate lists came about, and what they and the labels from them are worth.

    `recall`: share of the true neighbours found, on `sample` rows. `label_recall`: share of the
    labels of exact lists that are there; `label_precision`: share of those there that exact
    lists give too; on `label_sample` rows.
    """

    index: str
    recall: float
    target: float
    sample: int
    label_recall: float
    label_precision: float
    label_sample: int
    seconds: dict[str, float]

    def __str__(self) -> str:
        return (
            f"approximate  {self.index}: recall {self.recall:.3f} (asked for {self.target:g}); of "
            f"the exact labels {self.label_recall:.3f} are there, {self.label_precision:.3f} of "
            f"the labels are exact ones; {sum(self.seconds.values()):.0f} s"
        )


def judge(
    space: CosineSpace, found: ApproximateLists, k2: int, target: float, *, min_overlap: int = 1
) -> Approximation:
    """The report on approximate lists. Work: about 50 K2 exact lists."""
    sample = min(LABEL_SAMPLE, len(space))
    rows = np.sort(np.random.default_rng(1).permutation(len(space))[:sample]).astype(np.int32)
    pairs = _labels_both_ways(space, found.lists, rows, k2, min_overlap)
    common = [len(made & true) for made, true in pairs]
    return Approximation(
        found.index,
        found.recall,
        target,
        found.sample,
        sum(common) / max(1, sum(len(true) for _, true in pairs)),
        sum(common) / max(1, sum(len(made) for made, _ in pairs)),
        sample,
        found.seconds,
    )


def _labels_both_ways(
    space: CosineSpace,
    lists: NDArray[np.int32],
    rows: NDArray[np.int32],
    k2: int,
    min_overlap: int,
) -> list[tuple[set[int], set[int]]]:
    """For each row the labels of the approximate lists, and of exact ones."""
    true = exact_rows(space, rows, lists.shape[1])
    possible = [
        _most_overlapping(lists, np.r_[i, mine], CANDIDATES * k2)
        for i, mine in zip(rows, true, strict=True)
    ]
    needed = np.unique(np.concatenate([*possible, rows]))
    parts = [
        exact_rows(space, needed[at : at + SAMPLE], lists.shape[1])
        for at in range(0, len(needed), SAMPLE)
    ]
    exact = dict(zip(needed.tolist(), np.concatenate(parts), strict=True))
    pairs = []
    for i, near in zip(rows.tolist(), possible, strict=True):
        among = np.union1d(near, [i]).astype(np.int32)
        right = _joined(space, i, among, {int(j): exact[int(j)] for j in among}, k2, min_overlap)
        held = _most_overlapping(lists, np.r_[i, lists[i]], CANDIDATES * k2)
        made = _joined(space, i, held, {int(j): lists[j] for j in held}, k2, min_overlap)
        pairs.append((made, right))
    return pairs


def _most_overlapping(
    lists: NDArray[np.int32], members: NDArray[np.integer], count: int
) -> NDArray[np.int32]:
    """The rows whose lists have most of these members, each a member of its own list."""
    wanted = np.zeros(len(lists), bool)
    wanted[members] = True
    overlaps = np.empty(len(lists), np.int32)
    for start in range(0, len(lists), BLOCK):
        block = slice(start, start + BLOCK)
        overlaps[block] = wanted[lists[block]].sum(axis=1) + wanted[block]
    count = min(count, len(lists))
    best = np.argpartition(-overlaps, count - 1)[:count]
    return best[overlaps[best] > 0].astype(np.int32)


def _joined(
    space: CosineSpace,
    i: int,
    rows: NDArray[np.int32],
    lists: dict[int, NDArray[np.int32]],
    k2: int,
    min_overlap: int,
) -> set[int]:
    """S_i: the lists of the K2 rows of largest overlap with row i; ties as everywhere else."""
    members = {j: {j, *lists[j].tolist()} for j in rows.tolist()}
    overlaps = np.array([len(members[i] & members[j]) for j in rows.tolist()])
    keys = space.order_keys(np.full(len(rows), i, np.int32), rows)
    order = np.lexsort((rows, -keys, -overlaps))[:k2]
    chosen = [int(rows[place]) for place in order if overlaps[place] >= min_overlap]
    return set().union(*(members[j] for j in chosen)) - {i}
