"""Average precision against plain loops, over every order of the ties."""

from itertools import permutations

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.evaluation import DENOMINATORS, Protocol, Retrieval, Score, mean_average_precision
from ddh.evaluation.ranking import seeded_order


def codes(rng, rows, bits):
    return rng.choice(np.array([-1, 1], np.int8), (rows, bits))


def loop_average_precision(relevant, k, denominator):
    """AP of one ranked list of booleans, by the words of its definition."""
    total = sum(relevant)
    hits, summed = 0, 0.0
    for rank, good in enumerate(relevant[:k], start=1):
        if good:
            hits += 1
            summed += hits / rank
    below = {"relevant in top k": hits, "min(R, k)": min(total, k), "R": total}[denominator]
    return summed / below if below else 0.0


def orders_of_ties(distance):
    """Every ranking that sorts by distance."""
    for order in permutations(range(len(distance))):
        ranked = [distance[i] for i in order]
        if ranked == sorted(ranked):
            yield list(order)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 9, None])
def test_expected_value_is_the_mean_over_all_orders(denominator, k):
    rng = np.random.default_rng(7)
    queries, database = codes(rng, 12, 3), codes(rng, 6, 3)
    query_labels, labels = rng.integers(0, 2, 12), rng.integers(0, 2, 6)
    score = mean_average_precision(
        queries, database, query_labels, labels, k=k, denominator=denominator
    )
    for q in range(12):
        distance = [int((queries[q] != item).sum()) for item in database]
        relevant = (labels == query_labels[q]).tolist()
        values = [
            loop_average_precision([relevant[i] for i in order], k or 6, denominator)
            for order in orders_of_ties(distance)
        ]
        assert score.per_query[q] == pytest.approx(np.mean(values), abs=1e-12)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_one_group_of_ties(denominator):
    """All codes equal: the cut always goes through the only group."""
    same = np.ones((7, 4), np.int8)
    labels = np.array([1, 0, 1, 0, 0, 1, 0])
    for k in (1, 3, 4, 7):
        score = mean_average_precision(same[:1], same, [1], labels, k=k, denominator=denominator)
        values = [
            loop_average_precision([bool(labels[i]) for i in order], k, denominator)
            for order in permutations(range(7))
        ]
        assert score == pytest.approx(np.mean(values), abs=1e-12)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize(
    ("k", "bits"), [(1, 5), (10, 12), (60, 64), (60, 130), (500, 9), (None, 20)]
)
def test_legacy_equals_a_loop(denominator, k, bits):
    rng = np.random.default_rng(bits)
    queries, database = codes(rng, 15, bits), codes(rng, 80, bits)
    query_labels, labels = rng.integers(0, 4, 15), rng.integers(0, 3, 80)
    score = mean_average_precision(
        queries, database, query_labels, labels, k=k, ties="legacy", denominator=denominator, seed=3
    )
    order = seeded_order(80, 3)
    for q in range(15):
        distance = (queries[q] != database[order]).sum(axis=1)
        ranked = order[sorted(range(80), key=lambda i: (distance[i], i))]
        expected = loop_average_precision(
            (labels[ranked] == query_labels[q]).tolist(), k or 80, denominator
        )
        assert score.per_query[q] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_expected_is_the_mean_of_legacy_over_seeds(denominator):
    rng = np.random.default_rng(0)
    queries, database = codes(rng, 40, 6), codes(rng, 400, 6)
    labels = rng.integers(0, 5, 440)
    data = Retrieval(queries, database, labels[:40], labels[40:])
    expected = data.mean_average_precision(30, denominator=denominator)
    seeds = [
        data.mean_average_precision(30, ties="legacy", denominator=denominator, seed=seed)
        for seed in range(200)
    ]
    error = np.std(seeds) / np.sqrt(len(seeds))
    assert abs(np.mean(seeds) - expected) < 4 * error


def test_cut_through_a_large_group_stays_exact():
    """Hypergeometric weights at 200,000 ties: against scipy's own distribution."""
    from scipy.stats import hypergeom

    from ddh.evaluation.average_precision import expected_average_precision
    from ddh.evaluation.counts import DistanceCounts

    n, r, k = 200_000, 20_000, 1000
    counts = DistanceCounts(np.array([[50, n]], np.int32), np.array([[20, r]], np.int32))
    value = expected_average_precision(counts, k, "relevant in top k")[0]
    j = np.arange(1, 51)
    first = (20 / 50 * (1 + (j - 1) * 19 / 49) / j).sum()
    t = k - 50
    j = np.arange(1, t + 1)
    total = 0.0
    for h in range(t + 1):
        inside = (h / t * (21 + (j - 1) * (h - 1) / (t - 1)) / (50 + j)).sum()
        total += hypergeom.pmf(h, n, r, t) * (first + inside) / (20 + h)
    assert value == pytest.approx(total, rel=1e-9)


