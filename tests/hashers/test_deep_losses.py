"""Each loss of the deep methods equals plain loops over its formula, and its gradient is right."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from ddh.hashers import (
    bihalf,
    cibhash,
    crovca,
    csq,
    deepbit,
    dh,
    dpsh,
    dsch,
    dsrh,
    greedyhash,
    hashnet,
    orthohash,
    sdc,
)
from ddh.hashers.deep_training import (
    shared_labels,
    standardize_batch,
    straight_through,
    triplets,
)

BITS = 5


def values(rows: int, bits: int = BITS, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, bits, dtype=torch.float64, generator=generator)


def classes(rows: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 3, rows))


def concepts(rows: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 2, (rows, 4)))


def sign(value: float) -> float:
    return 1.0 if value >= 0 else -1.0


# -- labels -------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [classes(9), concepts(9)], ids=["classes", "matrix"])
def test_shared_labels_counts_common_labels(labels: Tensor) -> None:
    counted = shared_labels(labels[:4], labels)
    for i in range(4):
        for j in range(9):
            both = (
                int(labels[i] == labels[j])
                if labels.ndim == 1
                else int((labels[i] & labels[j]).sum())
            )
            assert counted[i, j] == both


@pytest.mark.parametrize("labels", [classes(8), concepts(8)], ids=["classes", "matrix"])
def test_triplets_are_all_of_them(labels: Tensor) -> None:
    relevance = shared_labels(labels, labels)
    anchor, better, worse = triplets(relevance)
    found = {
        (int(anchor[p]), int(better[p]), j)
        for p in range(len(anchor))
        for j in range(8)
        if worse[p, j]
    }
    expected = {
        (q, i, j)
        for q in range(8)
        for i in range(8)
        for j in range(8)
        if q not in (i, j) and relevance[q, i] > relevance[q, j]
    }
    assert found == expected
    assert len(expected) > 20


# -- HashNet ------------------------------------------------------------------------------


def test_hashnet_likelihood_is_the_weighted_sum_over_pairs() -> None:
    labels = classes(7)
    codes = torch.tanh(values(7))
    similar = shared_labels(labels, labels) > 0
    alpha = 10.0 / BITS
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    ones = sum(bool(similar[i, j]) for i, j in pairs)
    total = 0.0
    for i, j in pairs:
        t = alpha * float(codes[i] @ codes[j])
        s = float(similar[i, j])
        weight = len(pairs) / (ones if s else len(pairs) - ones)
        total += weight * (math.log(1 + math.exp(t)) - s * t)
    loss = hashnet.weighted_likelihood(codes, similar, alpha)
    assert float(loss) == pytest.approx(total / len(pairs), rel=1e-12)


@pytest.mark.parametrize("alike", [True, False])
def test_hashnet_with_one_kind_of_pair_is_the_plain_mean(alike: bool) -> None:
    codes = torch.tanh(values(4))
    similar = torch.full((4, 4), alike)
    theta = codes @ codes.T
    cost = torch.log1p(theta.exp()) - (theta if alike else 0)
    other = ~torch.eye(4, dtype=torch.bool)
    expected = cost[other].mean()
    assert torch.allclose(hashnet.weighted_likelihood(codes, similar, 1.0), expected)


def test_hashnet_does_not_overflow() -> None:
    codes = torch.full((3, BITS), 1e4, requires_grad=True)
    loss = hashnet.weighted_likelihood(codes, torch.zeros(3, 3, dtype=torch.bool), 1.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(codes.grad).all()


def test_hashnet_gradient() -> None:
    labels = classes(6)
    objective = hashnet.HashNet(BITS)._objective(None, None, labels)
    rows = torch.arange(6)
    z = values(6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: objective(x, rows, 0.3), z)


def test_hashnet_sharpens_as_the_release_does() -> None:
    """At share t of 10,000 iterations the release has beta = sqrt(1 + 0.005 * 10000 t)."""
    labels, rows, z = classes(6), torch.arange(6), values(6)
    method = hashnet.HashNet(BITS, alpha=0.5, beta=math.sqrt(51))
    objective = method._objective(None, None, labels)
    similar = shared_labels(labels, labels) > 0
    for share in (0.0, 0.4, 1.0):
        codes = torch.tanh(math.sqrt(1 + 0.005 * 10_000 * share) * z)
        expected = hashnet.weighted_likelihood(codes, similar, 0.5)
        assert torch.allclose(objective(z, rows, share), expected)


# -- DPSH ---------------------------------------------------------------------------------


def test_dpsh_likelihood_is_the_mean_over_pairs() -> None:
    labels = concepts(9)
    u, memory = values(4), values(9, seed=1)
    similar = shared_labels(labels[:4], labels) > 0
    total = 0.0
    for i in range(4):
        for j in range(9):
            t = 0.5 * float(u[i] @ memory[j])
            total += math.log1p(math.exp(-abs(t))) + max(t, 0.0) - float(similar[i, j]) * t
    loss = dpsh.negative_log_likelihood(u, memory, similar)
    assert float(loss) == pytest.approx(total / 36, rel=1e-12)


def test_dpsh_gradient_is_the_closed_form() -> None:
    """dL/du_i = sum_j (a_ij - s_ij) u_j / 2 + 2 eta (u_i - b_i), u_j of the memory held fixed."""
    labels = classes(9)
    u = values(4).requires_grad_()
    memory = values(9, seed=1)
    similar = (shared_labels(labels[:4], labels) > 0).double()
    eta = 0.3
    loss = dpsh.negative_log_likelihood(u, memory, similar) + eta * dpsh.quantisation(u)
    (gradient,) = torch.autograd.grad(loss, u)
    a = torch.sigmoid(0.5 * u @ memory.T)
    expected = 0.5 * (a - similar) @ memory / (4 * 9)
    expected = expected + 2 * eta * (u - torch.where(u >= 0, 1.0, -1.0)) / u.numel()
    assert torch.allclose(gradient, expected, rtol=1e-12)
    assert torch.autograd.gradcheck(
        lambda x: dpsh.negative_log_likelihood(x, memory, similar) + dpsh.quantisation(x), u
    )


def test_dpsh_remembers_the_outputs_of_all_rows() -> None:
    objective = dpsh.PairwiseLikelihood(classes(6), BITS, eta=0.1)
    first, second = values(3).float().requires_grad_(), values(3, seed=1).float()
    objective(first, torch.tensor([4, 0, 2]), 0.0).backward()
    objective(second, torch.tensor([1, 3, 5]), 0.0)
    expected = torch.stack([first[1], second[0], first[2], second[1], first[0], second[2]])
    assert torch.equal(objective.memory, expected.detach())
    assert not objective.memory.requires_grad


# -- DSRH ---------------------------------------------------------------------------------


def test_dsrh_ranking_loss_is_the_loop_over_lists() -> None:
    labels = concepts(7)
    codes = torch.tanh(values(7))
    relevance = shared_labels(labels, labels).double()
    margin = 0.2
    total, count = 0.0, 0
    for q in range(7):
        others = [i for i in range(7) if i != q]
        gains = sorted((2 ** float(relevance[q, i]) - 1 for i in others), reverse=True)
        Z = sum(gain / math.log2(1 + rank) for rank, gain in enumerate(gains, start=1))
        distance = [(1 - float(codes[q] @ codes[i]) / BITS) / 2 for i in range(7)]
        for i in others:
            for j in others:
                if relevance[q, i] > relevance[q, j]:
                    weight = (2 ** float(relevance[q, i]) - 2 ** float(relevance[q, j])) / Z
                    total += weight * max(0.0, distance[i] - distance[j] + margin)
                    count += 1
    loss = dsrh.ranking_loss(codes, relevance, margin)
    assert float(loss) == pytest.approx(total / count, rel=1e-10)


def test_dsrh_distance_of_codes_is_the_share_of_differing_bits() -> None:
    """With no margin a triplet in the right order costs nothing, in the wrong one its gap."""
    query, near, far = [1.0] * 8, [1.0] * 7 + [-1.0], [-1.0] * 8
    relevance = torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]])
    right = torch.tensor([query, near, far])
    assert dsrh.ranking_loss(right, relevance, 0.0) == 0
    wrong = torch.tensor([query, far, query])
    # query 0: better at distance 1, worse at 0; query 1 (far): better and worse both at 1
    assert float(dsrh.ranking_loss(wrong, relevance, 0.0)) == pytest.approx(0.5)


def test_dsrh_balance_is_half_the_squared_mean_code() -> None:
    codes = values(6)
    expected = 0.5 * sum(float(codes[:, k].mean()) ** 2 for k in range(BITS)) / BITS
    assert float(dsrh.balance(codes)) == pytest.approx(expected, rel=1e-12)


# -- DSCH and DRSCH -----------------------------------------------------------------------


def test_affinity_of_codes_is_weighted_hamming_turned_affine() -> None:
    """-sum w^2 h h' = 2 * (weights of the bits that differ) - sum w^2."""
    codes = torch.where(values(6) >= 0, 1.0, -1.0).double()
    weights = values(1, seed=3)[0]
    H = dsch.affinity(codes, weights)
    for i in range(6):
        for j in range(6):
            differ = codes[i] != codes[j]
            hamming = float((weights.square() * differ).sum())
            expected = 2 * hamming - float(weights.square().sum())
            assert float(H[i, j]) == pytest.approx(expected)


