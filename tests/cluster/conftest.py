"""A small real model, thousands of small real pictures, and the codes that they must get."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import ddh
from ddh.backbones import ResNet, export_onnx
from ddh.hashers import DDH
from ddh.images import ImageFolder
from ddh.train.features import extract

sys.path.append(str(Path(__file__).resolve().parents[1] / "index"))
from index_servers import MilvusServer, any_postgres, need_milvus

BITS = 48


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,594 pictures in twenty folders: the digits, and their negatives."""
    folder = tmp_path_factory.mktemp("photos")
    digits = np.round(load_digits().images * (255 / 16)).astype(np.uint8)
    for number, digit in enumerate(digits):
        for side, pixels in (("light", 255 - digit), ("dark", digit)):
            file = folder / side / str(number % 10) / f"{number:04d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file, compress_level=1)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """A narrow ResNet at 8 pixels that encodes a thousand pictures in about a second.

    It is an ONNX file: workers need not import torch, which takes seconds. Its random features are
    much alike, so random hyperplanes through their mean are its hash functions: hardly two pictures
    have the same code, and a mixed-up row is found out.
    """
    torch.manual_seed(0)
    backbone = ResNet("resnet18", 8, tiny_stem=True, width=8).eval()
    features = extract(backbone, ImageFolder(photos / "dark" / "3"), device="cpu").values
    learned = DDH(BITS, epochs=1, k1=10, k2=5, device="cpu").fit(features)
    learned._set_backbone(export_onnx(backbone, tmp_path_factory.mktemp("network") / "digits.onnx"))
    learned.hash_weight_ = np.random.default_rng(0).normal(size=(BITS, 64)).astype(np.float32)
    learned.hash_bias_ = -learned.hash_weight_ @ features.mean(axis=0)
    folder = tmp_path_factory.mktemp("model") / "digits.ddh"
    learned.save(folder)
    return folder


@pytest.fixture(scope="session")
def expected(photos: Path, model: Path) -> dict[str, bytes]:
    """Key -> code of every picture, encoded without Ray."""
    source = ImageFolder(photos)
    codes = {}
    for batch in ddh.load(model).encode_images(source):
        assert not batch.failures
        for i, code in zip(batch.indices, batch.codes, strict=True):
            codes[source.names[i]] = code.tobytes()
    assert len(set(codes.values())) > 0.9 * len(codes)
    return codes


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    server = any_postgres()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def milvus() -> Iterator[str]:
    """The address of a Milvus server."""
    need_milvus()
    server = MilvusServer()
    yield server.url
    server.stop()


@pytest.fixture
def some_photos(photos: Path, tmp_path: Path) -> Path:
    """360 of the pictures, in a folder that a test may change."""
    shutil.copytree(photos / "dark" / "1", tmp_path / "some" / "one")
    shutil.copytree(photos / "dark" / "2", tmp_path / "some" / "two")
    return tmp_path / "some"
