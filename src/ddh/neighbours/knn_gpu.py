"""Exact neighbour lists on a GPU: the steps of `knn`, all of them on the device, by torch."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.progress import track
from ddh.neighbours.cosine import CosineSpace, pieces
from ddh.neighbours.products import summing_error

# Numbers in a block of the product (float16), and in a piece of float64 work.
BLOCK = 1 << 28
PIECE = 1 << 26


class DeviceRows:
    """Rows on a device: as they are, and at length 1 in float16 for the product."""

    def __init__(self, space: CosineSpace, index: NDArray[np.int32], device: Any) -> None:
        exact_in_single = space.features.dtype in (np.float16, np.float32, np.uint8, np.int8)
        kind = np.float32 if exact_in_single else np.float64
        shape = (len(index), space.dimensions)
        try:
            self.device = torch.device(device)
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError, TypeError) as error:
            raise InputError(
                f"the device {device!r} cannot be used here ({error}); use 'cpu'"
            ) from error
        self.values = torch.empty(shape, device=device, dtype=getattr(torch, kind.__name__))
        self.units = torch.empty(shape, device=device, dtype=torch.float16)
        mean = np.zeros(space.dimensions) if space.mean is None else space.mean
        self.mean = torch.from_numpy(mean).to(device)
        self.squares = torch.from_numpy(space.squares[index]).to(device)
        off = 0.0
        for part in pieces(len(index), space.dimensions):
            rows = np.asarray(space.features[index[part]], kind)
            self.values[part] = torch.from_numpy(rows).to(device)
            lengths = self.squares[part].sqrt()
            exact = self.rows(part) / torch.where(lengths > 0, lengths, 1.0)[:, None]
            self.units[part] = exact.half()
            off = max(off, float((self.units[part].double() - exact).norm(dim=1).max()))
        # |a.b - a'.b'| <= |a - a'| |b| + |a'| |b - b'|; sums in float32, then some roundings
        self.error = 2 * off + off**2 + 2 * summing_error(space.dimensions) + 2.0**-9

    def rows(self, which: Any) -> torch.Tensor:
        return self.values[which].double() - self.mean

    def lists(self, k: int) -> NDArray[np.int32]:
        """Lists (rows, k) of the exact order of the cosine, ties by the smaller row."""
        images = len(self.values)
        lists = torch.empty((images, k), dtype=torch.int32, device=self.device)
        step = max(1, BLOCK // images)
        matmul = torch.backends.cuda.matmul
        before = matmul.allow_fp16_reduced_precision_reduction
        # float16 products are summed in float32, as the bound on their error assumes
        matmul.allow_fp16_reduced_precision_reduction = False
        try:
            blocks = torch.arange(images, device=self.device).split(step)
            for rows in track(blocks, "Neighbours", unit="block"):
                lists[rows] = self._lists_of(rows, k)
        finally:
            matmul.allow_fp16_reduced_precision_reduction = before
        return np.asarray(lists.cpu().numpy())

    def _lists_of(self, rows: torch.Tensor, k: int) -> torch.Tensor:
        images = len(self.values)
        room = min(4 * k + 32, images - 1)
        cosines = self.units[rows] @ self.units.T
        cosines[torch.arange(len(rows), device=self.device), rows] = -torch.inf
        values, near = cosines.topk(room, dim=1)
        cut = values[:, k - 1 : k].float() - 2 * self.error
        certain = (values[:, -1].float() < cut[:, 0]) | (room == images - 1)
        # in order of their numbers, so that a stable sort gives ties to the smaller one
        near, order = near.sort(dim=1)
        possible = (values.float() >= cut).gather(1, order)
        keys = self._keys(rows, near).masked_fill(~possible, -torch.inf)
        best = keys.sort(dim=1, descending=True, stable=True).indices[:, :k]
        lists = near.gather(1, best).int()
        for place in (~certain).nonzero()[:, 0].tolist():
            lists[place] = self._list_among_all(rows[place : place + 1], k)
        return lists

    def _keys(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Order of candidates (rows, m) of each row by cosine, as `CosineSpace.order_keys`."""
        parts = []
        step = max(1, PIECE // (columns.shape[1] * len(self.mean)))
        for left, near in zip(rows.split(step), columns.split(step), strict=True):
            dots = (self.rows(left)[:, None, :] * self.rows(near)).sum(dim=2)
            squares = self.squares[near]
            parts.append(dots * dots.abs() / torch.where(squares > 0, squares, 1.0))
        return torch.cat(parts)

    def _list_among_all(self, row: torch.Tensor, k: int) -> torch.Tensor:
        """One list without a short list before it."""
        everyone = torch.arange(len(self.values), device=self.device)
        step = max(1, PIECE // len(self.mean))
        keys = torch.cat([self._keys(row, part[None])[0] for part in torch.split(everyone, step)])
        keys[row] = -torch.inf
        return keys.sort(descending=True, stable=True).indices[:k].int()
