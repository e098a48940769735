"""Which network a collection gets."""

import numpy as np
import pytest
from PIL import Image

from ddh.hashers import DDH
from ddh.images import open_images
from ddh.pretrain import recipe as module
from ddh.pretrain.recipe import Recipe, longer_side, recipe
from ddh.train.settings import PRESETS


def tiny(images=30, side=8):
    rng = np.random.default_rng(0)
    return open_images(rng.integers(0, 256, (images, side, side, 3), dtype=np.uint8))


def test_many_tiny_pictures_get_a_network_of_their_own(monkeypatch):
    monkeypatch.setattr(module, "MANY", 30)
    chosen = recipe("quality", tiny(), gpu=True)
    assert (chosen.backbone, chosen.weights) == ("resnet18-tiny", "random")
    assert [stage.get("objective", "byol") for stage in chosen.pretrain] == ["byol", "pseudo-codes"]
    for other in (
        recipe("quality", tiny(), gpu=False),
        recipe("quality", tiny(29), gpu=True),
        recipe("quality", tiny(side=65), gpu=True),
        recipe("fast", tiny(), gpu=True),
    ):
        assert other == Recipe("efficientnet-lite0", "auto")


def test_the_longer_side_of_files_some_of_them_broken(tmp_path):
    Image.new("RGB", (20, 50)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    assert longer_side(open_images(tmp_path)) == 50
    (tmp_path / "a.png").unlink()
    assert longer_side(open_images(tmp_path)) == 0


def test_ddh_follows_the_recipe_and_lets_the_user_overrule_it(monkeypatch):
    from ddh.backbones import ResNet

    made, trained = [], []

    def create(name, weights=None, size=None):
        made.append((name, weights))
        network = ResNet("resnet18", 8, tiny_stem=True, width=4)
        network.origin = weights
        return network

    def pretrain(backbone, source, stages, **named):
        trained.append(stages)
        return type("Done", (), {"history": []})

    monkeypatch.setattr("ddh.hashers.ddh.create", create)
    monkeypatch.setattr("ddh.hashers.ddh.pretrain_stages", pretrain)
    found = Recipe("resnet18-tiny", "random", [{"minutes": 7}])
    monkeypatch.setattr("ddh.hashers.ddh.recipe", lambda *given: found)
    fixed = {"bits": 4, "preset": "quality", "epochs": 1, "device": "cpu"}
    pictures = tiny().pixels
    model = DDH(**fixed).fit(pictures)
    assert model.settings_["flip_tta"]
    DDH(**fixed, pretrain={"epochs": 3}).fit(pictures)
    DDH(**fixed, weights="mine").fit(pictures)
    DDH(**fixed, backbone="resnet18").fit(pictures)
    assert made == [
        ("resnet18-tiny", "random"),
        ("resnet18-tiny", "random"),
        ("resnet18-tiny", "mine"),
        ("resnet18", "auto"),
    ]
    assert trained == [[{"minutes": 7}], [{"epochs": 3}]]


def test_ready_features_take_the_preset_for_pictures():
    X = np.random.default_rng(0).standard_normal((40, 6))
    assert DDH(bits=4, preset="quality", epochs=1, device="cpu").fit(X).images_ == 40


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_fits_pictures(preset):
    pixels = tiny().pixels
    model = DDH(bits=4, preset=preset, backbone="resnet18-tiny", weights="random", size=8,
                epochs=1, device="cpu").fit(pixels)  # fmt: skip
    assert model.transform(pixels).shape == (30, 4)
