"""The RBMs of semantic hashing: energies, conditionals and CD-1 on sizes that can be enumerated."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ddh.hashers.semantic_hashing import RBM, NoisyAutoencoder, train_rbm, unrolled

CPU = torch.device("cpu")


def small_rbm(*, gaussian: bool) -> RBM:
    torch.manual_seed(0)
    rbm = RBM(4, 3, gaussian=gaussian, device=CPU)
    rbm.W, rbm.a, rbm.c = (torch.randn_like(part).double() for part in (rbm.W, rbm.a, rbm.c))
    return rbm


def energy(rbm: RBM, v: Tensor, h: Tensor) -> Tensor:
    """E(v, h) of each row."""
    own = 0.5 * (v - rbm.a).square().sum(dim=1) if rbm.gaussian else -(v @ rbm.a)
    return own - h @ rbm.c - ((v @ rbm.W) * h).sum(dim=1)


def free_energy(rbm: RBM, v: Tensor) -> Tensor:
    """F(v) = -log sum_h e^-E(v, h) of each row."""
    own = 0.5 * (v - rbm.a).square().sum(dim=1) if rbm.gaussian else -(v @ rbm.a)
    return own - nn.functional.softplus(rbm.c + v @ rbm.W).sum(dim=1)


def all_states(units: int) -> Tensor:
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=units)), dtype=torch.float64)


def visible_rows(gaussian: bool) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if gaussian:
        return torch.randn(5, 4, dtype=torch.float64, generator=generator)
    return all_states(4)


@pytest.fixture(autouse=True)
def _same_random_numbers():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("gaussian", [True, False])
def test_free_energy_sums_over_all_hidden_states(gaussian: bool) -> None:
    rbm, hidden = small_rbm(gaussian=gaussian), all_states(3)
    for v in visible_rows(gaussian):
        energies = energy(rbm, v.expand(len(hidden), -1), hidden)
        expected = -torch.logsumexp(-energies, dim=0)
        assert torch.allclose(free_energy(rbm, v[None])[0], expected)


@pytest.mark.parametrize("gaussian", [True, False])
def test_hidden_probabilities_follow_from_the_energy(gaussian: bool) -> None:
    rbm, hidden = small_rbm(gaussian=gaussian), all_states(3)
    for v in visible_rows(gaussian):
        weights = torch.softmax(-energy(rbm, v.expand(len(hidden), -1), hidden), dim=0)
        assert torch.allclose(rbm.hidden(v[None])[0], weights @ hidden)


def test_binary_visible_probabilities_follow_from_the_energy() -> None:
    rbm, visible = small_rbm(gaussian=False), all_states(4)
    for h in all_states(3):
        weights = torch.softmax(-energy(rbm, visible, h.expand(len(visible), -1)), dim=0)
        assert torch.allclose(rbm.visible(h[None])[0], weights @ visible)


def test_gaussian_visible_mean_is_where_the_energy_is_least() -> None:
    rbm = small_rbm(gaussian=True)
    for h in all_states(3):
        v = rbm.visible(h[None]).requires_grad_()
        (gradient,) = torch.autograd.grad(energy(rbm, v, h[None]).sum(), v)
        assert torch.allclose(gradient, torch.zeros_like(v), atol=1e-12)


def test_free_energy_gradient_is_the_positive_phase() -> None:
    """dF/dW = -v h^T with h = P(h | v): what CD-1 adds for the data."""
    rbm = small_rbm(gaussian=False)
    v = visible_rows(False)
    W = rbm.W.clone().requires_grad_()
    rbm.W = W
    (gradient,) = torch.autograd.grad(free_energy(rbm, v).sum(), W)
    assert torch.allclose(gradient, -v.T @ rbm.hidden(v))


@pytest.mark.parametrize("gaussian", [True, False])
def test_contrastive_divergence_lowers_the_reconstruction_error(gaussian: bool) -> None:
    patterns = torch.tensor([[1.0, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1], [1, 0, 1, 0, 1, 0]])
    v = patterns[torch.randint(3, (300,))]
    if gaussian:
        v = (v - v.mean(dim=0)) / v.std(dim=0)
    rbm = RBM(6, 8, gaussian=gaussian, device=CPU)

    def error() -> float:
        return float((v - rbm.visible(rbm.hidden(v))).square().mean())

    before = error()
    rate = 0.01 if gaussian else 0.1
    train_rbm(rbm, v, epochs=30, batch_size=30, learning_rate=rate, label="RBM")
    assert error() < 0.3 * before


def test_contrastive_divergence_raises_the_likelihood_of_the_data() -> None:
    """On 6 visible units log P(v) = -F(v) - log Z can be computed by enumeration."""
    patterns = torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
    v = patterns[torch.randint(2, (200,))]
    rbm = RBM(6, 4, gaussian=False, device=CPU)

    def likelihood() -> float:
        every = all_states(6).float()
        return float((-free_energy(rbm, v)).mean() - torch.logsumexp(-free_energy(rbm, every), 0))

    before = likelihood()
    train_rbm(rbm, v, epochs=40, batch_size=20, learning_rate=0.1, label="RBM")
    assert likelihood() > before + 1.0
    assert likelihood() <= np.log(0.5) + 0.05  # two patterns, each half of the data


def test_unrolled_decoder_is_the_stack_upside_down() -> None:
    stack = [RBM(5, 4, gaussian=True, device=CPU), RBM(4, 3, gaussian=False, device=CPU)]
    for rbm in stack:
        rbm.W, rbm.a = torch.randn_like(rbm.W), torch.randn_like(rbm.a)
    decoder = unrolled(stack)
    code = torch.rand(6, 3)
    with torch.no_grad():
        assert torch.allclose(decoder(code), stack[0].visible(stack[1].visible(code)), atol=1e-6)


def test_noise_costs_a_soft_code_more_than_a_hard_one() -> None:
    """The noise drives the units to 0 or 1: only a large input carries its bit through."""
    decoder = nn.Linear(1, 1)
    with torch.no_grad():
        decoder.weight.fill_(1.0)
        decoder.bias.fill_(0.0)
    bits = torch.randint(2, (4000, 1)).float()
    objective = NoisyAutoencoder(bits, decoder, noise=4.0)
    rows = torch.arange(4000)
    with torch.no_grad():
        soft, hard = (float(objective((2 * bits - 1) * size, rows, 0.0)) for size in (1.0, 20.0))
    assert hard < 0.01 < soft
