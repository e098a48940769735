"""Who is similar to whom (s_ij = +1), in the two forms that the objective can read cheaply: the
sparse neighbourhood graph S of the paper's 2.1, and groups of images with the same labels. Nothing
of size N x N or of the number of similar pairs is ever held for groups."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from ddh.neighbours import LabelGroups
from ddh.objective.memory import PairMemory


class SparseRows:
    """Rows of a 0/1 CSR matrix on the device: 4 bytes an entry and 8 a row."""

    def __init__(self, matrix: sparse.csr_array, device: torch.device | str) -> None:
        matrix = sparse.csr_array(matrix)
        matrix.sort_indices()
        self.starts = torch.from_numpy(matrix.indptr.astype(np.int64)).to(device)
        self.columns = torch.from_numpy(matrix.indices.astype(np.int32)).to(device)

    def counts(self, rows: Tensor) -> Tensor:
        return self.starts[rows + 1] - self.starts[rows]

    def entries(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """All entries of these rows as (position of the row in `rows`, column)."""
        counts = self.counts(rows)
        ends = counts.cumsum(0)
        owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
        shift = torch.repeat_interleave(self.starts[rows] - (ends - counts), counts)
        place = torch.arange(len(owner), device=rows.device) + shift
        return owner, self.columns[place].long()

    def sum(self, rows: Tensor, table: Tensor) -> Tensor:
        """For each row, the sum of the rows of `table` that its entries name."""
        counts = self.counts(rows)
        _, columns = self.entries(rows)
        return embedding_bag(columns, table, counts.cumsum(0) - counts, mode="sum")


class Positives(ABC):
    """For a batch of images: how many positives each has, and sums over them. Never i itself."""

    #: The group of each image, where the memory must keep sums by group.
    group_of: Tensor | None = None

    @abstractmethod
    def counts(self, rows: Tensor) -> Tensor:
        """|S_i| for each row."""

    @abstractmethod
    def sums(self, rows: Tensor, memory: PairMemory) -> Tensor:
        """sum_{j in S_i} u_j, (b, L)."""

    @abstractmethod
    def squares(self, rows: Tensor, outputs: Tensor, memory: PairMemory) -> Tensor:
        """sum_{j in S_i} (z_i . u_j / L - 1)^2, (b,), differentiable in z = outputs."""

    @abstractmethod
    def within(self, rows: Tensor) -> Tensor:
        """Similarity among the rows of a batch, bool (b, b) with an empty diagonal."""


class GraphPositives(Positives):
    """The neighbourhood graph S (symmetric, empty diagonal)."""

    def __init__(self, graph: sparse.csr_array, device: torch.device | str = "cpu") -> None:
        self.graph = SparseRows(graph, device)
        self._place = torch.full((graph.shape[0],), -1, dtype=torch.int64, device=device)

    def counts(self, rows: Tensor) -> Tensor:
        return self.graph.counts(rows)

    def sums(self, rows: Tensor, memory: PairMemory) -> Tensor:
        return self.graph.sum(rows, memory.outputs)

    def squares(self, rows: Tensor, outputs: Tensor, memory: PairMemory) -> Tensor:
        owner, columns = self.graph.entries(rows)
        products = (outputs[owner] * memory.outputs[columns]).sum(dim=1) / memory.bits
        nothing = torch.zeros(len(rows), dtype=products.dtype, device=products.device)
        return nothing.index_add(0, owner, (products - 1).square())

    def within(self, rows: Tensor) -> Tensor:
        owner, columns = self.graph.entries(rows)
        self._place[rows] = torch.arange(len(rows), device=rows.device)
        place = self._place[columns]
        self._place[rows] = -1
        similar = torch.zeros(len(rows), len(rows), dtype=torch.bool, device=rows.device)
        similar[owner[place >= 0], place[place >= 0]] = True
        return similar


class GroupPositives(Positives):
    """Similarity between groups of images with equal labels ("using the labels", 3.2).

    sum_{j in S_i} u_j is the sum of m over the groups related to i's, less u_i where a group is
    related to itself. The memory keeps m by group and, for a weight alpha other than 1, G by
    group: groups x L^2 values.
    """

    def __init__(self, groups: LabelGroups, device: torch.device | str = "cpu") -> None:
        self.relation = SparseRows(groups.relation, device)
        self.group_of = torch.from_numpy(groups.group_of.astype(np.int64)).to(device)
        sizes = torch.bincount(self.group_of, minlength=groups.relation.shape[0])
        self.sizes = sizes.to(torch.float64)
        to_itself = torch.from_numpy(groups.relation.diagonal().astype(bool)).to(device)
        self.with_itself = to_itself[self.group_of]

    def counts(self, rows: Tensor) -> Tensor:
        related = self.relation.sum(self._groups(rows), self.sizes[:, None])[:, 0]
        return related.round().long() - self.with_itself[rows].long()

    def _groups(self, rows: Tensor) -> Tensor:
        assert self.group_of is not None
        return self.group_of[rows]

    def sums(self, rows: Tensor, memory: PairMemory) -> Tensor:
        assert memory.groups is not None
        related = self.relation.sum(self._groups(rows), memory.groups.total)
        own = memory.outputs[rows] * self.with_itself[rows, None]
        return (related - own).to(memory.outputs.dtype)

    def squares(self, rows: Tensor, outputs: Tensor, memory: PairMemory) -> Tensor:
        """z^T G_i z / L^2 - 2 z . m_i / L + |S_i|, with G_i and m_i over the positives of i."""
        assert memory.groups is not None
        bits = memory.bits
        grams = self.relation.sum(self._groups(rows), memory.groups.gram.flatten(1))
        grams = grams.view(-1, bits, bits).to(outputs.dtype)
        own = memory.outputs[rows]
        quadratic = torch.einsum("bk,bkl,bl->b", outputs, grams, outputs)
        quadratic = quadratic - self.with_itself[rows] * (outputs * own).sum(dim=1).square()
        linear = (outputs * self.sums(rows, memory)).sum(dim=1)
        return quadratic / bits**2 - 2 * linear / bits + self.counts(rows)

    def within(self, rows: Tensor) -> Tensor:
        return self.among(self._groups(rows))

    def among(self, members: Tensor) -> Tensor:
        """Similarity among images of these groups, bool with an empty diagonal."""
        groups, position = members.unique(return_inverse=True)
        owner, columns = self.relation.entries(groups)
        table = torch.zeros(len(groups), len(self.sizes), dtype=torch.bool, device=members.device)
        table[owner, columns] = True
        return table[position][:, members].fill_diagonal_(False)
