"""Protocols by name: sizes, shares of the classes, nothing on both sides, digests that repeat."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.evaluation import (
    PROTOCOLS,
    RetrievalSplit,
    per_class,
    protocol_images,
    split_by_name,
)

CIFAR = np.concatenate([np.repeat(np.arange(10), 5000), np.repeat(np.arange(10), 1000)])


@pytest.mark.parametrize(
    ("name", "query", "database", "train", "k"),
    [
        ("cifar10-10k-50k", 10_000, 50_000, 50_000, 1000),
        ("cifar10-1k-59k-5k", 1000, 59_000, 5000, None),
        ("cifar10-1k-54k-5k", 1000, 54_000, 5000, None),
    ],
)
def test_cifar10_protocols(name, query, database, train, k):
    split = split_by_name(name, CIFAR, seed=1)
    assert (len(split.query), len(split.database), len(split.train)) == (query, database, train)
    assert split.k == k
    assert np.bincount(CIFAR[split.query]).tolist() == [query // 10] * 10
    assert np.bincount(CIFAR[split.train]).tolist() == [train // 10] * 10
    assert not np.intersect1d(split.query, split.database).size
    inside = np.isin(split.train, split.database)
    assert inside.all() if name != "cifar10-1k-54k-5k" else not inside.any()
    assert split.digest == split_by_name(name, CIFAR, seed=1).digest
    if name != "cifar10-10k-50k":
        assert split.digest != split_by_name(name, CIFAR, seed=2).digest
        assert "seed 1" in split.title


def test_the_paper_asks_with_the_test_images():
    split = split_by_name("cifar10-10k-50k", CIFAR)
    assert split.query[0] == 50_000
    assert split.database.tolist() == list(range(50_000))


def test_multi_label_shares_with_rare_concepts():
    rng = np.random.default_rng(0)
    labels = (rng.random((3000, 6)) < [0.6, 0.5, 0.4, 0.3, 0.2, 0.05]).astype(np.uint8)
    labels[labels.sum(axis=1) == 0, 0] = 1
    split = per_class(labels, queries=10, training=30, seed=3)
    assert (len(split.query), len(split.train)) == (60, 180)
    assert (labels[split.query].sum(axis=0) >= 10).all()
    assert (labels[split.train].sum(axis=0) >= 30).all()
    assert len(split.database) == 2940
    assert split.k == 5000
    with pytest.raises(InputError, match="ask for fewer per class"):
        per_class(labels, queries=10, training=1000)


def test_nus_wide_protocols_draw_their_shares():
    labels = np.zeros((21 * 700, 21), np.uint8)
    labels[np.arange(len(labels)), np.arange(len(labels)) % 21] = 1
    split = split_by_name("nus-wide-21", labels)
    assert (len(split.query), len(split.train), split.k) == (2100, 10_500, 5000)
    with pytest.raises(InputError, match="ask for fewer per class"):
        split_by_name("nus-wide-21-paper", labels)
    many = np.zeros((21 * 5100, 21), np.uint8)
    many[np.arange(len(many)), np.arange(len(many)) % 21] = 1
    paper = split_by_name("nus-wide-21-paper", many)
    assert (len(paper.query), len(paper.train)) == (21_000, 84_000)


def test_coco17_asks_with_60_images_per_concept():
    rng = np.random.default_rng(0)
    labels = (rng.random((6000, 17)) < 0.1).astype(np.uint8)
    labels[np.arange(6000), rng.integers(0, 17, 6000)] = 1
    split = split_by_name("coco-17", labels)
    assert (len(split.query), len(split.database), split.k) == (17 * 60, 6000 - 17 * 60, 1000)
    assert len(np.unique(split.query)) == len(split.query)
    assert (labels[split.query].sum(axis=0) >= 60).all()
    assert np.array_equal(split.train, split.database)
    assert len(np.unique(split.labelled)) == len(split.labelled) < 17 * 200
    assert (labels[split.labelled].sum(axis=0) >= 200).all()
    assert np.isin(split.labelled, split.train).all()
    assert split.title == f"coco-17, seed 0 ({split.digest})"
    assert split.digest == split_by_name("coco-17", labels).digest
    assert split.digest != split_by_name("coco-17", labels, seed=1).digest


def test_a_rare_class_gives_all_of_its_images_as_labelled_ones():
    labels = np.zeros((6000, 17), np.uint8)
    labels[np.arange(6000), np.arange(6000) % 16] = 1
    labels[:150, 16] = 1
    split = split_by_name("coco-17", labels)
    counts = labels[split.labelled].sum(axis=0)
    assert counts[16] == labels[split.train, 16].sum() < 200
    assert (counts[:16] >= 200).all()


def test_oxford17_asks_with_20_images_per_class():
    labels = np.arange(1360) // 80
    split = split_by_name("oxford-17", labels)
    assert np.bincount(labels[split.query]).tolist() == [20] * 17
    assert (len(split.database), split.k) == (1020, 100)
    assert np.array_equal(split.train, split.database)


def test_unlabelled_images_are_not_drawn_and_columns_of_classes_are_refused():
    labels = np.tile([-1, 0, 1], 20)
    split = per_class(labels, queries=2, training=3)
    assert (len(split.query), len(split.train), len(split.database)) == (4, 6, 56)
    assert (labels[np.concatenate([split.query, split.train])] >= 0).all()
    with pytest.raises(InputError, match="0 and 1 only"):
        per_class(np.tile([0, 1, 2], 20)[:, None], queries=2, training=3)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="there are: cifar10-10k-50k"):
        split_by_name("cifar", CIFAR)
    with pytest.raises(InputError, match="all 60,000 images"):
        split_by_name("cifar10-10k-50k", CIFAR[:100])
    rows = np.arange(5)
    with pytest.raises(InputError, match="also in the database"):
        RetrievalSplit("own", rows, rows, rows[:0], None)
    with pytest.raises(InputError, match="also a training image"):
        RetrievalSplit("own", rows, rows + 5, rows, None)
    with pytest.raises(InputError, match="labelled image is not a training image"):
        RetrievalSplit("own", rows, rows + 5, rows + 5, None, labelled=rows + 6)
    assert len(PROTOCOLS) == 12
    with pytest.raises(InputError, match=r"parts=data\.parts"):
        split_by_name("mscoco-80", np.eye(3))
    with pytest.raises(InputError, match="flickr25k draws 7,000 images, there are 3"):
        split_by_name("flickr25k", np.eye(3))


def test_cifar10_protocols_i_and_ii():
    one, two = split_by_name("cifar10-i", CIFAR), split_by_name("cifar10-ii", CIFAR)
    assert one.digest == split_by_name("cifar10-10k-50k", CIFAR).digest
    np.testing.assert_array_equal(one.query, two.query)
    np.testing.assert_array_equal(one.database, two.database)
    assert np.bincount(CIFAR[two.train]).tolist() == [500] * 10
    assert two.train.max() < 50_000
    assert two.k == 1000
    assert two.digest != split_by_name("cifar10-ii", CIFAR, seed=1).digest


def test_flickr25k_draws_queries_and_training_images():
    split = split_by_name("flickr25k", np.ones((9000, 2)))
    assert (len(split.query), len(split.database), len(split.train)) == (2000, 7000, 5000)
    assert np.isin(split.train, split.database).all()
    assert split.k == 5000


def test_lists_are_the_split():
    parts = {"query": np.array([0, 1]), "database": np.array([2, 3]), "train": np.array([3])}
    split = split_by_name("imagenet-100", np.arange(4), parts=parts)
    assert (split.query.tolist(), split.database.tolist(), split.train.tolist()) == (
        [0, 1],
        [2, 3],
        [3],
    )
    assert split.k == 1000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cifar10-1k-54k-5k", "no CIFAR-10 batches"),
        ("coco-17", "no COCO-17"),
        ("oxford-17", "17flowers.tgz"),
        ("nus-wide-21", "unpack NUS-WIDE"),
        ("flickr25k", "unpack mirflickr25k"),
        ("mscoco-80", "train2014"),
        ("imagenet-100", "val_image"),
    ],
)
def test_each_protocol_looks_for_its_own_images(name, words, tmp_path):
    with pytest.raises(InputError, match=words):
        protocol_images(name, tmp_path)
