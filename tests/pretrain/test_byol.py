"""BYOL: its loss, its gradients and its moving average."""

import copy

import pytest
import torch
from small_network import SmallNetwork, generator, settings

from ddh.pretrain.byol import BYOL


def test_the_loss_is_the_formula():
    objective = BYOL(SmallNetwork(), settings(epochs=1), 6).double()
    for module in objective.modules():
        module.training = True
    a, b = (torch.randn(6, 3, 8, 8, dtype=torch.float64, generator=generator(s)) for s in (0, 1))
    views = torch.cat([a, b])
    online = objective.predictor(objective.projector(objective.backbone(views)))
    target = objective.target_projector(objective.target_backbone(views))
    expected = 0.0
    for i in range(6):
        for p, t in ((online[i], target[i + 6]), (online[i + 6], target[i])):
            expected += 2 - 2 * float((p @ t / (p.norm() * t.norm())).detach())
    # The loss leaves the device in float32.
    assert objective(a, b, torch.arange(6)).item() == pytest.approx(expected / 6, abs=1e-5)


def test_no_gradient_reaches_the_target():
    objective = BYOL(SmallNetwork(), settings(epochs=1), 6)
    objective(torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8), torch.arange(4)).backward()
    assert all(p.grad is None for p in objective.target_backbone.parameters())
    assert all(p.grad is not None for p in objective.backbone.parameters())


@pytest.mark.parametrize(
    ("changes", "progress", "tau"),
    [({}, 0.0, 0.99), ({}, 0.5, 0.995), ({}, 1.0, 1.0), ({"target_momentum": 0.9}, 0.5, 0.95)],
)
def test_the_target_follows(changes, progress, tau):
    objective = BYOL(SmallNetwork(), settings(epochs=1, **changes), 6)
    before = copy.deepcopy(objective.target_backbone)
    with torch.no_grad():
        for parameter in objective.backbone.parameters():
            parameter.add_(1.0)
    objective.after_step(progress)
    for now, old in zip(objective.result.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(now, tau * old + (1 - tau) * (old + 1.0))
