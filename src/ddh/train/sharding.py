"""The objective (2.3) over processes that each hold some rows: exact, whatever their number.

Each process holds a contiguous shard of the images: their features, their rows of the memory U
and their rows of the graph S. A batch is the same as for one process; each process does the rows
of it that it holds. What all pairs need of the other shards is small:

    G and m             sums over the shards: L^2 + L numbers
    sum_{j in S_i} u_j  S is symmetric, so a process finds in its own rows of S which of its
                        images j are positives of i; the shards' sums are added up: b L numbers

so no row of U ever travels, and traffic does not grow with N or with the number of positives.
`rows` are places within the shard here, not numbers of images.
"""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy import sparse
from torch import Tensor, nn

from ddh.neighbours import LabelGroups
from ddh.objective import GroupPositives, PairMemory, Positives
from ddh.objective.positives import SparseRows
from ddh.train.distributed import Shard


class ShardedMemory(PairMemory):
    """The rows of U of one shard, with G and m over all shards.

    Memory: N / processes x L values, and L x L in float64; an update moves L^2 + L numbers.
    """

    def __init__(self, shard: Shard, *arguments: Any, **options: Any) -> None:
        self.shard = shard
        super().__init__(*arguments, **options)

    def __len__(self) -> int:
        return self.shard.total

    def refresh(self, block: int = 65536) -> None:
        super().refresh(block)
        for moments in self._moments():
            self.shard.processes.all_reduce_(moments.total, moments.gram)

    def update(self, rows: Tensor, outputs: Tensor) -> None:
        fresh = outputs.detach().to(self.outputs.dtype)
        stale = self.outputs[rows]
        for moments in self._moments():
            total, gram = moments.total.clone(), moments.gram.clone()
            moments.clear()  # for the change, which is what the processes add up
            moments.add(rows, stale, sign=-1)
            moments.add(rows, fresh, sign=1)
            self.shard.processes.all_reduce_(moments.total, moments.gram)
            moments.total += total
            moments.gram += gram
        self.outputs[rows] = fresh


class ShardedGraph(Positives):
    """The rows of S of one shard, read as columns: for any image, its positives in the shard.

    Memory: 4 bytes for each entry of these rows, 8 bytes for each of all N images.
    """

    def __init__(self, rows: sparse.csr_array, shard: Shard, device: torch.device | str) -> None:
        self.shard = shard
        self.degrees = torch.from_numpy(np.diff(rows.indptr).astype(np.int64)).to(device)
        self.positives = SparseRows(rows.T.tocsr(), device)

    def counts(self, rows: Tensor) -> Tensor:
        return self.degrees[rows]

    def sums(self, rows: Tensor, memory: PairMemory) -> Tensor:
        images, mine = self.shard.images(rows)
        sums = self.positives.sum(images, memory.outputs)
        self.shard.processes.all_reduce_(sums)
        return sums[mine]

    def squares(self, rows: Tensor, outputs: Tensor, memory: PairMemory) -> Tensor:
        """Values and slopes are added up over the shards; a plane through them is what autograd
        needs, for (z . u / L - 1)^2 is asked for at this z only."""
        images, mine = self.shard.images(rows)
        z, _ = self.shard.processes.gather(outputs.detach())
        owner, columns = self.positives.entries(images)
        partners = memory.outputs[columns].to(z.dtype)
        off = (z[owner] * partners).sum(dim=1) / memory.bits - 1
        values = z.new_zeros(len(z)).index_add(0, owner, off.square())
        slopes = torch.zeros_like(z).index_add(0, owner, off[:, None] * partners)
        slopes *= 2 / memory.bits
        self.shard.processes.all_reduce_(values, slopes)
        return values[mine] + (slopes[mine] * (outputs - outputs.detach())).sum(dim=1)

    def within(self, rows: Tensor) -> Tensor:
        """Similarity among the images of the whole batch."""
        images, mine = self.shard.images(rows)
        owner, columns = self.positives.entries(images)
        place = torch.full_like(self.degrees, -1)
        place[rows] = torch.arange(mine.start, mine.stop, device=rows.device)
        met = place[columns] >= 0
        similar = torch.zeros(len(images), len(images), device=rows.device)
        similar[owner[met], place[columns[met]]] = 1
        self.shard.processes.all_reduce_(similar)
        return similar > 0


class ShardedGroups(GroupPositives):
    """Similarity between groups of images with equal labels; the memory adds up sums by group."""

    def __init__(self, groups: LabelGroups, shard: Shard, device: torch.device | str) -> None:
        super().__init__(groups, device)
        assert self.group_of is not None
        self.shard, self.everyone = shard, self.group_of
        self.group_of = self.group_of[shard.rows]
        self.with_itself = self.with_itself[shard.rows]

    def within(self, rows: Tensor) -> Tensor:
        """Similarity among the images of the whole batch."""
        images, _ = self.shard.images(rows)
        return self.among(self.everyone[images])


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm by the statistics of the whole batch (torch's own cannot do that on a CPU)."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        count = wide.new_full((1,), input.numel() / input.shape[1])
        sums = torch.cat([wide.sum(dim=(0, 2, 3)), wide.square().sum(dim=(0, 2, 3)), count])
        totals = _Sum.apply(sums.double())  # type: ignore[no-untyped-call]
        n = totals[-1].detach()
        mean, square = (totals[:-1] / n).chunk(2)
        variance = (square - mean.square()).clamp(min=0)
        self._remember(mean.detach(), variance.detach() * n / (n - 1).clamp(min=1))
        scale = (variance + self.eps).rsqrt()
        shape = (1, -1, 1, 1)
        normal = (wide - mean.to(wide.dtype).view(shape)) * scale.to(wide.dtype).view(shape)
        return (normal * self.weight.view(shape) + self.bias.view(shape)).to(input.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        rate = self.momentum or 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_(variance.to(self.running_var.dtype), rate)


class _Sum(torch.autograd.Function):
    """Sum over the processes, with a gradient: each one's share in the sums of all."""

    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total


def share_batch_norms(network: nn.Module) -> None:
    """Let batch norms that learn from batches see the whole batch."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d and module.training:
            module.__class__ = SharedBatchNorm
