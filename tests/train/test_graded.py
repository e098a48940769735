"""The hashing head from graded labels, against brute force over all pairs."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from ddh import DDH
from ddh._core.arrays import l2_normalize, sgn
from ddh.neighbours import pairwise_labels
from ddh.train import graded
from ddh.train.clusters import Clusters
from ddh.train.graded import Basis, Found, Problem, Sample, fit_graded, suits
from ddh.train.settings import settings


@pytest.fixture
def clustered(rng):
    """300 images of 6 kinds that lie in a plane of kinds, with individual differences beside."""
    centres = 0.7 * rng.standard_normal((6, 24))
    kinds = np.arange(300) % 6
    return (centres[kinds] + rng.standard_normal((300, 24))).astype(np.float32), kinds


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def problem(features, bits=8, rng=None):
    basis = Basis(features, normalize=True, centre=True)
    graph = pairwise_labels(l2_normalize(features), 10, 4, centre=True)
    return Problem(basis, graph, bits, rng or np.random.default_rng(0)), graph


def test_rows_are_the_centred_features_in_their_principal_components(clustered):
    features, _ = clustered
    basis = Basis(features, normalize=True, centre=True)
    x = l2_normalize(features).astype(np.float64)
    x -= x.mean(axis=0)
    np.testing.assert_allclose(basis.rows, x @ basis.components, atol=1e-4)
    gram = basis.rows.T.astype(np.float64) @ basis.rows / len(x)
    expected = basis.variances / (basis.variances + basis.ridge)
    np.testing.assert_allclose(gram, np.diag(expected), atol=1e-4)


def test_memberships_equal_the_dense_product(clustered):
    features, _ = clustered
    task, graph = problem(features)
    S = graph.toarray().astype(float) + np.eye(len(features))
    degrees = S.sum(axis=1)
    dense = task.F.T @ (S / np.sqrt(np.outer(degrees, degrees))) @ task.F
    np.testing.assert_allclose(task.memberships, dense, rtol=1e-4, atol=1e-2)


def test_the_start_is_the_best_low_rank_fit_of_the_graded_targets(clustered):
    """No other layer of the same rank comes closer to T, and the rotation changes nothing."""
    features, _ = clustered
    task, _ = problem(features, bits=5)
    variances, ridge = task.basis.variances, task.basis.ridge
    cosines = variances**2 / (variances + ridge)
    target = np.diag(cosines / cosines.sum()) + task.memberships / np.trace(task.memberships)
    layer = task.start(1.0).astype(np.float64)
    layer *= np.sqrt(
        np.trace(layer.T @ target @ layer) / np.trace((layer.T @ layer) @ (layer.T @ layer))
    )
    loss = np.square(layer @ layer.T - target).sum()
    values = np.linalg.eigvalsh(target)
    assert loss == pytest.approx(np.square(values[:-5]).sum(), rel=1e-3)


def test_weight_zero_is_itq(clustered):
    features, _ = clustered
    task, _ = problem(features, bits=8)
    layer = task.start(0.0)
    projected = task.basis.components @ layer
    x = l2_normalize(features).astype(np.float64)
    _, _, components = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    rotation = components[:8] @ projected / np.linalg.norm(projected[:, 0])
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(8), atol=1e-3)


def test_a_small_weight_of_exact_cosines_is_near_itq(clustered):
    features, _ = clustered
    task, _ = problem(features, bits=8)
    expected = task.F @ task.start(0.0)

    def distance(layer):  # of all products of outputs, which no rotation changes
        z = task.F @ layer
        return np.abs(z @ z.T - expected @ expected.T).max() / np.abs(expected @ expected.T).max()

    assert distance(task.start(1e-6, exact=True)) < 0.01
    assert distance(task.start(1e-6)) > 0.05  # the ridge


def history_if(costly, clustered, monkeypatch):
    """The history of a fit in which layers that are `costly(weight, exact)` lose all neighbours."""
    features, _ = clustered
    graph = pairwise_labels(l2_normalize(features), 10, 4, centre=True)
    start, find, last = Problem.start, Sample.find, {}

    def noted(self, weight, memberships=None, *, exact=False, **options):
        last.update(weight=weight, exact=exact)
        return start(self, weight, memberships, exact=exact, **options)

    def without_neighbours(self, layer):
        return Found(0.0, 1.0) if costly(**last) else find(self, layer)

    monkeypatch.setattr(Problem, "start", noted)
    monkeypatch.setattr(Sample, "find", without_neighbours)
    return fit_graded(features, graph, 64, seed=0)[2]


def test_where_the_ridge_costs_too_much_cosines_are_exact(clustered, monkeypatch):
    history = history_if(lambda weight, exact: weight > 0 and not exact, clustered, monkeypatch)
    weights = [entry["weight"] for entry in history]
    assert weights[:6] == [0.0, *graded.WEIGHTS, graded.WEIGHTS[0]]  # with the ridge, then without
    assert history[-1]["weight"] > 0


def test_where_all_other_weights_cost_too_much_the_least_is_tried(clustered, monkeypatch):
    history = history_if(
        lambda weight, exact: weight >= min(graded.WEIGHTS), clustered, monkeypatch
    )
    weights = [entry["weight"] for entry in history]
    assert weights[:10] == [0.0, *graded.WEIGHTS, *graded.WEIGHTS, graded.LEAST]
    assert graded.LEAST <= history[-1]["weight"] < min(graded.WEIGHTS)


def test_features_that_group_kinds_by_themselves_learn_from_clusters_too(rng):
    """Kinds lie far apart, and neighbourhoods within a kind say nothing about it."""
    centres, kinds = 0.5 * rng.standard_normal((6, 64)), np.arange(1200) % 6
    inner = 0.1 * rng.standard_normal((1200, 8)) @ rng.standard_normal((8, 64))  # of small rank
    features = (centres[kinds] + inner).astype(np.float32)
    graph = pairwise_labels(l2_normalize(features), 10, 4, centre=True)
    _, _, history = fit_graded(features, graph, 40, seed=0)
    itq, first, chosen = history[0], history[1], history[-1]
    assert first["memberships"] == "neighbourhoods"
    gain = graded.GAIN["neighbourhoods"] * (1 - itq["kinds_found"])
    assert first["kinds_found"] < itq["kinds_found"] + gain  # not worth it
    assert chosen["memberships"] == "both"
    assert chosen["kinds_found"] > itq["kinds_found"]
    assert chosen["kept_neighbours"] >= itq["kept_neighbours"] - graded.ALLOWED_LOSS["both"][0]


def test_both_memberships_have_equal_parts(clustered):
    features, kinds = clustered
    task, _ = problem(features)
    clusters = Clusters(np.ones(1), np.array([6]), kinds.astype(np.uint8)[None])
    both, own = task.with_clusters(clusters), clusters.memberships(task.F)
    expected = task.memberships / np.trace(task.memberships) + own / np.trace(own)
    np.testing.assert_allclose(both, expected)


def test_a_step_follows_the_gradient_over_all_pairs(clustered, monkeypatch):
    """The first step of Adam goes down the dense objective, in the direction of its signs."""
    features, _ = clustered
    task, graph = problem(features, bits=6)
    monkeypatch.setattr(graded, "LOOKS", (1,))
    monkeypatch.setattr(graded, "BATCH", 10**6)
    start = task.start(1.0)
    F, N, L = task.F.astype(np.float64), len(task.F), 6
    degrees = np.diff(graph.indptr) + 1.0
    S = graph.toarray() + np.eye(N)
    S = (graph.nnz / N) * S / np.sqrt(np.outer(degrees, degrees))

    def objective(layer):
        z = F @ layer
        pairs = np.square(z @ z.T / L).sum() - (4 / L) * np.trace(z.T @ S @ z)
        return pairs / N**2 + graded.QUANTISATION * np.square(np.abs(z) - 1).mean()

    numeric = np.zeros_like(start, np.float64)
    for i, j in np.ndindex(*start.shape):
        change = np.zeros_like(numeric)
        change[i, j] = 1e-4
        numeric[i, j] = (objective(start + change) - objective(start - change)) / 2e-4
    every = SimpleNamespace(integers=lambda low, high, count: np.arange(N))  # each row once
    _, moved = next(task.descend(start, every))
    clear = np.abs(numeric) > 0.05 * np.abs(numeric).max()
    assert (np.sign(start - moved)[clear] == np.sign(numeric)[clear]).all()
    assert objective(moved) < objective(start)


def test_what_codes_find_equals_the_brute_force_count(clustered, rng):
    features, kinds = clustered
    basis = Basis(features, normalize=True, centre=True)
    clusters = Clusters(np.ones(1), np.array([6]), kinds.astype(np.uint8)[None])
    sample = Sample(features, basis.rows, clusters, rng)
    layer = rng.standard_normal((basis.rows.shape[1], 16)).astype(np.float32)
    unit, codes = l2_normalize(features), sgn(basis.rows @ layer).astype(int)
    kept, same = [], []
    for i in range(len(features)):
        distances = (16 - codes @ codes[i]) // 2
        ranked = np.lexsort((np.arange(len(codes)), distances))
        others = np.delete(np.arange(len(features)), i)
        near = others[np.argsort(-(unit[others] @ unit[i]), kind="stable")[:10]]
        kept.append(np.isin(near, ranked[:101]).mean())
        same.append((kinds[ranked[:50]] == kinds[i]).mean())  # 300 images in 6 clusters
    found = sample.find(layer)
    assert found.kept_neighbours == pytest.approx(np.mean(kept), abs=0.002)
    assert found.kinds_found == pytest.approx(np.mean(same), abs=1e-6)


def test_codes_keep_neighbours_almost_as_itq_does_and_group_kinds_better(clustered):
    features, kinds = clustered
    graph = pairwise_labels(l2_normalize(features), 10, 4, centre=True)
    weight, bias, history = fit_graded(features, graph, 64, seed=0)
    itq, chosen = history[0], history[-1]
    assert itq["weight"] == 0
    assert (
        chosen["kept_neighbours"]
        >= itq["kept_neighbours"] - graded.ALLOWED_LOSS[chosen["memberships"]][0]
    )

    def precision(codes):
        similar = codes.astype(int) @ codes.T.astype(int)
        np.fill_diagonal(similar, -1000)
        nearest = np.argsort(-similar, axis=1, kind="stable")[:, :40]
        return (kinds[nearest] == kinds[:, None]).mean()

    basis = Basis(features, normalize=True, centre=True)
    start = Problem(basis, graph, 64, np.random.default_rng(0)).start(0.0)
    ours = sgn(l2_normalize(features) @ weight.T + bias)
    assert precision(ours) > precision(sgn(basis.rows @ start))


def test_more_bits_than_dimensions(clustered):
    features, _ = clustered
    model = DDH(bits=96).fit(features)
    assert model.transform(features).shape == (300, 96)
    assert len(np.unique(model.hash_weight_, axis=0)) == 96


def test_a_run_repeats(clustered):
    features, _ = clustered
    first, second = (DDH(bits=40).fit(features) for _ in range(2))
    np.testing.assert_array_equal(first.hash_weight_, second.hash_weight_)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("images", [20, 150])
def test_features_that_do_not_vary_get_codes(images, value, rng):
    features = np.tile(value * rng.standard_normal(8), (images, 1)).astype(np.float32)
    codes = DDH(bits=40).fit(features).transform(features)
    assert (codes == codes[0]).all()


def test_short_codes_of_many_images_are_trained_on_binary_labels():
    assert suits(50_000, 1280, 64)
    assert suits(2_000, 1280, 16)
    assert not suits(50_000, 1280, 16)


def test_settings_of_the_training_choose_binary_targets():
    assert settings().targets == "graded"
    assert settings(epochs=3).targets == "binary"
    assert settings(epochs=3, targets="graded").targets == "graded"
    assert settings("paper").targets == "binary"


def test_the_paper_preset_is_never_adapted(clustered):
    features, _ = clustered
    fitted = DDH(bits=8, preset="paper", epochs=1).fit(features).settings_
    assert (fitted["k1"], fitted["k2"], fitted["batch_size"]) == (15, 6, 128)


def test_graph_without_edges(rng):
    """Labels may be empty where no image has a neighbour: codes are then ITQ's."""
    features = rng.standard_normal((50, 12)).astype(np.float32)
    graph = sparse.csr_array((50, 50), dtype=np.int8)
    weight, _, history = fit_graded(features, graph, 40, seed=0)
    assert np.isfinite(weight).all()
    assert history[-1]["kept_neighbours"] > 0.5
