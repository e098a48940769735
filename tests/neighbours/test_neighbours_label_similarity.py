import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddh._core.errors import InputError
from ddh._core.labels import check_labels, indicators, is_labelled, shares_label
from ddh.neighbours import label_groups


def similar_by_hand(y):
    """s_ij = +1 where two images share a label."""
    y = np.asarray(y)
    S = (y[:, None] == y) & (y != -1) if y.ndim == 1 else (y @ y.T) > 0
    S = S.copy()
    np.fill_diagonal(S, False)
    return S


@given(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.integers(0, 10_000))
@settings(deadline=None, max_examples=60)
def test_groups_hold_s_exactly(images, concepts, several, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(-1, concepts, images)
    if several:
        y = (rng.random((images, concepts)) < 0.2).astype(int)
    groups, S = label_groups(y), similar_by_hand(y)
    np.testing.assert_array_equal(groups.to_csr().toarray(), S)
    np.testing.assert_array_equal(groups.degree(), S.sum(axis=1))
    assert groups.sizes.sum() == images == len(groups)
    assert groups.group_of.dtype == np.int32


def test_words_are_classes():
    groups = label_groups(["rose", "iris", "rose"])
    assert groups.to_csr().toarray()[0].tolist() == [0, 0, 1]


def test_an_image_without_labels_is_similar_to_nothing():
    assert label_groups([-1, -1, 3, 3]).degree().tolist() == [0, 0, 1, 1]
    assert label_groups([[0, 0], [0, 0], [1, 0]]).degree().tolist() == [0, 0, 0]


def test_a_million_images_stay_small():
    y = np.random.default_rng(0).integers(0, 10, 1_000_000)
    groups = label_groups(y)
    assert groups.relation.nnz == 10
    assert groups.degree().sum() == (np.bincount(y) * (np.bincount(y) - 1)).sum()
    with pytest.raises(InputError, match="entries"):
        groups.to_csr()


@pytest.mark.parametrize("y", [[[0, 2]], [[0.5, 1]], [1.0, np.nan], 3, [], [[[1]]]])
def test_what_are_no_labels(y):
    with pytest.raises(InputError, match="label"):
        label_groups(y)


@pytest.mark.parametrize("y", [[2, -1, 2, -3, 7, 7, -1], [[1, 0], [1, 1], [0, 0], [0, 1]]])
def test_every_form_of_similarity_agrees(y):
    labels = check_labels(y)
    S = similar_by_hand(np.maximum(labels, -1) if labels.ndim == 1 else labels)
    np.fill_diagonal(S, is_labelled(labels))
    i, j = np.divmod(np.arange(S.size), len(S))
    groups = label_groups(y)
    np.testing.assert_array_equal(groups.similar(i, j).reshape(S.shape), S)
    np.testing.assert_array_equal(groups.labelled(), is_labelled(labels))
    matrix = indicators(labels)
    np.testing.assert_array_equal(shares_label(matrix, matrix), S)
    if labels.ndim == 1:
        np.testing.assert_array_equal(shares_label(labels, labels), S)


def test_no_label_at_all():
    groups = label_groups([-1, -1])
    assert not groups.similar(np.array([0, 0]), np.array([0, 1])).any()
