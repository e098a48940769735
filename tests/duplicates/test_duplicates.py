"""Groups against a brute-force oracle."""

import numpy as np
import pytest

import ddh.index
from ddh._core.errors import InputError
from ddh.duplicates import find_groups, group_codes


def components(codes: np.ndarray, radius: int) -> list[list[int]]:
    """Connected components of two rows or more, by repeated merging."""
    distances = np.unpackbits(codes[:, None] ^ codes[None], axis=2).sum(axis=2)
    groups = [{i} for i in range(len(codes))]
    for i, j in zip(*np.nonzero(distances <= radius), strict=True):
        first = next(group for group in groups if i in group)
        second = next(group for group in groups if j in group)
        if first is not second:
            first |= second
            groups.remove(second)
    return sorted(sorted(group) for group in groups if len(group) > 1)


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("radius", [0, 1, 2])
def test_groups_are_the_connected_components(width, radius):
    rng = np.random.default_rng(width)
    codes = np.packbits(rng.random((60, 8 * width)) < 0.06, axis=1)
    groups = group_codes(codes, radius)
    assert [group.tolist() for group in groups] == components(codes, radius)


def test_groups_of_an_index_are_rows_with_distances(tmp_path):
    codes = np.array([[0], [255], [1], [254], [60]], np.uint8)
    with ddh.index.open(tmp_path / "a.index", bits=8) as index:
        index.add(list("abcde"), codes, paths=["x/a", "x/b", "y/c", "x/d", "y/e"])
        found = [[(hit.key, hit.distance) for hit in group] for group in find_groups(index, 1)]
        assert found == [[("a", 0), ("c", 1)], [("b", 0), ("d", 1)]]
        assert [len(group) for group in find_groups(index, 1, folder="x")] == [2]
        with pytest.raises(InputError, match="a distance from 0 to 8"):
            find_groups(index, 9)
