"""All pairs within a radius against a double loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddh import codes
from ddh.codes import multi_index


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


def test_the_index_and_the_scan_agree(monkeypatch):
    """Duplicates in three pages of rows: found through the index, then by comparing all rows."""
    rng = np.random.default_rng(0)
    database = rng.integers(0, 256, (12_000, 8), dtype=np.uint8)
    copies = rng.integers(12_000, size=3000)
    near = database[copies] ^ np.packbits(rng.random((3000, 64)) < 0.03, axis=1)
    database = np.concatenate([database, near])
    made = []
    monkeypatch.setattr(
        multi_index, "MultiIndex", lambda *arguments: made.append(1) or codes.MultiIndex(*arguments)
    )
    by_index = codes.pairs_within(database, 6)
    assert made, "an index should be the cheaper way here"
    monkeypatch.setattr(multi_index, "native", lambda: None)
    by_scan = codes.pairs_within(database, 6)
    assert len(made) == 1
    for one, other in zip(by_index, by_scan, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(by_index.first) > 2000
