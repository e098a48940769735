import sys
import warnings
from importlib import import_module

import numpy as np
import pytest
from alg1_oracle import nearest_by_hand, order_keys
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddh._core.errors import DDHWarning, InputError, MissingDependency
from ddh.neighbours import approximate, cosine, knn, nearest, products
from ddh.neighbours.cosine import cosine_space
from ddh.neighbours.knn_gpu import DeviceRows

knn_module = import_module("ddh.neighbours.knn")  # the package exports a function of that name

same_fixtures = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def features(draw):
    """Random rows, or whole numbers with many ties, duplicates and zero vectors."""
    images, dimensions = draw(st.integers(3, 40)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    kind = draw(st.sampled_from(["normal", "grid", "copies"]))
    if kind == "grid":
        X = rng.integers(-1, 2, (images, dimensions))
    else:
        X = rng.standard_normal((images, dimensions))
    if kind == "copies":
        X = X[rng.integers(0, max(1, images // 4), images)]
    X = X.astype(draw(st.sampled_from([np.float16, np.float32, np.float64])))
    return X, draw(st.integers(1, images - 1))


@given(case=features())
@same_fixtures
def test_lists_are_those_of_float64(case, loops, small_tiles):
    X, k = case
    lists = knn(X, k)
    assert lists.dtype == np.int32
    np.testing.assert_array_equal(lists, nearest_by_hand(X, k))


@given(case=features())
@same_fixtures
def test_device_lists_are_the_same(case):
    import torch

    X, k = case
    space = cosine_space(X)
    index = np.arange(len(X), dtype=np.int32)
    lists = DeviceRows(space, index, torch.device("cpu")).lists(k)
    np.testing.assert_array_equal(lists, nearest_by_hand(X, k))


@given(case=features())
@same_fixtures
def test_bfloat16_short_lists_give_the_same_lists(case, monkeypatch, small_tiles):
    X, k = case
    monkeypatch.setattr(
        knn_module,
        "fastest_product",
        lambda space, index, *_: products.BFloat16Product(space, index),
    )
    np.testing.assert_array_equal(knn(X, k), nearest_by_hand(X, k))


def test_several_real_tiles(loops):
    X = np.random.default_rng(0).standard_normal((knn_module.TILE + 700, 12)).astype(np.float32)
    keys = order_keys(X)
    np.fill_diagonal(keys, -np.inf)
    np.testing.assert_array_equal(knn(X, 15), np.argsort(-keys, axis=1, kind="stable")[:, :15])


def test_more_ties_than_there_is_room_for(loops):
    # 300 directions that a float32 product cannot tell apart, in an order only float64 knows
    angles = np.random.default_rng(1).permutation(300) * 1e-9
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    X = np.vstack([X, np.random.default_rng(2).standard_normal((40, 2))])
    np.testing.assert_array_equal(knn(X, 5), nearest_by_hand(X, 5))


def test_surplus_copies_change_nothing(loops):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4)).astype(np.float32)
    X[rng.permutation(60)[:45]] = X[0]
    X[50] = 3 * X[0]  # the same direction, but no copy
    copies, originals = knn_module.surplus_copies(cosine_space(X), 3)
    assert len(copies) >= 40
    assert all(np.array_equal(X[a], X[b]) for a, b in zip(copies, originals, strict=True))
    np.testing.assert_array_equal(knn(X, 3), nearest_by_hand(X, 3))


def test_zero_vectors_have_cosine_zero_with_everything(loops):
    X = np.array([[0, 0], [1, 0], [-1, 0], [0, 0], [2, 1]], np.float32)
    lists = knn(X, 3)
    assert lists[0].tolist() == [1, 2, 3]
    assert lists[2].tolist() == [0, 3, 4]
    assert nearest(X, 3).similarities[0].tolist() == [0, 0, 0]


def test_memory_mapped_half_precision(tmp_path, loops):
    X = np.random.default_rng(4).standard_normal((90, 33)).astype(np.float16)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(knn(mapped, 7), nearest_by_hand(X, 7))
    np.testing.assert_array_equal(knn(mapped[:, ::2], 7), nearest_by_hand(X[:, ::2], 7))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, bool])
def test_whole_numbers(kind, loops):
    X = np.random.default_rng(5).integers(0, 2, (40, 11)).astype(kind)
    np.testing.assert_array_equal(knn(X, 6), nearest_by_hand(X, 6))


def test_centring_is_subtracting_the_mean(loops):
    X = np.random.default_rng(6).standard_normal((80, 6)) + 3
    np.testing.assert_array_equal(knn(X, 5, centre=True), nearest_by_hand(X - X.mean(axis=0), 5))
    assert (knn(X, 5) != knn(X, 5, centre=True)).any()


def test_similarities_are_cosines(loops):
    X = np.random.default_rng(7).standard_normal((50, 6)).astype(np.float32)
    found = nearest(X, 4)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected = np.take_along_axis(units @ units.T, found.lists, axis=1)
    np.testing.assert_allclose(found.similarities, expected, atol=1e-6)
    assert (np.diff(found.similarities, axis=1) <= 1e-7).all()


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30, 1e37])
def test_the_length_of_features_does_not_matter(scale, loops):
    X = np.random.default_rng(8).standard_normal((30, 5))
    np.testing.assert_array_equal(knn(X * scale, 4), knn(X, 4))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bfloat16 emulates it
