"""The weights that travel with the repository: what they are, and that they know their pictures."""

import hashlib

import numpy as np
import pytest

from ddh.backbones import create
from ddh.images import cifar10
from ddh.train.features import extract

SHIPPED = {
    "cifar10-resnet18": (
        25e6, 512, 32,
        "pseudo-codes for 70 epochs from byol for 70 epochs from codes for 120 epochs from "
        "byol for 465 epochs from random",
    ),
    "cifar10-efficientnet-lite0": (7e6, 1280, 224, "pseudo-codes for 41 epochs from imagenet"),
}  # fmt: skip


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(repository, request):
    path = repository / "weights" / f"{request.param}.safetensors"
    if not path.is_file():
        pytest.skip("the weights are not in this copy")
    return path


def test_they_are_small_and_say_where_they_come_from(shipped):
    size, dimensions, pixels, origin = SHIPPED[shipped.stem]
    assert shipped.stat().st_size < size
    network = create("auto", str(shipped))
    assert (network.dimensions, network.preprocessing.size) == (dimensions, pixels)
    assert network.origin.startswith(origin)


def test_the_model_card_names_their_digest(shipped):
    card = (shipped.parent / "README.md").read_text("utf-8")
    assert hashlib.sha256(shipped.read_bytes()).hexdigest() in card


def test_neighbours_by_their_features_are_of_one_kind(shipped, cifar10_root):
    """Test pictures that the network has never seen; labels are for the count alone."""
    data = cifar10(cifar10_root, "test")
    some = data.take(np.arange(200))
    features = extract(create("auto", str(shipped)), some.images, device="cpu").values
    unit = features - features.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -1)
    assert (some.labels[similarity.argmax(axis=1)] == some.labels).mean() > 0.6
