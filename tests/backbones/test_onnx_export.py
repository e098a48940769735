"""Backbones as ONNX files: the same features as by torch, and all that encoding needs."""

import copy
import json
import pickle
import sys

import numpy as np
import pytest

import ddh
from ddh import DDH
from ddh._core.errors import InputError, MissingDependency, ModelError
from ddh.backbones import ExportedNetwork, create, open_network, rebuild, save

onnx = pytest.importorskip("onnx")
FOREIGN = '{"name": "resnet18", "dimensions": 64, "preprocessing": "crop"}'


@pytest.fixture(scope="module")
def network():
    import torch

    from ddh.backbones import ResNet

    torch.manual_seed(0)
    network = ResNet("resnet18", 16, tiny_stem=True, width=8)
    network.train()
    network(torch.randn(16, 3, 16, 16))  # statistics of the batch norms
    network.origin = "byol for 1 epochs from random"
    return network.eval()


@pytest.fixture(scope="module")
def file(network, tmp_path_factory):
    from ddh.backbones import export_onnx

    path = tmp_path_factory.mktemp("networks") / "own.onnx"
    export_onnx(network, path)
    return path


@pytest.fixture(scope="module")
def pictures():
    return np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)


def features_of(network, pixels):
    import torch

    with torch.no_grad():
        return network(network.normalise(torch.from_numpy(pixels))).numpy()