def test_dsch_triplet_loss_is_the_loop_over_triplets() -> None:
    labels = classes(7)
    relevance = shared_labels(labels, labels)
    H = dsch.affinity(torch.tanh(values(7)), values(1, seed=3)[0])
    terms = [
        max(float(H[q, i] - H[q, j]), -0.5)
        for q in range(7)
        for i in range(7)
        for j in range(7)
        if i != q and labels[i] == labels[q] and labels[j] != labels[q]
    ]
    loss = dsch.triplet_loss(H, relevance, floor=-0.5)
    assert float(loss) == pytest.approx(np.mean(terms), rel=1e-12)
    assert min(terms) == -0.5  # the floor is met, so it is tested


def test_drsch_consistency_is_the_mean_of_signed_affinities() -> None:
    labels = classes(7)
    H = dsch.affinity(torch.tanh(values(7)), values(1, seed=3)[0])
    terms = [
        (1.0 if labels[i] == labels[j] else -1.0) * float(H[i, j])
        for i in range(7)
        for j in range(7)
        if i != j
    ]
    relevance = shared_labels(labels, labels).double()
    loss = dsch.adjacency_consistency(H, relevance)
    assert float(loss) == pytest.approx(np.mean(terms), rel=1e-6)


def test_dsch_weights_keep_their_sum_whatever_the_gradient_does() -> None:
    objective = dsch.WeightedTriplets(classes(8), BITS, beta=10.0, consistency=0.0)
    with torch.no_grad():
        objective.free_weights.copy_(torch.tensor([1.0, 7.0, 0.1, 2.0, -3.0]))
    assert float(objective.weights.detach().square().sum()) == pytest.approx(BITS, rel=1e-6)