@pytest.mark.parametrize("product", [products.Float32Product, products.BFloat16Product])
def test_no_product_is_off_by_more_than_it_says(product):
    X = np.random.default_rng(9).standard_normal((200, 300)) + 1
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    made = product(cosine_space(X), np.arange(200, dtype=np.int32))
    off = np.abs(made.tile(slice(None), slice(None)) - units @ units.T).max()
    assert 0 < off <= made.error < 0.02


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_bfloat16_is_used_only_where_it_helps(monkeypatch):
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(products, "_bfloat16_is_faster", lambda dimensions: True)
    rng = np.random.default_rng(13)
    index = np.arange(4096, dtype=np.int32)
    spread = rng.standard_normal((4096, 24)).astype(np.float32)
    chosen = products.fastest_product(cosine_space(spread), index, 5, 40)
    assert isinstance(chosen, products.BFloat16Product)
    # all rows nearly parallel: bfloat16 cannot tell which is nearer
    chosen = products.fastest_product(cosine_space(spread + 100), index, 5, 40)
    assert isinstance(chosen, products.Float32Product)
    monkeypatch.setitem(sys.modules, "torch", None)  # not installed
    chosen = products.fastest_product(cosine_space(spread), index, 5, 40)
    assert isinstance(chosen, products.Float32Product)


class TestApproximate:
    X = np.random.default_rng(10).standard_normal((1500, 16)).astype(np.float32)

    @pytest.mark.parametrize("hnsw", [False, True])
    def test_recall_is_measured_and_true(self, hnsw):
        found = approximate.approximate_lists(cosine_space(self.X), 10, hnsw=hnsw)
        exact_lists = knn(self.X, 10)
        recall = np.mean(
            [np.isin(a, b).mean() for a, b in zip(exact_lists, found.lists, strict=True)]
        )
        assert found.recall >= 0.95
        assert recall == pytest.approx(found.recall, abs=0.03)
        assert found.index.startswith("HNSW" if hnsw else "IVF")
        assert not (found.lists == np.arange(1500)[:, None]).any()

    def test_best_first(self):
        found = nearest(self.X, 10, approximate=True)
        lists = found.lists
        assert 0.95 <= found.recall <= 1
        assert nearest(self.X[:50], 3).recall == 1
        units = self.X / np.linalg.norm(self.X, axis=1, keepdims=True)
        cosines = np.take_along_axis(units @ units.T, lists, axis=1)
        assert (np.diff(cosines, axis=1) <= 1e-6).all()

    def test_few_images(self):
        np.testing.assert_array_equal(knn(self.X[:20], 19, approximate=True), knn(self.X[:20], 19))

    def test_warns_when_the_recall_is_out_of_reach(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            approximate.approximate_lists(cosine_space(self.X), 10, recall=1.01)
        assert any(issubclass(w.category, DDHWarning) for w in caught)

    def test_without_faiss(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(MissingDependency, match=r"ddh\[faiss\]"):
            knn(self.X, 10, approximate=True)


class TestBadInput:
    def test_too_few_images(self):
        with pytest.raises(InputError, match="15 neighbours need at least 16 images, there are 9"):
            knn(np.eye(9), 15)

    @pytest.mark.parametrize("k", [0, -1, 2.0, "3"])
    def test_impossible_k(self, k):
        with pytest.raises(InputError, match="K1"):
            knn(np.eye(9), k)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_rows_that_are_not_finite_are_named(self, bad):
        X = np.ones((20, 3), np.float32)
        X[[4, 17], 1] = bad
        with pytest.raises(InputError, match=r"2 row\(s\): 4, 17; remove"):
            knn(X, 3)

    @pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (0, 3), (3, 0)])
    def test_other_shapes(self, shape):
        with pytest.raises(InputError, match="images, dimensions"):
            knn(np.ones(shape), 1)

    def test_words(self):
        with pytest.raises(InputError, match="real numbers"):
            knn(np.array([["a", "b"], ["c", "d"]]), 1)

    @pytest.mark.parametrize("scale", [1e-200, 1e-90, 1e90])
    def test_lengths_that_float64_cannot_square_twice(self, scale):
        X = np.eye(5)
        X[3] *= scale
        with pytest.raises(InputError, match=r"length.*1 row\(s\): 3; scale"):
            knn(X, 2)

    def test_a_device_that_is_not_there(self):
        with pytest.raises(InputError, match="use 'cpu'"):
            knn(np.eye(5), 2, device="cuda:99")


def test_lists_on_a_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    X = np.random.default_rng(11).integers(-3, 4, (3000, 24)).astype(np.float32)
    np.testing.assert_array_equal(knn(X, 15, device="cuda"), knn(X, 15))


def test_rows_are_read_in_pieces(monkeypatch):
    monkeypatch.setattr(cosine, "PIECE", 10)
    X = np.random.default_rng(12).standard_normal((50, 4))
    assert len(cosine.pieces(*X.shape)) == 25
    np.testing.assert_array_equal(knn(X, 3), nearest_by_hand(X, 3))