def test_features_and_preprocessing_are_those_of_torch(network, file, pictures):
    exported = open_network("auto", file)
    assert exported.preprocessing == network.preprocessing
    assert (exported.name, exported.dimensions) == ("resnet18", 64)
    for count in (1, 40):
        expected = features_of(network, pictures[:count])
        assert np.allclose(exported(pictures[:count]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("efficientnet-lite0", 64, {}),
        ("cnn-f", None, {"width": 0.0625}),
        ("resnet50", 64, {"width": 8}),
    ],
)
def test_every_kind_of_network_can_be_exported(name, size, options, tmp_path, photograph):
    from ddh.backbones import export_onnx

    network = rebuild(name, size, options).eval()
    exported = export_onnx(network, tmp_path / "own.onnx")
    pixels = network.preprocessing.apply(photograph)[None].copy()
    expected = features_of(network, pixels)
    assert np.allclose(exported(pixels), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.fixture
def photograph():
    from PIL import Image
    from sklearn.datasets import load_sample_images

    return Image.fromarray(load_sample_images().images[0])


def test_exporting_leaves_the_network_as_it_was(network, tmp_path):
    import torch

    from ddh.backbones import export_onnx

    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    export_onnx(network.train(), tmp_path / "own.onnx")
    assert network.training
    assert all(p.requires_grad for p in network.eval().parameters())
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_origin_names_the_weights_and_the_file(network, tmp_path):
    from ddh.backbones import export_onnx

    save(network, tmp_path / "own.safetensors")
    weights = create("auto", tmp_path / "own.safetensors")
    exported = export_onnx(weights, tmp_path / "own.onnx")
    assert exported.origin.startswith(f"{weights.origin}, onnx sha256:")
    assert "byol for 1 epochs from random, file sha256:" in exported.origin
    described = onnx.load(tmp_path / "own.onnx").metadata_props
    assert json.loads(described[0].value)["origin"] == weights.origin


def test_a_model_contains_its_network(file, pictures, tmp_path):
    own = tmp_path / "own.onnx"
    own.write_bytes(file.read_bytes())
    model = DDH(bits=8, backbone="auto", weights=str(own)).fit(pictures)
    model.save(tmp_path / "model")
    own.unlink()
    again = ddh.load(tmp_path / "model")
    assert again.model_id == model.model_id
    assert np.array_equal(again.encode(pictures), model.encode(pictures))
    recorded = model._description()[0]["fitted"]["backbone"]
    assert (recorded["encoder"], recorded["packaged"]) == ("onnx", False)


def test_imagenet_weights_that_were_exported_are_contained_too(pictures, tmp_path):
    from ddh.backbones import export_onnx

    export_onnx(create("efficientnet-lite0", size=32), tmp_path / "lite0.onnx")
    model = DDH(bits=8, backbone="auto", weights=str(tmp_path / "lite0.onnx")).fit(pictures)
    model.save(tmp_path / "model")
    again = ddh.load(tmp_path / "model")
    assert isinstance(again._backbone, ExportedNetwork)
    assert np.array_equal(again.encode(pictures), model.encode(pictures))


def test_codes_of_another_file_are_of_another_model(network, file, pictures, tmp_path):
    import torch

    from ddh.backbones import export_onnx

    save(network, tmp_path / "own.safetensors")
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.conv1.weight += 0.01
    export_onnx(other, tmp_path / "other.onnx")
    files = (file, tmp_path / "own.safetensors", tmp_path / "other.onnx")
    models = [DDH(bits=8, backbone="auto", weights=str(f)).fit(pictures) for f in files]
    assert len({model.model_id for model in models}) == 3


def test_labels_may_come_from_an_exported_network(file, pictures):
    model = DDH(bits=8, size=32, label_weights=str(file), targets="binary", epochs=1)
    assert model.fit(pictures).encode(pictures).shape == (40, 1)


def test_it_is_copied_and_pickled_with_its_network(file, pictures):
    network = ExportedNetwork.read(file)
    expected = network(pictures)
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert np.array_equal(other(pictures), expected)


def test_a_wrong_translation_is_refused(network, tmp_path):
    """A forward pass that looks at its input is not what one trace of it says."""
    from ddh.backbones import export_onnx

    class Fickle(type(network)):
        def forward(self, pixels):
            return super().forward(pixels) * len(list(pixels))

    fickle = copy.deepcopy(network)
    fickle.__class__ = Fickle
    with pytest.raises(ModelError, match="other features as ONNX"):
        export_onnx(fickle, tmp_path / "own.onnx")
    assert not (tmp_path / "own.onnx").exists()


def test_damaged_and_foreign_files_are_named(file, tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ModelError, match=r"damaged.onnx cannot be used: .*`ddh export`"):
        open_network("auto", damaged)
    model = onnx.load(file)
    for properties in ({}, {"ddh": "{}"}, {"ddh": "resnet18"}, {"ddh": "[]"}, {"ddh": FOREIGN}):
        onnx.helper.set_model_props(model, properties)
        onnx.save(model, tmp_path / "foreign.onnx")
        with pytest.raises(ModelError, match=r"foreign.onnx does not say what pictures it takes"):
            open_network("auto", tmp_path / "foreign.onnx")
    with pytest.raises(InputError, match="no weights file"):
        open_network("auto", tmp_path / "none.onnx")


def test_misuse_is_said(network, file, pictures, tmp_path):
    from ddh.backbones import export_onnx

    with pytest.raises(InputError, match="16 pixels"):
        open_network("auto", file, size=32)
    with pytest.raises(InputError, match="holds resnet18, not cnn-f"):
        open_network("cnn-f", file)
    with pytest.raises(InputError, match="for encoding only"):
        create("auto", file)
    for wrong in ({"depth": "network"}, {"pretrain": 1.0}, {"encoder": "torch"}):
        with pytest.raises(InputError, match="for encoding only"):
            DDH(backbone="auto", weights=str(file), **wrong).fit(pictures)
    with pytest.raises(InputError, match="'onnx' with a file of `ddh export`"):
        DDH(backbone="auto", weights=str(file), encoder="onnx-int8").fit(pictures)
    with pytest.raises(InputError, match="runs on the CPU"):
        DDH(backbone="auto", weights=str(file), device="meta").fit(pictures)
    with pytest.raises(InputError, match=r"ends in \.onnx"):
        export_onnx(network, tmp_path / "own.pt")


def test_missing_libraries_are_named(network, file, tmp_path, monkeypatch):
    from ddh.backbones import export_onnx

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependency, match=r"pip install 'ddh\[export\]'"):
        export_onnx(network, tmp_path / "own.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependency, match="pip install onnxruntime"):
        open_network("auto", file)