@pytest.mark.parametrize("consistency", [0.0, 0.5])
def test_dsch_gradient(consistency: float) -> None:
    objective = dsch.WeightedTriplets(classes(7), BITS, 10.0, consistency).double()
    rows = torch.arange(7)
    z = 0.1 * values(7)
    assert torch.autograd.gradcheck(lambda x: objective(x, rows, 0.5), z.requires_grad_())


# -- DH -----------------------------------------------------------------------------------


def test_dh_terms_are_their_formulas() -> None:
    h = torch.tanh(values(6))
    quantised = sum(0.5 * (sign(float(v)) - float(v)) ** 2 for v in h.flatten())
    assert float(dh.quantisation(h)) == pytest.approx(quantised / 6, rel=1e-12)
    centred = (h - h.mean(dim=0)).numpy()
    assert float(dh.variance(h)) == pytest.approx(0.5 * np.trace(centred @ centred.T) / 6)
    for shape in ((3, 5), (5, 3)):
        W = values(*shape, seed=2)
        small = W.numpy() if shape[0] <= shape[1] else W.numpy().T
        expected = 0.5 * np.linalg.norm(small @ small.T - np.eye(3)) ** 2
        assert float(dh.orthogonality(W)) == pytest.approx(expected, rel=1e-12)


def test_dh_orthogonality_gradient_is_the_paper_s() -> None:
    W = values(3, 5).requires_grad_()
    (gradient,) = torch.autograd.grad(dh.orthogonality(W), W)
    assert torch.allclose(gradient, 2 * (W @ W.T - torch.eye(3, dtype=torch.float64)) @ W)


