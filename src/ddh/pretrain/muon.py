"""Jordan et al. (2024), "Muon: an optimizer for hidden layers in neural networks".

The momentum of a weight matrix is made nearly orthogonal, so that rare directions of its gradient
move as far as common ones. Convolutions are matrices of shape (out, height x width x in), which is
how channels-last weights lie in memory.

Batch norms make a network independent of the length of such a matrix, so a matrix keeps the norm
that it starts with, and the rate is the length of a step relative to it. Biases and batch norms are
trained by SGD.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

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
        for parameter in matrices:
            self.state[parameter]["norm"] = parameter.detach().norm()
        for parameter in [*matrices, *others]:
            self.state[parameter]["momentum"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move all parameters that have a gradient."""
        matrices, others = self.param_groups
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for weight in _learning(matrices):
            by_shape.setdefault(weight.shape, []).append(weight)
        for weights in by_shape.values():
            self._turn(weights, matrices["lr"])
        if learning := _learning(others):
            moving = self._of("momentum", learning)
            torch._foreach_mul_(moving, others["momentum"])
            torch._foreach_add_(moving, _gradients(learning))
            torch._foreach_add_(learning, moving, alpha=-others["lr"])

    def _turn(self, weights: list[Tensor], rate: float) -> None:
        """Step along Nesterov's momentum made orthogonal, for weights of one shape and at constant
        norms."""
        gradients, moving = _gradients(weights), self._of("momentum", weights)
        torch._foreach_lerp_(moving, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, moving, MOMENTUM)
        steps = orthogonalize(_stacked(ahead))
        steps /= min(steps.shape[1:]) ** 0.5  # of norm 1, nearly
        norms = torch.stack(self._of("norm", weights))[:, None, None]
        moved = _stacked(weights) - rate * norms * steps
        moved *= norms / moved.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)
        for weight, matrix in zip(weights, moved, strict=True):
            last = weight.movedim(1, -1)
            last.copy_(matrix.view(last.shape))

    def _of(self, name: str, parameters: list[Tensor]) -> list[Tensor]:
        return [self.state[parameter][name] for parameter in parameters]


def orthogonalize(matrices: Tensor) -> Tensor:
    """Singular values of matrices (n, rows, columns) moved close to 1, by Newton-Schulz iteration.

    Those above 0.3 % of the norm of their matrix end between 0.68 and 1.21, which is near enough.
    GPUs do it in bfloat16.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    X = matrices.bfloat16() if matrices.is_cuda else matrices
    X = X.mT if tall else X
    X = X / X.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)
    for _ in range(ITERATIONS):
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return (X.mT if tall else X).to(matrices.dtype)


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Weights of one shape as matrices (n, rows, columns)."""
    return torch.stack([tensor.movedim(1, -1).flatten(1) for tensor in tensors])


def _learning(group: dict[str, Any]) -> list[Tensor]:
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def _gradients(learning: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in learning if parameter.grad is not None]
