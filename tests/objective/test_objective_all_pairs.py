"""The all-pairs identity, the memory and the closed-form gradient against the dense formulas."""

import numpy as np
import pytest
import torch
from scipy import sparse

from ddh.neighbours import label_groups
from ddh.objective import (
    GraphPositives,
    GroupPositives,
    PairMemory,
    all_pairs,
    gradient,
    in_batch,
    quantisation,
    regulariser,
)

TOLERANCE = 1e-9


def random_graph(n, density, rng):
    upper = np.triu(rng.random((n, n)) < density, 1)
    return sparse.csr_array((upper | upper.T).astype(np.int8))


def dense_loss(z, rows, U, similar, alpha):
    """1/2 sum_i sum_{j != i} w_ij (z_i.u_j/L - s_ij)^2, written out."""
    L = U.shape[1]
    total = torch.zeros((), dtype=z.dtype)
    for place, i in enumerate(rows.tolist()):
        for j in range(len(U)):
            if j == i:
                continue
            s, w = (1.0, alpha) if similar[i, j] else (-1.0, 1.0)
            total = total + w * (z[place] @ U[j] / L - s) ** 2
    return total / 2


@pytest.fixture(params=["graph", "classes", "many labels"])
def case(request):
    """(positives, memory, dense similarity) of one small problem in float64."""
    rng = np.random.default_rng(7)
    n, bits = 23, 6
    U = torch.from_numpy(rng.standard_normal((n, bits)))
    if request.param == "graph":
        graph = random_graph(n, 0.2, rng)
        return GraphPositives(graph), PairMemory(U), graph.toarray().astype(bool)
    if request.param == "classes":
        y = rng.integers(0, 4, n)
        similar = y[:, None] == y[None]
    else:
        y = (rng.random((n, 5)) < 0.4).astype(int)
        y[:, 0] |= y.sum(axis=1) == 0
        similar = (y @ y.T) > 0
    np.fill_diagonal(similar, False)
    positives = GroupPositives(label_groups(y))
    return positives, PairMemory(U, positives.group_of, group_grams=True), similar


@pytest.mark.parametrize("alpha", [1.0, 10.0, 0.3])
def test_loss_and_gradient_equal_the_dense_formula(case, alpha):
    positives, memory, similar = case
    rows = torch.tensor([3, 0, 22, 11])
    z = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    fast = all_pairs(z, rows, positives, memory, alpha)
    slow = dense_loss(z, rows, memory.outputs, similar, alpha)
    (fast_gradient,) = torch.autograd.grad(fast, z, retain_graph=True)
    (slow_gradient,) = torch.autograd.grad(slow, z)
    assert abs(fast - slow).item() < TOLERANCE * max(1, abs(slow.item()))
    assert (fast_gradient - slow_gradient).abs().max() < TOLERANCE


def test_still_exact_after_many_updates_of_the_memory(case):
    positives, memory, similar = case
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        rows = torch.randperm(len(memory), generator=generator)[:5]
        memory.update(rows, torch.randn(5, 6, dtype=torch.float64, generator=generator))
    rows = torch.tensor([1, 2, 3])
    z = torch.randn(3, 6, dtype=torch.float64)
    for alpha in (1.0, 5.0):
        fast = all_pairs(z, rows, positives, memory, alpha)
        slow = dense_loss(z, rows, memory.outputs, similar, alpha)
        assert abs(float(fast - slow)) < TOLERANCE * abs(float(slow))
    gram = memory.gram.clone()
    memory.refresh(block=4)
    assert torch.allclose(gram, memory.gram, atol=1e-10)


def test_closed_form_gradient_of_the_paper_equals_autograd(case):
    positives, memory, _ = case
    rows = torch.tensor([5, 9, 14])
    z = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    lambda1 = 15.0
    loss = all_pairs(z, rows, positives, memory) + lambda1 / 2 * quantisation(z)
    (automatic,) = torch.autograd.grad(loss, z)
    assert (
        automatic - gradient(z.detach(), rows, positives, memory, lambda1)
    ).abs().max() < TOLERANCE


def test_in_batch_form_equals_a_double_loop_and_reads_the_same_similarity(case):
    positives, _, similar = case
    rows = torch.tensor([8, 2, 19, 4, 6])
    within = positives.within(rows)
    assert np.array_equal(within.numpy(), similar[np.ix_(rows, rows)])
    z = torch.randn(5, 6, dtype=torch.float64)
    expected = 0.0
    for a in range(5):
        for b in range(5):
            if a != b:
                s, w = (1, 3.0) if within[a, b] else (-1, 1.0)
                expected += w * float(z[a] @ z[b] / 6 - s) ** 2 / 2
    assert float(in_batch(z, within, alpha=3.0)) == pytest.approx(expected, rel=1e-12)


def test_counts_and_sums(case):
    positives, memory, similar = case
    rows = torch.arange(len(memory))
    assert np.array_equal(positives.counts(rows).numpy(), similar.sum(axis=1))
    expected = similar.astype(float) @ memory.outputs.numpy()
    assert np.allclose(positives.sums(rows, memory).numpy(), expected, atol=1e-10)


def test_quantisation_takes_sgn_of_zero_as_plus_one():
    assert float(quantisation(torch.tensor([[0.0, -0.5]]))) == pytest.approx(1 + 0.25)


def test_regulariser_is_squared_as_printed():
    W, c = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0])
    assert float(regulariser(W, c)) == pytest.approx((1 + 4 + 9) ** 2)


def test_an_image_without_positives_and_an_empty_graph():
    graph = sparse.csr_array((6, 6), dtype=np.int8)
    memory = PairMemory(torch.randn(6, 4, dtype=torch.float64))
    rows = torch.tensor([0, 5])
    z = torch.randn(2, 4, dtype=torch.float64)
    for alpha in (1.0, 4.0):
        fast = all_pairs(z, rows, GraphPositives(graph), memory, alpha)
        slow = dense_loss(z, rows, memory.outputs, np.zeros((6, 6), bool), alpha)
        assert abs(float(fast - slow)) < TOLERANCE * float(slow)
