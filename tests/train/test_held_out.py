"""The judgement of a network by pictures that are kept from its training."""

import numpy as np
from scipy import sparse

from ddh.neighbours import label_groups
from ddh.train.held_out import HeldOut, improves
from ddh.train.settings import settings


def test_precision_is_the_share_of_members_among_the_first():
    rng = np.random.default_rng(0)
    held = HeldOut(200, seed=3)
    assert sorted([*held.queries, *held.trained]) == list(range(200))
    assert len(held.queries) == 20
    assert set(held.others) == set(held.trained)
    S = sparse.csr_array(rng.random((200, 200)) < 0.1)
    members = held.members(S)
    values = rng.standard_normal((200, 6))
    found = held.precision(values[held.rows], values[held.rows], members)
    for row, query in enumerate(held.queries):
        own = set(S.indices[S.indptr[query] : S.indptr[query + 1]]) & set(held.others)
        order = held.others[np.argsort(-(values[held.others] @ values[query]), kind="stable")]
        right = len(own & set(order[: len(own)])) / len(own)
        np.testing.assert_allclose(found[row], right)


def test_order_counts_the_pairs_of_a_member_and_another():
    rng = np.random.default_rng(2)
    held = HeldOut(100, seed=0)
    members = rng.random((len(held.queries), len(held.others))) < 0.2
    members[3], members[4] = False, True
    values = rng.standard_normal((100, 6))[held.rows]
    found = held.order(values, values, members)
    scores = values[: len(held.queries)] @ values[len(held.queries) :].T
    for row, own in enumerate(members):
        pairs = np.sign(scores[row, own][:, None] - scores[row, ~own])
        np.testing.assert_allclose(found[row], pairs.mean() if pairs.size else 0)
    assert found[3] == found[4] == 0


def test_stability_is_the_share_of_neighbours_that_two_views_have_in_common():
    rng = np.random.default_rng(4)
    held = HeldOut(300, seed=1)
    values = rng.standard_normal((300, 5))
    views = [values[held.queries] + 0.3 * rng.standard_normal((30, 5)) for _ in range(2)]
    found = held.stability(tuple(views), values[held.rows])
    others, first = values[held.others], len(held.others) // 10
    for row in range(30):
        lists = [set(np.argsort(-(others @ view[row]))[:first]) for view in views]
        np.testing.assert_allclose(found[row], len(lists[0] & lists[1]) / first)


def test_labels_can_say_who_belongs_together():
    y = np.arange(60) % 3
    y[5] = -1
    held = HeldOut(60, seed=0)
    same = (y[held.queries][:, None] == y[held.others]) & (y[held.queries] >= 0)[:, None]
    np.testing.assert_array_equal(held.members(label_groups(y)), same)


def test_only_what_is_more_than_chance_improves():
    rng = np.random.default_rng(1)
    before = rng.random(400)
    assert improves(before, before + 0.01)
    assert not improves(before, before)
    assert not improves(before, before - 0.01)
    assert not improves(np.zeros(4), np.array([0.3, -0.2, 0.2, -0.2]))


def test_rates_of_a_network_rise_in_the_beginning_and_fall_with_the_batch_of_sgd():
    for optimiser, factor in (("sgd", 16), ("adam", 1)):
        full, small = (
            settings("fast", batch_size=size, optimiser=optimiser).for_network()
            for size in (1024, 64)
        )
        np.testing.assert_allclose(full.learning_rate, factor * small.learning_rate)
    rates = [full.warmed_up_rate(progress) for progress in (0, 0.05, 0.1)]
    assert rates[0] < 0.2 * rates[1] < rates[1] < rates[2] == full.learning_rate_at(0.1)