def test_dh_gradient_through_the_layers() -> None:
    layers = torch.nn.ModuleList([torch.nn.Linear(4, 6), torch.nn.Linear(6, 3)]).double()
    method = dh.DH(3, lambda1=0.5, lambda2=2.0, lambda3=0.1)
    objective = method._objective(SimpleNamespace(linear=list(layers)), None, None)
    x = values(8, 4)
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]

    def loss(*parameters: Tensor) -> Tensor:
        state = dict(zip(names, parameters, strict=True))
        outputs = x
        total = torch.zeros((), dtype=torch.float64)
        for number in range(2):
            weight, bias = state[f"{number}.weight"], state[f"{number}.bias"]
            outputs = outputs @ weight.T + bias
            if number == 0:
                outputs = torch.tanh(outputs)
            total = total + 2.0 * dh.orthogonality(weight)
            total = total + 0.1 * 0.5 * (weight.square().sum() + bias.square().sum())
        codes = torch.tanh(outputs)
        return total + dh.quantisation(codes) - 0.5 * dh.variance(codes)

    parameters = [p.detach().clone().requires_grad_() for p in layers.parameters()]
    assert torch.autograd.gradcheck(loss, parameters)
    # ... and the objective is that sum
    outputs = layers[1](torch.tanh(layers[0](x)))
    assert torch.allclose(objective(outputs, torch.arange(8), 0.0), loss(*parameters))


# -- DeepBit ------------------------------------------------------------------------------


def test_deepbit_terms_are_their_formulas() -> None:
    F = values(6)
    b = (np.sign(F.numpy()) + 1) / 2
    L1 = np.square((b - 0.5) - F.numpy()).sum() / 6
    L2 = np.square(b.mean(axis=0) - 0.5).sum()
    assert float(deepbit.quantisation(F)) == pytest.approx(L1, rel=1e-12)
    assert float(deepbit.evenness(F)) == pytest.approx(L2, rel=1e-12)
    turned = torch.stack([values(6, seed=1), values(6, seed=2)])
    angles = torch.tensor([5.0, -10.0], dtype=torch.float64)
    L3 = 0.0
    for t in range(2):
        weight = math.exp(-(float(angles[t]) ** 2) / (2 * 10.0**2))
        b_t = (np.sign(turned[t].numpy()) + 1) / 2
        L3 += weight * np.square(b_t - b).sum() / 6
    loss = deepbit.rotation_invariance(F, turned, angles, sigma=10.0)
    assert float(loss) == pytest.approx(L3, rel=1e-12)


def test_deepbit_gradients_are_the_closed_forms() -> None:
    F = values(6).requires_grad_()
    b = (F >= 0).double()
    (L1,) = torch.autograd.grad(deepbit.quantisation(F), F)
    assert torch.allclose(L1, -2 * ((b - 0.5) - F) / 6)
    assert torch.autograd.gradcheck(deepbit.quantisation, F)
    (L2,) = torch.autograd.grad(deepbit.evenness(F), F)
    assert torch.allclose(L2, (2 * (b.mean(dim=0) - 0.5) / 6).expand(6, BITS))
    turned = values(6, seed=1)[None].requires_grad_()
    angles = torch.tensor([5.0], dtype=torch.float64)
    weight = math.exp(-25.0 / 200.0)
    loss = deepbit.rotation_invariance(F, turned, angles, sigma=10.0)
    at_rest, at_turned = torch.autograd.grad(loss, (F, turned))
    flips = (turned[0] >= 0).double() - b
    assert torch.allclose(at_turned[0], 2 * weight * flips / 6)
    assert torch.allclose(at_rest, -2 * weight * flips / 6)


def test_rotation_turns_pictures_by_right_angles_exactly() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), dtype=np.uint8)
    turned = deepbit.rotate(pixels, 90.0)
    assert np.array_equal(turned, np.rot90(pixels, 1, axes=(1, 2))) or np.array_equal(
        turned, np.rot90(pixels, -1, axes=(1, 2))
    )
    assert np.array_equal(deepbit.rotate(pixels, 0.0), pixels)


