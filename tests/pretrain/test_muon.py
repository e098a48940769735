"""Muon: steps of orthogonal matrices at constant norms, SGD for the rest."""

import copy

import numpy as np
import pytest
import torch
from small_network import SmallNetwork, settings

from ddh.images import ImageArray
from ddh.pretrain import pretrain
from ddh.pretrain.muon import (
    COEFFICIENTS,
    ITERATIONS,
    MOMENTUM,
    NORM,
    Muon,
    orthogonalize,
    scale_random_weights,
)
from ddh.pretrain.pretraining import PretrainTask


def newton_schulz(singular_values):
    """What the iteration makes of singular values, by its polynomial alone."""
    a, b, c = COEFFICIENTS
    s = singular_values / np.linalg.norm(singular_values)
    for _ in range(ITERATIONS):
        s = a * s + b * s**3 + c * s**5
    return s


@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (6, 6), (1, 4), (4, 1)])
def test_singular_vectors_stay_and_singular_values_come_close_to_1(shape):
    matrices = np.random.default_rng(0).standard_normal((3, *shape))
    found = orthogonalize(torch.from_numpy(matrices)).numpy()
    for matrix, orthogonal in zip(matrices, found, strict=True):
        U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
        np.testing.assert_allclose(orthogonal, U * newton_schulz(s) @ Vt, atol=1e-9)
        assert (np.abs(newton_schulz(s) - 1) < 0.35).all()