def test_multi_label_relevance_is_one_shared_concept():
    rng = np.random.default_rng(1)
    queries, database = codes(rng, 9, 8), codes(rng, 50, 8)
    query_labels, labels = rng.integers(0, 2, (9, 4)), rng.integers(0, 2, (50, 4))
    query_labels[0] = 0
    score = mean_average_precision(queries, database, query_labels, labels, k=None, ties="legacy")
    order = seeded_order(50, 0)
    for q in range(9):
        distance = (queries[q] != database[order]).sum(axis=1)
        ranked = order[np.argsort(distance, kind="stable")]
        relevant = [bool((labels[i] & query_labels[q]).any()) for i in ranked]
        assert score.per_query[q] == pytest.approx(loop_average_precision(relevant, 50, "R"))
    assert score.per_query[0] == 0.0
    assert score.empty == 1


def test_query_without_relevant_items_counts_zero_or_is_left_out():
    rng = np.random.default_rng(2)
    queries, database = codes(rng, 4, 8), codes(rng, 30, 8)
    query_labels, labels = [0, 1, 9, 1], rng.integers(0, 2, 30)
    zero = mean_average_precision(queries, database, query_labels, labels)
    skip = mean_average_precision(queries, database, query_labels, labels, without_relevant="skip")
    assert zero.per_query[2] == 0.0
    assert (zero.empty, skip.empty) == (1, 1)
    assert float(skip) == pytest.approx(float(zero) * 4 / 3)
    with pytest.raises(InputError, match="no query has a relevant item"):
        mean_average_precision(queries, database, [7, 7, 7, 7], labels, without_relevant="skip")


@pytest.mark.parametrize("ties", ["expected", "legacy"])
@pytest.mark.parametrize("bits", [3, 16, 70, 300])
def test_packed_codes_score_the_same(ties, bits):
    rng = np.random.default_rng(bits)
    queries, database = codes(rng, 10, bits), codes(rng, 100, bits)
    labels = rng.integers(0, 3, 110)
    plain = mean_average_precision(queries, database, labels[:10], labels[10:], k=20, ties=ties)
    packed = mean_average_precision(
        np.packbits(queries > 0, axis=1),
        np.packbits(database > 0, axis=1),
        labels[:10],
        labels[10:],
        k=20,
        ties=ties,
        bits=bits,
    )
    assert float(plain) == float(packed)


def test_torch_device_gives_the_same_counts():
    rng = np.random.default_rng(3)
    queries, database = codes(rng, 30, 24), codes(rng, 500, 24)
    for labels in (rng.integers(0, 3, 530), rng.integers(0, 2, (530, 5))):
        data = (queries, database, labels[:30], labels[30:])
        plain, torch = Retrieval(*data).counts, Retrieval(*data, device="cpu").counts
        assert np.array_equal(plain.items, torch.items)
        assert np.array_equal(plain.relevant, torch.relevant)


@pytest.mark.parametrize("k", [10, 499, None])
def test_torch_device_gives_the_same_ranking(k):
    rng = np.random.default_rng(3)
    queries, database = codes(rng, 30, 6), codes(rng, 500, 6)
    for labels in (rng.integers(0, 3, 530), rng.integers(0, 2, (530, 5))):
        data = (queries, database, labels[:30], labels[30:])
        plain = Retrieval(*data).mean_average_precision(k, ties="legacy", seed=2)
        torch = Retrieval(*data, device="cpu").mean_average_precision(k, ties="legacy", seed=2)
        np.testing.assert_array_equal(plain.per_query, torch.per_query)


def test_databases_larger_than_a_tile():
    rng = np.random.default_rng(4)
    queries, database = codes(rng, 3, 10), codes(rng, 70_000, 10)
    labels = rng.integers(0, 3, 70_003)
    counts = Retrieval(queries, database, labels[:3], labels[3:]).counts
    for q in range(3):
        distance = (queries[q] != database).sum(axis=1)
        relevant = labels[3:] == labels[q]
        assert np.array_equal(counts.items[q], np.bincount(distance, minlength=11))
        assert np.array_equal(counts.relevant[q], np.bincount(distance[relevant], minlength=11))