def test_rotation_keeps_proportions() -> None:
    """A dot at a known place of a wide picture lands where the angle puts it."""
    pixels = np.zeros((1, 41, 81, 3), np.uint8)
    pixels[0, 18:23, 58:63] = 255  # 20 pixels to the right of the centre
    turned = deepbit.rotate(pixels, 30.0)[0, :, :, 0].astype(float)
    y, x = (np.indices(turned.shape) * turned).sum(axis=(1, 2)) / turned.sum()
    assert math.hypot(x - 40, y - 20) == pytest.approx(20, abs=0.3)
    assert abs(math.degrees(math.atan2(y - 20, x - 40))) == pytest.approx(30, abs=1.0)


def test_deepbit_s_release_trains_nothing_in_stage_one() -> None:
    F = values(6).requires_grad_()
    paper = deepbit.DeepBit(BITS)._objective(None, None, None)
    release = deepbit.DeepBit(BITS, variant="release")._objective(None, None, None)
    assert torch.equal(paper(F, None, 0.0), release(F, None, 0.0))
    (gradient,) = torch.autograd.grad(release(F, None, 0.0), F)
    assert (gradient == 0).all()
    (gradient,) = torch.autograd.grad(paper(F, None, 0.0), F)
    assert (gradient != 0).any()


def test_deepbit_s_release_cuts_at_the_mean_after_a_relu() -> None:
    X = np.random.default_rng(0).normal(size=(50, 4))
    settings = {"epochs": 1, "device": "cpu", "weight_decay": 0.0}
    paper, release = (
        deepbit.DeepBit(BITS, variant=variant, **settings).fit(X)
        for variant in ("paper", "release")
    )
    assert abs(paper.threshold_) < release.threshold_
    before = release.outputs(X) + release.threshold_
    assert np.maximum(before, 0).mean() == pytest.approx(release.threshold_, abs=1e-5)


# -- GreedyHash and Bi-half -----------------------------------------------------------------


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


def test_similarity_loss_is_the_mean_over_pairs() -> None:
    codes, features = values(6), values(6, 9, seed=1)
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    total = sum(
        (cosine(codes[i], codes[j]) - cosine(features[i], features[j])) ** 2 for i, j in pairs
    )
    loss = greedyhash.similarity_loss(codes, features)
    assert float(loss) == pytest.approx(total / len(pairs), rel=1e-12)
    assert torch.autograd.gradcheck(
        lambda x: greedyhash.similarity_loss(x, features), codes.requires_grad_()
    )


def test_greedyhash_penalty_is_the_third_power() -> None:
    z = values(4)
    expected = sum(abs(abs(float(v)) - 1) ** 3 for v in z.flatten()) / z.numel()
    assert float(greedyhash.penalty(z)) == pytest.approx(expected)


def test_straight_through_takes_bits_forward_and_the_gradient_back() -> None:
    z = values(3).requires_grad_()
    codes = straight_through(torch.where(z >= 0, 1.0, -1.0), z)
    assert torch.allclose(codes.detach().abs(), torch.ones_like(z))
    weights = values(3, seed=1)
    (gradient,) = torch.autograd.grad((codes * weights).sum(), z)
    assert torch.equal(gradient, weights)


