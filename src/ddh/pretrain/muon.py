"""Jordan et al. (2024), "Muon: an optimizer for hidden layers in neural networks".

The momentum of a weight matrix is made nearly orthogonal, so that rare directions of its gradient
move as far as common ones. Convolutions are matrices of shape (out, height x width x in), which is
how channels-last weights lie in memory.

Batch norms make a network independent of the norm of such a matrix, so a matrix keeps the norm that
it starts with, and the rate is the length of a step relative to it. Biases and batch norms are
trained by SGD.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

NORM = 0.6  # of a matrix after SGD with weight decay, over the square root of its shorter side
MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the published polynomial
TINY = 1e-12


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`, whose rate is `step_scale` times that of the others; SGD for these."""

    def __init__(
        self,
        matrices: list[nn.Parameter],
        others: list[nn.Parameter],
        *,
        step_scale: float,
        momentum: float,
    ) -> None:
        groups: list[dict[str, Any]] = [
            {"params": matrices, "lr_scale": step_scale},
            {"params": others, "momentum": momentum},
        ]
        super().__init__(groups, {"lr": 0.0})
        self._batches: MatrixBatches | None = None
        for parameter in matrices:
            self.state[parameter]["norm"] = parameter.detach().norm()
        for parameter in [*matrices, *others]:
            self.state[parameter]["momentum"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move all parameters that have a gradient."""
        matrices, others = self.param_groups
        if learning := _learning(matrices):
            self._move_matrices(learning, matrices["lr"])
        if learning := _learning(others):
            moving = self._of("momentum", learning)
            torch._foreach_mul_(moving, others["momentum"])
            torch._foreach_add_(moving, _gradients(learning))
            torch._foreach_add_(learning, moving, alpha=-others["lr"])

    def _move_matrices(self, weights: list[Tensor], rate: float) -> None:
        """Step along Nesterov's momentum made orthogonal, at constant norms."""
        gradients, moving = _gradients(weights), self._of("momentum", weights)
        torch._foreach_lerp_(moving, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, moving, MOMENTUM)
        shapes = [weight.shape for weight in weights]
        if self._batches is None or self._batches.shapes != shapes:
            self._batches = MatrixBatches(weights)
        steps = self._batches.orthogonal(ahead)
        norms = self._of("norm", weights)
        torch._foreach_mul_(steps, norms)
        torch._foreach_add_(weights, steps, alpha=-rate)
        moved = torch._foreach_norm(weights)
        torch._foreach_clamp_min_(moved, TINY)
        torch._foreach_mul_(weights, torch._foreach_div(norms, moved))

    def _of(self, name: str, parameters: list[Tensor]) -> list[Tensor]:
        return [self.state[parameter][name] for parameter in parameters]


class MatrixBatches:
    """Buffers that hold tensors of given shapes as matrices: one batch (n, rows, columns) for all
    with the same number of rows.

    Tall matrices are transposed and rows padded with zeros, which change nothing. A GPU then gets a
    few large operations; one by one, a network's matrices would keep it waiting.
    """

    def __init__(self, like: Sequence[Tensor]) -> None:
        self.shapes = [tensor.shape for tensor in like]
        sides = [sorted((len(tensor), tensor[0].numel())) for tensor in like]
        self.batches: list[Tensor] = []
        views: dict[int, Tensor] = {}
        for rows in sorted({shorter for shorter, _ in sides}):
            members = [number for number, side in enumerate(sides) if side[0] == rows]
            columns = max(sides[number][1] for number in members)
            self.batches.append(like[0].new_zeros(len(members), rows, columns))
            for matrix, number in zip(self.batches[-1], members, strict=True):
                views[number] = _view(matrix, like[number])
        self.views = [views[number] for number in range(len(like))]

    def orthogonal(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors made orthogonal, with norms near 1; valid until the next call."""
        torch._foreach_copy_(self.views, list(tensors))
        for batch in self.batches:
            torch.div(orthogonalize(batch), batch.shape[1] ** 0.5, out=batch)
        return self.views


@torch.no_grad()
def scale_random_weights(network: nn.Module) -> None:
    """Give random matrices the norms that SGD with weight decay would lead to, in place.

    Steps of SGD do not grow with the weights, so it can train such a network further.
    """
    for weight in network.parameters():
        if weight.ndim > 1:
            shorter = min(len(weight), weight[0].numel())
            weight.mul_(NORM * shorter**0.5 / weight.norm().clamp(min=TINY))


def orthogonalize(matrices: Tensor) -> Tensor:
    """Singular values of matrices (n, rows, columns) moved close to 1, by Newton-Schulz iteration.

    Those above 0.3 % of the norm of their matrix end between 0.68 and 1.21, which is near enough.
    Matrices with fewer rows than columns take less time. GPUs do it in bfloat16.
    """
    a, b, c = COEFFICIENTS
    X = matrices.bfloat16() if matrices.is_cuda else matrices
    X = X / X.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)
    for _ in range(ITERATIONS):
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.to(matrices.dtype)


def _view(matrix: Tensor, like: Tensor) -> Tensor:
    """A padded matrix of a batch as a tensor with the shape of `like`, which shares its memory."""
    rows, columns = len(like), like[0].numel()
    part = matrix[:, :columns] if rows <= columns else matrix[:, :rows].mT
    return part.unflatten(1, (*like.shape[2:], like.shape[1])).movedim(-1, 1)


def _learning(group: dict[str, Any]) -> list[Tensor]:
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def _gradients(learning: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in learning if parameter.grad is not None]