def test_nothing_is_orthogonal_to_nothing():
    assert torch.equal(orthogonalize(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


MATRICES = 5  # of the weights below


def trained(optimiser_of, rate=0.05, steps=3):
    """Weights before and after steps along fixed gradients, which are given too."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    shapes = [(4, 3, 2, 2), (4, 3, 2, 2), (6, 4), (3, 5), (8, 1, 3, 2), (5,), (2,)]
    weights = [torch.nn.Parameter(draw(*shape)) for shape in shapes]
    before = [weight.detach().clone() for weight in weights]
    optimiser = optimiser_of(weights)
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("lr_scale", 1.0)
    gradients = []
    for _ in range(steps):
        for weight in weights:
            weight.grad = draw(*weight.shape)
        gradients.append([weight.grad.clone() for weight in weights])
        optimiser.step()
    return before, [weight.detach() for weight in weights], gradients


def test_the_steps_are_the_formula():
    scale = 2.0
    before, after, gradients = trained(
        lambda p: Muon(p[:MATRICES], p[MATRICES:], step_scale=scale, momentum=0.9), rate=0.05
    )
    for number in range(MATRICES):
        weight = before[number].flatten(1).numpy()
        norm, moving = np.linalg.norm(weight), np.zeros(weight.shape)
        for gradient in gradients:
            g = gradient[number].flatten(1).numpy()
            moving = MOMENTUM * moving + (1 - MOMENTUM) * g
            U, s, Vt = np.linalg.svd((1 - MOMENTUM) * g + MOMENTUM * moving, full_matrices=False)
            orthogonal = U * newton_schulz(s) @ Vt
            weight = weight - 0.05 * scale * norm * orthogonal / np.sqrt(len(s))
            weight *= norm / np.linalg.norm(weight)
        np.testing.assert_allclose(after[number].flatten(1).numpy(), weight, atol=1e-9)


def test_the_others_are_trained_by_sgd():
    _, after, _ = trained(lambda p: Muon(p[:MATRICES], p[MATRICES:], step_scale=1.0, momentum=0.9))
    _, expected, _ = trained(lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.9))
    for ours, theirs in zip(after[MATRICES:], expected[MATRICES:], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_norms_of_matrices_before_batch_norms_change_nothing():
    generator = torch.Generator().manual_seed(0)
    x, target = torch.randn(2, 50, 6, generator=generator, dtype=torch.float64)
    layers = [torch.nn.Linear(6, 6, bias=False), torch.nn.BatchNorm1d(6, eps=1e-12)]
    network = torch.nn.Sequential(*copy.deepcopy(layers), torch.nn.ReLU(), *layers).double()

    def outputs(scale):
        own = copy.deepcopy(network)
        scale(own)
        matrices = [p for p in own.parameters() if p.ndim > 1]
        others = [p for p in own.parameters() if p.ndim <= 1]
        optimiser = Muon(matrices, others, step_scale=1.0, momentum=0.9)
        for group in optimiser.param_groups:
            group["lr"] = 0.05
        for _ in range(5):
            optimiser.zero_grad()
            (own(x) - target).square().mean().backward()
            optimiser.step()
        return own(x)

    found = outputs(lambda network: None)
    assert not torch.allclose(found, network(x), atol=0.1)
    torch.testing.assert_close(outputs(scale_random_weights), found)


def test_random_weights_get_norms_by_their_shorter_side():
    shapes = [(4, 3, 2, 2), (9, 2, 1, 1), (3, 16), (5,)]
    weights = torch.nn.ParameterList(torch.randn(shape) for shape in shapes)
    before = [weight.detach().clone() for weight in weights]
    scale_random_weights(weights)
    for weight, old, shorter in zip(weights, before, (4, 2, 3), strict=False):
        assert weight.norm().item() == pytest.approx(NORM * shorter**0.5)
        torch.testing.assert_close(weight / weight.norm(), old / old.norm())
    assert torch.equal(weights[3], before[3])


def test_what_has_no_gradient_stays():
    weights = [torch.nn.Parameter(torch.ones(shape)) for shape in ((2, 3), (3, 3), (3,), (2,))]
    optimiser = Muon(weights[:2], weights[2:], step_scale=1.0, momentum=0.9)
    for group in optimiser.param_groups:
        group["lr"] = 0.1
    weights[0].grad, weights[2].grad = torch.rand(2, 3), torch.rand(3)
    optimiser.step()
    moved = [not torch.equal(weight.detach(), torch.ones_like(weight)) for weight in weights]
    assert moved == [True, False, True, False]
    weights[0].grad, weights[1].grad = None, torch.rand(3, 3)
    first = weights[0].detach().clone()
    optimiser.step()
    assert torch.equal(weights[0], first)
    assert not torch.equal(weights[1], torch.ones(3, 3))


def test_the_order_of_channels_in_memory_changes_nothing():
    def moved(memory_format):
        generator = torch.Generator().manual_seed(0)
        weights = []
        for shape in ((8, 4, 3, 3), (8, 8, 1, 1), (8, 8, 3, 3)):
            start, gradient = torch.randn(2, *shape, generator=generator)
            weight = torch.nn.Parameter(start.contiguous(memory_format=memory_format))
            weight.grad = gradient.contiguous(memory_format=memory_format)
            weights.append(weight)
        optimiser = Muon(weights, [], step_scale=1.0, momentum=0.9)
        optimiser.param_groups[0]["lr"] = 0.1
        for _ in range(2):
            optimiser.step()
        return weights

    contiguous, last = (moved(f) for f in (torch.contiguous_format, torch.channels_last))
    for a, b in zip(contiguous, last, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("origin", ["random", "trained"])
def test_a_run_with_it_keeps_the_norms_and_turns_the_matrices(monkeypatch, origin):
    made = []
    optimiser = PretrainTask.optimiser
    monkeypatch.setattr(
        PretrainTask, "optimiser", lambda task: made.append(optimiser(task)) or made[-1]
    )
    pictures = ImageArray(np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), np.uint8))
    network = SmallNetwork()
    network.origin = origin
    before = copy.deepcopy(network.state_dict())
    plan = settings(epochs=2, batch_size=20, muon_step=0.05)
    done = pretrain(network, pictures, plan, device="cpu")
    (muon,) = made
    matrices = muon.param_groups[0]["params"]
    assert {p.ndim for p in matrices} == {2, 4}
    for weight in matrices:
        torch.testing.assert_close(weight.norm(), muon.state[weight]["norm"], rtol=1e-3, atol=0)
    learned = next(p for p in matrices if p.shape == before["layers.0.weight"].shape)
    norm = NORM * 16**0.5 if origin == "random" else before["layers.0.weight"].norm()
    assert learned.norm().item() == pytest.approx(float(norm), rel=1e-3)
    after = done.backbone.state_dict()
    assert not torch.equal(before["layers.0.weight"], after["layers.0.weight"])
    # the peak of the schedule is a step of 5 % of the norm
    assert muon.param_groups[0]["lr_scale"] * 0.2 * 20 / 256 == pytest.approx(0.05)
