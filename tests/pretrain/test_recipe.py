"""Which network a collection gets."""

import numpy as np
import pytest
from PIL import Image

from ddh.backbones import create, save
from ddh.hashers import DDH
from ddh.images import open_images
from ddh.pretrain import pretrain_settings
from ddh.pretrain import recipe as module
from ddh.pretrain.recipe import Recipe, longer_side, recipe
from ddh.train.settings import PRESETS


def tiny(images=30, side=8):
    rng = np.random.default_rng(0)
    return open_images(rng.integers(0, 256, (images, side, side, 3), dtype=np.uint8))


def test_many_tiny_pictures_get_a_network_of_their_own():
    many = tiny(20_000, side=2)
    chosen = recipe("quality", many, gpu=True)
    assert (chosen.backbone, chosen.weights) == ("resnet18-tiny", "random")
    assert [stage.get("objective", "byol") for stage in chosen.pretrain] == ["byol", "pseudo-codes"]
    for other in (
        recipe("quality", many, gpu=False),
        recipe("quality", many.take(range(19_999)), gpu=True),
        recipe("fast", many, gpu=True),
    ):
        assert other == Recipe("efficientnet-lite0", "auto")


def test_the_network_is_adapted_to_photographs():
    photographs = open_images(np.zeros((1000, 65, 1, 3), np.uint8))
    chosen = recipe("quality", photographs, gpu=True)
    assert (chosen.backbone, chosen.weights) == ("efficientnet-lite0", "auto")
    (plan,) = (pretrain_settings(224, True, stage) for stage in chosen.pretrain)
    assert (plan.objective, plan.steps) == ("pseudo-codes", 900)
    assert plan.keep_better
    for other in (
        recipe("quality", photographs, gpu=False),
        recipe("quality", photographs.take(range(999)), gpu=True),
        recipe("fast", photographs, gpu=True),
    ):
        assert other == Recipe("efficientnet-lite0", "auto")


def test_the_longer_side_of_files_some_of_them_broken(tmp_path):
    Image.new("RGB", (20, 50)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    assert longer_side(open_images(tmp_path)) == 50
    (tmp_path / "a.png").unlink()
    assert longer_side(open_images(tmp_path)) == 0


def test_ddh_follows_the_recipe_and_lets_the_user_overrule_it(monkeypatch, tmp_path):
    """As if there were a GPU, and with a short recipe that takes 30 images for many."""
    monkeypatch.setattr("ddh.hashers.ddh.device_type", lambda device: "cuda")
    monkeypatch.setattr(module, "MANY", 30)
    monkeypatch.setattr(module, "STAGES", ({"epochs": 1, "batch_size": 15},))
    pixels = tiny().pixels

    def fit(**changes):
        model = DDH(4, preset="quality", epochs=1, device="cpu", size=8, **changes).fit(pixels)
        return model, model._backbone

    model, backbone = fit()
    assert backbone.name == create("resnet18-tiny", "random", 8).name
    assert backbone.origin == "byol for 1 epochs from random"
    assert [entry["step"] for entry in model.pretraining_] == [2]
    assert model.settings_["flip_tta"]
    _, backbone = fit(pretrain={"epochs": 2, "batch_size": 30})
    assert backbone.origin == "byol for 2 epochs from random"
    save(backbone, tmp_path / "mine.safetensors")
    model, backbone = fit(weights=str(tmp_path / "mine.safetensors"))
    assert backbone.origin.startswith("byol for 2 epochs from random")
    assert not hasattr(model, "pretraining_")
    model, backbone = fit(backbone="resnet18-tiny", weights="random")
    assert backbone.origin == "random"
    assert not hasattr(model, "pretraining_")


def test_ready_features_take_the_preset_for_pictures():
    X = np.random.default_rng(0).standard_normal((40, 6))
    assert DDH(bits=4, preset="quality", epochs=1, device="cpu").fit(X).images_ == 40


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_fits_pictures(preset):
    pixels = tiny().pixels
    model = DDH(bits=4, preset=preset, backbone="resnet18-tiny", weights="random", size=8,
                epochs=1, device="cpu").fit(pixels)  # fmt: skip
    assert model.transform(pixels).shape == (30, 4)
