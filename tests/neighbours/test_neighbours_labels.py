import subprocess
import sys

import numpy as np
import pytest
from alg1_oracle import labels_by_hand, nearest_by_hand
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddh._core.errors import InputError
from ddh.neighbours import expand, knn, native, overlap, pairwise_labels
from ddh.neighbours.overlap import membership

same_fixtures = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def cases(draw):
    images, dimensions = draw(st.integers(3, 45)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    kind = draw(st.sampled_from(["normal", "grid", "copies", "hubs"]))
    X = rng.standard_normal((images, dimensions))
    if kind == "grid":
        X = rng.integers(0, 3, (images, dimensions))
    elif kind == "copies":
        X = X[rng.integers(0, max(1, images // 3), images)]
    elif kind == "hubs":
        X = X + 2  # most rows are nearest to the few that lie along the mean
    k1 = draw(st.integers(1, min(images - 1, 9)))
    return X.astype(np.float32), k1, draw(st.sampled_from([1, 2, 6, images, 10 * images]))


@given(case=cases())
@same_fixtures
def test_labels_equal_alg_1(case, loops, small_tiles):
    X, k1, k2 = case
    S = pairwise_labels(X, k1, k2)
    np.testing.assert_array_equal(
        S.toarray().astype(bool), labels_by_hand(nearest_by_hand(X, k1), k2, X)
    )


@given(case=cases(), mutual=st.booleans(), min_overlap=st.integers(1, 4))
@same_fixtures
def test_expansion_of_ready_lists(case, mutual, min_overlap, loops):
    X, k1, k2 = case
    lists = nearest_by_hand(X, k1)
    options = {"mutual": mutual, "min_overlap": min_overlap}
    S = expand(lists, k2, **options)
    np.testing.assert_array_equal(S.toarray().astype(bool), labels_by_hand(lists, k2, **options))


def test_the_form_of_the_labels(loops):
    S = pairwise_labels(np.random.default_rng(0).standard_normal((300, 8)))
    assert (S.dtype, S.indices.dtype) == (np.int8, np.int32)
    assert S.has_canonical_format
    assert (S.data == 1).all()
    assert (S != S.T).nnz == 0
    assert not S.diagonal().any()


def test_the_order_of_the_paper_is_the_order_of_the_overlap():
    # ||a_i - a_j||^2 = 2 (K1 + 1) - 2 |L_i n L_j|, so 1 / ||L_i - L_j||^2 ranks as the overlap
    lists = knn(np.random.default_rng(1).standard_normal((60, 4)), 7)
    A = membership(lists).matrix(60).toarray()
    squares = ((A[:, None, :] - A[None, :, :]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(squares, 2 * (7 + 1) - 2 * (A @ A.T))


def test_a_hub_in_every_list(loops):
    rng = np.random.default_rng(2)
    lists = np.column_stack(
        [np.zeros(80, int), rng.permuted(np.tile(np.arange(1, 80), (80, 1)), axis=1)[:, :5]]
    )
    lists[0, 0] = 79
    lists = np.array([[j if j != i else (i + 1) % 80 for j in row] for i, row in enumerate(lists)])
    np.testing.assert_array_equal(expand(lists, 6).toarray(), labels_by_hand(lists, 6))


def test_lists_are_sets(loops):
    # an image named twice, or the image itself, adds nothing
    lists = np.array([[1, 1], [1, 0], [3, 0], [2, 3]])
    np.testing.assert_array_equal(expand(lists, 2).toarray(), labels_by_hand(lists, 2))


def test_many_threads_and_parts_give_the_same(monkeypatch):
    if not native.available():
        pytest.skip("built without a compiler")
    X = np.random.default_rng(3).standard_normal((700, 5)).astype(np.float32)
    lists = knn(X, 8)
    monkeypatch.setattr(native, "omp_threads", lambda: 1)
    once = expand(lists, 4, X)
    monkeypatch.setattr(native, "omp_threads", lambda: 3)
    monkeypatch.setattr(overlap, "COMPILED_ROWS", 50)
    parts = expand(lists, 4, X)
    assert (once != parts).nnz == 0
    monkeypatch.setattr(native, "loops", None)
    monkeypatch.setattr(overlap, "SCIPY_ROWS", 50)
    assert (once != expand(lists, 4, X)).nnz == 0


def test_ties_ask_for_few_cosines(monkeypatch):
    X = np.random.default_rng(4).standard_normal((400, 6)).astype(np.float32)
    lists = knn(X, 10)
    asked = []
    from ddh.neighbours.cosine import CosineSpace

    plain = CosineSpace.order_keys
    monkeypatch.setattr(
        CosineSpace, "order_keys", lambda self, i, j: asked.append(len(i)) or plain(self, i, j)
    )
    S = expand(lists, 6, X)
    assert 0 < sum(asked) < 400 * 25
    np.testing.assert_array_equal(S.toarray(), labels_by_hand(lists, 6, X))


class TestBadInput:
    @pytest.mark.parametrize("k2", [0, -2, 1.5])
    def test_impossible_k2(self, k2):
        with pytest.raises(InputError, match="K2"):
            pairwise_labels(np.eye(9), 3, k2)

    def test_too_few_images(self):
        with pytest.raises(InputError, match="lower K1"):
            pairwise_labels(np.eye(9))

    def test_lists_with_gaps(self):
        with pytest.raises(InputError, match="first is that of image 2"):
            expand([[1, 2], [0, 2], [1, -1]])

    @pytest.mark.parametrize("lists", [[1, 2], [[0.5, 1.0]], np.empty((0, 3), int)])
    def test_what_is_no_list(self, lists):
        with pytest.raises(InputError, match="whole numbers"):
            expand(lists)

    def test_features_of_other_images(self):
        with pytest.raises(InputError, match="2 lists do not fit 5 rows"):
            expand([[1], [0]], 2, np.eye(5))


def test_labels_need_neither_torch_nor_faiss():
    script = (
        "import sys, numpy as np; from ddh.neighbours import pairwise_labels;"
        "pairwise_labels(np.eye(20)); "
        "print(sorted({'torch', 'faiss', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