@pytest.mark.parametrize("rows", [6, 7])
def test_half_half_codes_are_the_cheapest_transport(rows: int) -> None:
    """Of all assignments with half of a column at +1, the one nearest to the outputs."""
    z = values(rows, 3)
    codes = bihalf.half_half(z)
    for k in range(3):
        candidates = [
            [1.0 if i in ones else -1.0 for i in range(rows)]
            for ones in map(set, itertools.combinations(range(rows), rows // 2))
        ]
        cost = [np.square(z[:, k].numpy() - np.array(c)).sum() for c in candidates]
        assert codes[:, k].tolist() == candidates[int(np.argmin(cost))]


def test_bihalf_gradient_has_the_added_term() -> None:
    """dL/du = dL/db + gamma (u - b) / entries."""
    z, features = values(6).requires_grad_(), values(6, 9, seed=1)
    objective = bihalf.BiHalf(BITS, gamma=6.0)._objective(None, features, None)
    (gradient,) = torch.autograd.grad(objective(z, torch.arange(6), 0.0), z)
    codes = bihalf.half_half(z.detach()).requires_grad_()
    (plain,) = torch.autograd.grad(greedyhash.similarity_loss(codes, features), codes)
    expected = plain + 6.0 * (z - codes) / z.numel()
    assert torch.allclose(gradient, expected)


# -- CIBHash ------------------------------------------------------------------------------


def test_contrastive_loss_is_the_loop_over_views() -> None:
    codes, temperature = values(8), 0.3
    total = 0.0
    for i in range(8):
        partner = (i + 4) % 8
        others = [math.exp(cosine(codes[i], codes[j]) / temperature) for j in range(8) if j != i]
        own = math.exp(cosine(codes[i], codes[partner]) / temperature)
        total -= math.log(own / sum(others))
    loss = cibhash.contrastive_loss(codes, temperature)
    assert float(loss) == pytest.approx(total / 8, rel=1e-12)


def test_bernoulli_divergence_is_the_sum_over_bits() -> None:
    one, other = values(4), values(4, seed=1)
    total = 0.0
    for a, b in zip(one.flatten().tolist(), other.flatten().tolist(), strict=True):
        p, q = 1 / (1 + math.exp(-a)), 1 / (1 + math.exp(-b))
        total += p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    divergence = cibhash.bernoulli_divergence(one, other)
    assert float(divergence) == pytest.approx(total / 4, rel=1e-12)
    assert float(cibhash.bernoulli_divergence(one, one)) == pytest.approx(0, abs=1e-12)
    assert torch.isfinite(cibhash.bernoulli_divergence(1e3 * one, -1e3 * one))


def test_cibhash_draws_bits_with_the_probabilities() -> None:
    objective = cibhash.CIBHash(BITS, beta=0.0)._objective(None, None, None)
    sure = torch.cat([values(4).sign() * 50] * 2)  # sigmoid is 0 or 1: nothing left to chance
    assert torch.allclose(
        objective(sure, torch.arange(4), 0.0), cibhash.contrastive_loss(sure.sign(), 0.3)
    )
    torch.manual_seed(0)
    unsure = values(8)
    drawn = [float(objective(unsure, torch.arange(4), 0.0)) for _ in range(4)]
    assert len(set(drawn)) > 1


# -- SDC ----------------------------------------------------------------------------------


def test_calibration_is_the_quantile_function() -> None:
    target = sdc.calibration(50, 2.0)
    for i in range(50):
        x = (float(target[i]) + 1) / 2
        if target[i] > 0:  # Beta(2, 2) has the distribution function 3 x^2 - 2 x^3
            assert 3 * x**2 - 2 * x**3 == pytest.approx((i + 0.5) / 50, abs=1e-9)
    assert (target[:25] == 0).all()
    assert (target.diff() >= 0).all()


def test_calibration_loss_sorts_pairs_by_the_features() -> None:
    codes, features = values(6), values(6, 9, seed=1)
    pairs = sorted(
        itertools.combinations(range(6), 2),
        key=lambda pair: cosine(features[pair[0]], features[pair[1]]),
    )
    target = sdc.calibration(len(pairs), 5.0)
    total = sum(
        abs(cosine(codes[i], codes[j]) - float(t)) for (i, j), t in zip(pairs, target, strict=True)
    )
    loss = sdc.calibration_loss(codes, features, target)
    assert float(loss) == pytest.approx(total / len(pairs), rel=1e-12)


def test_batch_standardisation_has_mean_0_and_variance_1() -> None:
    z = standardize_batch(values(50) * 3 + 7)
    assert torch.allclose(z.mean(dim=0), torch.zeros(BITS, dtype=z.dtype), atol=1e-12)
    assert torch.allclose(z.std(dim=0, correction=0), torch.ones(BITS, dtype=z.dtype), atol=1e-5)


# -- CroVCA -------------------------------------------------------------------------------


def test_alignment_is_the_cross_entropy_with_the_other_bits() -> None:
    one, other = values(4).requires_grad_(), values(4, seed=1).requires_grad_()
    total = 0.0
    for a, b in zip(one.flatten().tolist(), other.flatten().tolist(), strict=True):
        p = 1 / (1 + math.exp(-a))
        total -= math.log(p if b > 0 else 1 - p)
    loss = crovca.alignment(one, other)
    assert float(loss.detach()) == pytest.approx(total / one.numel(), rel=1e-12)
    loss.backward()
    assert one.grad is not None
    assert other.grad is None


def test_coding_rate_is_the_sum_over_eigenvalues() -> None:
    z = values(9)
    unit = z / z.norm(dim=1, keepdim=True)
    eigenvalues = np.linalg.eigvalsh((unit.T @ unit).numpy())
    rate = sum(math.log(1 + BITS / (9 * 0.05) * float(v)) for v in eigenvalues) / 2
    expected = rate * (9 + BITS) / (9 * BITS)
    assert float(crovca.coding_rate(z, 0.05)) == pytest.approx(expected, rel=1e-10)
    collapsed = torch.ones_like(z)
    assert crovca.coding_rate(collapsed, 0.05) < crovca.coding_rate(z, 0.05)


# -- CSQ and OrthoHash --------------------------------------------------------------------


@pytest.mark.parametrize(("number", "bits"), [(10, 16), (32, 16), (10, 12), (17, 24), (40, 8)])
def test_centres_are_far_apart(number: int, bits: int) -> None:
    centres = csq.hash_centres(number, bits, np.random.default_rng(0))
    assert centres.shape == (number, bits)
    assert set(np.unique(centres)) == {-1.0, 1.0}
    distances = (bits - centres @ centres.T) / 2
    apart = distances[~np.eye(number, dtype=bool)]
    if bits == 16:  # Hadamard
        assert apart.min() == bits / 2
    else:
        assert apart.mean() >= 0.9 * bits / 2
        assert apart.min() > 0 or number > bits


def test_centres_of_several_concepts_are_the_majority() -> None:
    centres = csq.hash_centres(4, 6, np.random.default_rng(0))
    concepts = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 0, 1]], np.float32)
    found = csq.centres_of(concepts, centres, np.random.default_rng(1))
    ties: dict[int, set[float]] = {}
    for row, own in zip(found, concepts, strict=True):
        for k in range(6):
            votes = sum(centres[c, k] for c in range(4) if own[c])
            if votes:
                assert row[k] == np.sign(votes)
            else:
                ties.setdefault(k, set()).add(row[k])
    assert ties
    assert all(len(bits) == 1 for bits in ties.values())


