"""All pairs within a radius against a double loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddh import codes
from ddh.codes import pairs


def oracle(database, radius):
    found = [
        (i, j, int(d))
        for i in range(len(database))
        for j in range(i + 1, len(database))
        if (d := np.unpackbits(database[i] ^ database[j]).sum()) <= radius
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


@pytest.mark.parametrize("name", ["native", "numpy"])
@settings(max_examples=40, deadline=None)
@given(
    bits=st.integers(1, 300),
    rows=st.integers(0, 60),
    centres=st.integers(1, 6),
    flips=st.sampled_from([0.0, 0.03, 0.5]),
    share=st.sampled_from([0.0, 0.02, 0.2, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_pairs_are_the_oracle(name, bits, rows, centres, flips, share, seed):
    rng = np.random.default_rng(seed)
    around = rng.integers(0, 2, (centres, bits))[rng.integers(centres, size=rows)]
    database = np.packbits(around ^ (rng.random((rows, bits)) < flips), axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_KERNEL", name)
        found = codes.pairs_within(database, int(share * bits))
    assert found.first.dtype == found.second.dtype == np.int64
    assert found.distances.dtype == np.int32
    np.testing.assert_array_equal(np.stack(found, axis=1), oracle(database, int(share * bits)))


@pytest.mark.parametrize("width", [2, 5, 8, 16, 33])
def test_shared_parts_and_the_scan_agree(monkeypatch, width):
    """Near copies among many rows: found through shared parts, then by comparing all rows."""
    rng = np.random.default_rng(0)
    database = rng.integers(0, 256, (12_000, width), dtype=np.uint8)
    copies = rng.integers(12_000, size=3000)
    near = database[copies] ^ np.packbits(rng.random((3000, 8 * width)) < 0.03, axis=1)
    database = np.concatenate([database, near, near[:10]])
    plan = pairs.pair_plan(len(database), 8 * width, width // 2, pairs._SORTED_ROW, 18)
    assert plan.shared, "sorting should be the cheaper way here"
    by_parts = codes.pairs_within(database, width // 2, threads=2)
    monkeypatch.setattr(pairs, "native", lambda: None)
    by_scan = codes.pairs_within(database, width // 2)
    for one, other in zip(by_parts, by_scan, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(by_parts.first) > 500


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_every_plan_finds_each_pair_once(monkeypatch, shared):
    rng = np.random.default_rng(shared)
    centres = rng.integers(0, 256, (3, 4), dtype=np.uint8)
    rows = centres[rng.integers(3, size=90)] ^ np.packbits(rng.random((90, 32)) < 0.1, axis=1)
    parts = [
        (part * 32 // (5 + shared), (part + 1) * 32 // (5 + shared)) for part in range(5 + shared)
    ]
    plan = pairs.PairPlan(parts, shared)
    monkeypatch.setattr(pairs, "pair_plan", lambda *sizes: plan)
    np.testing.assert_array_equal(np.stack(codes.pairs_within(rows, 5), axis=1), oracle(rows, 5))


def test_a_plan_for_long_codes_sorts_by_a_few_of_their_bits():
    plan = pairs.pair_plan(10_000_000, 1024, 4, 250.0, 24)
    assert len(plan.parts) == 4 + plan.shared
    assert plan.key_bits(plan.tables[0]) <= 24