def test_string_classes():
    rng = np.random.default_rng(5)
    data = codes(rng, 20, 8)
    names = np.array(["cat", "dog"])[np.arange(20) % 2]
    by_name = mean_average_precision(data[:5], data[5:], names[:5], names[5:])
    by_number = mean_average_precision(data[:5], data[5:], np.arange(5) % 2, np.arange(5, 20) % 2)
    assert float(by_name) == float(by_number)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_codes": np.zeros((2, 8), np.int8)}, "must be binary"),
        ({"query_codes": np.full((2, 8), 0.5)}, "must be binary"),
        ({"query_codes": np.full((2, 8), np.nan)}, "must be binary"),
        ({"query_codes": np.ones((2, 9), np.int8)}, "encode both with one model"),
        ({"query_codes": np.ones(8, np.int8)}, "an \\(n, bits\\) array"),
        ({"query_codes": np.ones((0, 8), np.int8)}, "n > 0"),
        ({"query_codes": np.full((2, 8), 200, np.uint8)}, "give their length"),
        ({"bits": 9}, "have 8 bits, not 9"),
        ({"query_labels": [1]}, "query labels must have 2 rows"),
        ({"query_labels": [1, -1]}, "negative classes"),
        ({"query_labels": [0.5, 1.0]}, "fractions"),
        ({"query_labels": [[1, 0], [2, 0]]}, "0 and 1 only"),
        ({"query_labels": [[1, 0], [1, 0]]}, "do not match"),
        ({"k": 0}, "k is 1 or more"),
        ({"ties": "any"}, "'expected' or 'legacy'"),
        ({"denominator": "k"}, "there is no AP denominator 'k'"),
        ({"without_relevant": "one"}, "'zero' or 'skip'"),
        ({"query_images": np.zeros((2, 4, 4))}, "both sides"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {
        "query_codes": np.ones((2, 8), np.int8),
        "database_codes": -np.ones((3, 8), np.int8),
        "query_labels": [0, 1],
        "database_labels": [0, 1, 1],
    }
    with pytest.raises(InputError, match=message):
        mean_average_precision(**{**good, **change})


def test_packed_codes_with_bits_beyond_their_length_are_refused():
    with pytest.raises(InputError, match="spare bits after bit 5"):
        mean_average_precision(
            np.full((1, 1), 0xFF, np.uint8), np.zeros((1, 1), np.uint8), [0], [0], bits=5
        )


def test_a_query_that_is_in_the_database_is_refused():
    rng = np.random.default_rng(6)
    images = rng.integers(0, 255, (10, 4, 4, 3), dtype=np.uint8)
    data = codes(rng, 10, 8)
    labels = np.zeros(10, int)
    sides = {"query_images": images[:3], "database_images": images[3:]}
    mean_average_precision(data[:3], data[3:], labels[:3], labels[3:], **sides)
    images[7] = images[1]
    with pytest.raises(InputError, match="query 1 = item 4"):
        mean_average_precision(data[:3], data[3:], labels[:3], labels[3:], **sides)


def test_a_score_prints_its_protocol():
    data = np.ones((3, 8), np.int8)
    protocol = Protocol(
        data="CIFAR-10", backbone="Lite0", supervision="ImageNet labels", seeds=(4,)
    )
    score = mean_average_precision(data[:1], data[1:], [1], [1, 0], k=2, protocol=protocol)
    assert isinstance(score, Score)
    text = str(score)
    for part in (
        "mAP@2 0.7500",
        "CIFAR-10",
        "split labels ",
        "1 queries, 2 items, 8 bits",
        "relevant in top k",
        "ties expected",
        "symmetric",
        "Lite0",
        "ImageNet labels",
        "seeds 4",
    ):
        assert part in text
    assert Protocol.from_dict(score.protocol.as_dict()) == score.protocol


def test_a_fifth_of_the_cifar_protocol_takes_a_fifth_of_its_time_and_little_memory():
    """10,000 x 50,000 at 64 bits shall take 20 s of two cores and 1 GB; here 2,000 queries."""
    import time
    import tracemalloc

    rng = np.random.default_rng(8)
    queries, database = codes(rng, 2000, 64), codes(rng, 50_000, 64)
    labels = rng.integers(0, 10, 52_000)
    tracemalloc.start()
    start = time.process_time()
    mean_average_precision(queries, database, labels[:2000], labels[2000:])
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 4
    assert peak < 200e6
