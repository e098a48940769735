"""What the presets do to the network."""

import numpy as np
import pytest

from ddh.backbones import save
from ddh.hashers import DDH
from ddh.images import open_images
from ddh.pretrain import pretrain_settings
from ddh.pretrain import recipe as module
from ddh.pretrain.recipe import preset_stages
from ddh.train.settings import PRESETS


def tiny(images=30, side=8):
    rng = np.random.default_rng(0)
    return open_images(rng.integers(0, 256, (images, side, side, 3), dtype=np.uint8))


def test_the_network_is_adapted_on_a_gpu():
    (stage,) = preset_stages("quality", 1000, gpu=True)
    assert preset_stages("quality", 1000, gpu=True, size=224) == (stage,)
    plan = pretrain_settings(224, True, stage, 1000)
    assert (plan.objective, plan.steps) == ("pseudo-codes", 1800)
    assert plan.keep_better
    for other in (
        preset_stages("quality", 1000, gpu=False),
        preset_stages("quality", 999, gpu=True),
        preset_stages("quality", 1000, gpu=True, size=64),  # which has no default length
        preset_stages("fast", 1000, gpu=True),
    ):
        assert not other


def test_ddh_follows_the_preset_and_lets_the_user_overrule_it(monkeypatch, tmp_path):
    """As if there were a GPU, with a short pretraining that takes 30 images for enough."""
    monkeypatch.setattr("ddh.hashers.ddh.device_type", lambda device: "cuda")
    monkeypatch.setattr(module, "SOME", 30)
    monkeypatch.setattr(module, "ADAPTATION", ({"epochs": 1, "batch_size": 15},))
    pixels = tiny().pixels

    def fit(**changes):
        settings = {"size": 65, "preset": "quality", "epochs": 1, "device": "cpu"} | changes
        model = DDH(4, **settings).fit(pixels)
        return model, model._backbone

    model, backbone = fit()
    assert backbone.name == "efficientnet-lite0"
    assert backbone.origin.startswith("byol for 1 epochs from imagenet")
    assert [entry["step"] for entry in model.pretraining_] == [2]
    assert model.settings_["flip_tta"]
    model, _ = fit(size=64)
    assert not hasattr(model, "pretraining_")
    own = {"backbone": "resnet18-tiny", "weights": "random", "size": 8}
    _, backbone = fit(**own, pretrain={"epochs": 2, "batch_size": 30})
    assert backbone.origin == "byol for 2 epochs from random"
    save(backbone, tmp_path / "mine.safetensors")
    model, backbone = fit(weights=str(tmp_path / "mine.safetensors"), backbone="auto", size=8)
    assert backbone.origin.startswith("byol for 2 epochs from random")
    assert not hasattr(model, "pretraining_")
    model, backbone = fit(**own)
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
