"""The real CIFAR-10 and Oxford-17, where they are at hand."""

import numpy as np
import pytest

from ddh.images import Preprocessing, cifar10, flowers17, load_batches, pixel_digest

pytestmark = pytest.mark.data


def test_cifar10_is_the_official_one(cifar10_root):
    train = cifar10(cifar10_root, "train")
    test = cifar10(cifar10_root.parent, "test")
    assert train.images.pixels.shape == (50_000, 32, 32, 3)
    assert np.array_equal(np.bincount(train.labels), [5000] * 10)
    assert np.array_equal(np.bincount(test.labels), [1000] * 10)
    # The channel means that every CIFAR-10 recipe quotes: 0.4914, 0.4822, 0.4465.
    means = train.images.pixels.mean(axis=(0, 1, 2)) / 255
    assert np.allclose(means, [0.4914, 0.4822, 0.4465], atol=5e-5)
    assert train.classes[train.labels[0]] == "frog"
    assert not set(pixel_digest(test.images)) & set(pixel_digest(train.images))


def test_flowers17_is_complete(flowers17_root):
    data = flowers17(flowers17_root)
    assert len(data) == 1360
    batches = list(load_batches(data.images, Preprocessing(64), 16, indices=range(0, 1360, 40)))
    assert sum(map(len, batches)) == 34
    assert not any(batch.failures for batch in batches)


@pytest.mark.parametrize("size", [60, 96, 160])
def test_reduced_decoding_of_photographs_stays_close(flowers17_root, size):
    images = flowers17(flowers17_root).images
    preprocessing = Preprocessing(size)
    differences = []
    for i in range(0, 1360, 40):
        reduced = images.read_reduced(i, preprocessing.shorter_side)
        full = images.read(i)
        assert min(reduced.size) >= size
        assert reduced.width < 0.6 * full.width
        exact = preprocessing.apply(full).astype(int)
        differences.append(np.abs(preprocessing.apply(reduced) - exact).mean())
    assert np.mean(differences) < 2
