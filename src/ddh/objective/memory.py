"""The memory of codes: the last output u_j of every image, and what all pairs need of it.

With G = sum_j u_j u_j^T (L x L) and m = sum_j u_j, the pairwise loss of one image against all N
others needs neither the N outputs nor N products (see `ddh.objective.loss`). Memory: N x L
values of the network's type, and L x L in float64.
"""

import torch
from torch import Tensor

from ddh._core.errors import InputError

GRAM_LIMIT = 4 << 30
BLOCK_ROWS = 1024


class Moments:
    """m = sum u and (where wanted) G = sum u u^T of each group of rows, in float64."""

    def __init__(
        self, bits: int, group_of: Tensor, *, grams: bool, groups: int | None = None
    ) -> None:
        self.group_of = group_of
        if groups is None:
            groups = int(group_of.max()) + 1 if len(group_of) else 1
        if grams and groups * bits**2 * 8 > GRAM_LIMIT:
            raise InputError(
                f"{groups} groups of labels with {bits} bits need more than "
                f"{GRAM_LIMIT >> 30} GB for a positive weight other than 1; use alpha=1"
            )
        self.total = torch.zeros(groups, bits, dtype=torch.float64, device=group_of.device)
        self.gram = torch.zeros(
            groups if grams else 0, bits, bits, dtype=torch.float64, device=group_of.device
        )

    def clear(self) -> None:
        self.total.zero_()
        self.gram.zero_()

    def add(self, rows: Tensor, outputs: Tensor, *, sign: int) -> None:
        """Add (sign +1) or take away (-1) the part of these rows: O(b L^2)."""
        wide = outputs.to(torch.float64)
        if len(self.total) == 1:
            self.total[0].add_(wide.sum(dim=0), alpha=sign)
            if len(self.gram):
                self.gram[0].addmm_(wide.T, wide, alpha=sign)
            return
        group = self.group_of[rows]
        self.total.index_add_(0, group, wide, alpha=sign)
        if len(self.gram):
            for part, members in zip(wide.split(BLOCK_ROWS), group.split(BLOCK_ROWS), strict=True):
                self.gram.index_add_(0, members, part[:, :, None] * part[:, None, :], alpha=sign)


class PairMemory:
    """U with its moments G and m, kept up to date as rows change.

    An update costs O(b L^2) for b rows, whatever N is. Rounding errors of many updates are
    removed by `refresh`, which sums anew; the training loop calls it once an epoch. With
    `group_of` the moments are kept for each group of images too (the labelled variant), m alone
    or, with `group_grams`, G as well.
    """

    def __init__(
        self,
        outputs: Tensor,
        group_of: Tensor | None = None,
        *,
        group_grams: bool = False,
        group_count: int | None = None,
    ) -> None:
        self.outputs = outputs.detach().clone()
        everyone = torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device)
        self.all = Moments(self.bits, everyone, grams=True)
        self.groups = None
        if group_of is not None:
            self.groups = Moments(self.bits, group_of, grams=group_grams, groups=group_count)
        self.refresh()

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def bits(self) -> int:
        return self.outputs.shape[1]

    @property
    def gram(self) -> Tensor:
        """G = sum_j u_j u_j^T."""
        return self.all.gram[0]

    @property
    def total(self) -> Tensor:
        """m = sum_j u_j."""
        return self.all.total[0]

    def _moments(self) -> list[Moments]:
        return [self.all] if self.groups is None else [self.all, self.groups]

    def refresh(self, block: int = 65536) -> None:
        """Sum G and m from U again, in blocks of rows."""
        for moments in self._moments():
            moments.clear()
            for start in range(0, len(self.outputs), block):
                part = self.outputs[start : start + block]
                rows = torch.arange(start, start + len(part), device=part.device)
                moments.add(rows, part, sign=1)

    def update(self, rows: Tensor, outputs: Tensor) -> None:
        """Replace the stored outputs of `rows` (no row twice)."""
        fresh = outputs.detach().to(self.outputs.dtype)
        stale = self.outputs[rows]
        for moments in self._moments():
            moments.add(rows, stale, sign=-1)
            moments.add(rows, fresh, sign=1)
        self.outputs[rows] = fresh
