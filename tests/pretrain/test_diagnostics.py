"""Label-free measures, and what counts as a collapse."""

import pytest
import torch
from small_network import generator

from ddh.pretrain.diagnostics import agreement, diagnostics, neighbours


def test_a_constant_is_a_collapse():
    constant = torch.ones(50, 8) + 1e-6 * torch.randn(50, 8, generator=generator())
    assert diagnostics(constant, constant, None).collapsed


def test_one_line_is_a_collapse():
    line = torch.randn(50, 1, generator=generator()) * torch.ones(1, 8)
    assert diagnostics(line, line, None).collapsed


def test_isotropic_features():
    x = torch.randn(2000, 8, generator=generator())
    found = diagnostics(x, x, neighbours(x.double()))
    assert not found.collapsed
    assert found.instance_accuracy == 1.0
    assert found.stability == 1.0
    assert found.rank == pytest.approx(8, abs=0.1)
    assert found.spread == pytest.approx(1, abs=0.05)
    assert found.entropy > 0.9


def test_other_views_do_not_agree():
    a, b = torch.randn(2, 500, 8, generator=generator())
    assert diagnostics(a, b, None).instance_accuracy < 0.05
    assert agreement(a, b) == pytest.approx(10 / 499, abs=0.01)  # by chance
    assert agreement(a, a) == 1


def test_agreement_is_the_share_of_common_neighbours():
    first, second = torch.randn(2, 40, 3, generator=generator(1))
    second = first + 0.5 * second

    def lists(x):
        x = x - x.mean(dim=0)
        cosine = torch.nn.functional.cosine_similarity(x[:, None], x[None], dim=2)
        return [
            {int(j) for j in row.argsort(descending=True) if j != i and j in row.topk(11).indices}
            for i, row in enumerate(cosine)
        ]

    shares = [len(a & b) / 10 for a, b in zip(lists(first), lists(second), strict=True)]
    assert agreement(first, second) == pytest.approx(sum(shares) / 40)
