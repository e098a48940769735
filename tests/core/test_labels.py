"""Labels as users have them: numbers, words, both, and as objects."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh._core.labels import check_labels


@pytest.mark.parametrize(
    "labels",
    [
        ["elm", "ash", -1, "elm"],
        np.array(["elm", "ash", -1, "elm"], object),
        np.array(["elm", "ash", "-1", "elm"]),
        np.array([b"elm", b"ash", b"-1", b"elm"]),
        np.array([1, 0, -1, 1], object),
        np.array([1.0, 0.0, -1.0, 1.0], object),
    ],
)
def test_minus_one_means_unlabelled_also_among_words_and_objects(labels):
    found = check_labels(labels, 4)
    assert (found.dtype, found.tolist()) == (np.int64, [1, 0, -1, 1])


def test_a_matrix_of_objects_is_one_of_numbers():
    matrix = np.array([[0, 1], [1, True]], object)
    assert check_labels(matrix).tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["elm", None, "ash"], "not None; mark unlabelled images by -1"),
        (["elm", np.nan, "ash"], "not nan; mark unlabelled images by -1"),
        ([{"elm"}, {"ash"}, {"elm"}], "one per image, or a 0/1 matrix, and not {'elm'}"),
        ([0, np.nan, 1], "NaN"),
    ],
)
def test_objects_that_are_no_labels_are_named(values, message):
    with pytest.raises(InputError, match=message):
        check_labels(np.array(values, object))


def test_several_words_per_image_are_refused():
    with pytest.raises(InputError, match="given as a 0/1 matrix"):
        check_labels([["elm"], ["elm", "ash"]])