def test_central_similarity_and_quantisation() -> None:
    codes = torch.tanh(values(4))
    centres = values(4, seed=1).sign()
    entropy = cosh = 0.0
    for h, c in zip(codes.flatten().tolist(), centres.flatten().tolist(), strict=True):
        p = (h + 1) / 2
        entropy -= math.log(p if c > 0 else 1 - p)
        cosh += math.log(math.cosh(abs(h) - 1))
    assert float(csq.central_similarity(codes, centres)) == pytest.approx(entropy / codes.numel())
    assert float(csq.quantisation(codes)) == pytest.approx(cosh / codes.numel())
    assert torch.isfinite(csq.quantisation(1e4 * values(2)))


@pytest.mark.parametrize("several", [False, True])
def test_orthohash_is_the_softmax_of_angles_with_a_margin(several: bool) -> None:
    z = values(6)
    own = torch.zeros(6, 4, dtype=z.dtype)
    own[torch.arange(6), torch.arange(6) % 4] = 1
    if several:
        own[::2, 3] = 1
    targets = values(4, seed=1).sign()
    total = 0.0
    for i in range(6):
        logits = [8 * (cosine(z[i], targets[c]) - 0.2 * float(own[i, c])) for c in range(4)]
        normaliser = math.log(sum(map(math.exp, logits)))
        classes_of = [c for c in range(4) if own[i, c]]
        total -= sum(logits[c] - normaliser for c in classes_of) / len(classes_of)
    loss = orthohash.cosine_loss(z, targets, own, 8.0, 0.2)
    assert float(loss) == pytest.approx(total / 6, rel=1e-12)


@pytest.mark.parametrize(
    "method", [csq.CSQ(BITS), orthohash.OrthoHash(BITS)], ids=["CSQ", "OrthoHash"]
)
def test_gradients_of_the_centre_methods(method) -> None:
    objective = method._objective(None, values(6), classes(6))
    assert torch.autograd.gradcheck(
        lambda x: objective(x, torch.arange(6), 0.0), values(6).requires_grad_()
    )
