"""The network of the package: the same features as by torch, from the same pixels."""

import copy
import pickle
import sys
import tomllib

import numpy as np
import pytest

from ddh import DDH
from ddh._core.errors import InputError, ModelError
from ddh.backbones import OnnxNetwork, create
from ddh.images import ImageArray
from ddh.train import Extractor


@pytest.fixture(scope="module")
def photographs():
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng, crops = np.random.default_rng(0), []
    for array in load_sample_images().images * 4:
        left, top = (int(rng.integers(0, length - 300)) for length in (640, 427))
        crops.append(np.asarray(Image.fromarray(array).crop((left, top, left + 300, top + 300))))
    return np.stack(crops)


@pytest.fixture(scope="module")
def reference(photographs):
    """Features by torch in float32, of the pixels that every encoder gets."""
    import torch

    network = create().eval()
    pixels = np.stack(
        [network.preprocessing.apply(ImageArray(photographs).read(i)) for i in range(8)]
    )
    with torch.no_grad():
        return network(network.normalise(torch.from_numpy(pixels))).numpy()


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize(("encoder", "least"), [("onnx", 0.9998), ("onnx-int8", 0.985)])
def test_features_are_those_of_torch(photographs, reference, encoder, least):
    batch = next(Extractor(OnnxNetwork(encoder), "cpu").stream(ImageArray(photographs)))
    assert batch.features.dtype == np.float32
    assert cosines(batch.features, reference).min() > least


@pytest.mark.parametrize("encoder", ["onnx", "onnx-int8"])
def test_features_do_not_depend_on_the_batch(photographs, encoder):
    network = OnnxNetwork(encoder, size=64)
    pixels = np.ascontiguousarray(photographs[:, :64, :64])
    one_by_one = np.concatenate([network(pixels[i : i + 1]) for i in range(len(pixels))])
    assert np.allclose(network(pixels), one_by_one, rtol=1e-4, atol=1e-5)


def test_the_networks_are_package_data(repository):
    data = tomllib.loads((repository / "pyproject.toml").read_text())
    assert "backbones/networks/*" in data["tool"]["setuptools"]["package-data"]["ddh"]
    for encoder in ("onnx", "onnx-int8"):
        assert OnnxNetwork(encoder).path.stat().st_size < 8 << 20
    assert "Apache License" in OnnxNetwork().path.with_name("NOTICE.md").read_text()


def test_the_files_are_made_again_by_the_export(repository, monkeypatch, photographs):
    onnx = pytest.importorskip("onnx")
    import onnxruntime

    monkeypatch.syspath_prepend(str(repository / "tools"))
    export = __import__("export_onnx")
    layers = export.network_layers()
    for encoder in ("onnx", "onnx-int8"):
        bundled = onnx.load(OnnxNetwork(encoder).path)
        if encoder == "onnx":
            made = export.build(layers, half=True)
        else:
            made = export.build(layers, export.quantisation_of(bundled))
        session = onnxruntime.InferenceSession(made.SerializeToString())
        pixels = np.ascontiguousarray(photographs[:2, :64, :64])
        found = session.run(None, {"pixels": pixels})[0]
        assert np.allclose(found, OnnxNetwork(encoder, size=64)(pixels), rtol=1e-3, atol=1e-3)
    sys.modules.pop("export_onnx")


def test_quantisation_keeps_ranges_and_corrects_biases(repository, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.syspath_prepend(str(repository / "tools"))
    export = __import__("export_onnx")
    rng = np.random.default_rng(0)

    def conv(name, source, shape, groups=1):
        weight = rng.standard_normal(shape).astype(np.float32) / 5
        return export.Conv(name, source, weight, weight[:, 0, 0, 0] * 2, 1, groups, name != "c")

    layers = [
        conv("a", "scaled", (8, 3, 3, 3)),
        conv("b", "a", (8, 1, 3, 3), 8),
        conv("c", "b", (8, 8, 1, 1)),
    ]
    layers += [export.Add("d", "a", "c")]
    pixels = rng.integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    result = export.quantise(layers, pixels)
    exact, rounded = (
        export.session(export.build(layers, q, outputs=["d"])).run(None, {"pixels": pixels})[0]
        for q in (None, result)
    )
    assert (exact - rounded).std() < 0.05 * exact.std()
    assert np.abs((exact - rounded).mean(axis=(0, 2, 3))).max() < 0.01 * exact.std()
    sys.modules.pop("export_onnx")


def test_weights_are_rounded_for_their_inputs(repository, monkeypatch):
    """Where inputs go together, the errors of their weights cancel."""
    pytest.importorskip("onnx")
    monkeypatch.syspath_prepend(str(repository / "tools"))
    export = __import__("export_onnx")
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 32, 1, 1)).astype(np.float32)
    layer = export.Conv("a", "x", weight, np.zeros(8, np.float32), 1, 1, False)
    inputs = np.einsum("nfhw,fc->nchw", rng.random((4, 3, 12, 12)), rng.random((3, 32)))
    x = export.Rounded((inputs / inputs.max() * 255).astype(np.uint8), 0.01, 0)
    monkeypatch.setattr(export, "WEIGHT_LEVELS", 7)
    codes, scale = export.round_weights(layer, x)
    nearest = np.rint(weight / scale[:, None, None, None]).clip(-7, 7)
    unit = (weight, np.ones(8, np.float32))
    exact, found, plain = (
        export.convolve(layer, pair, x) for pair in (unit, (codes, scale), (nearest, scale))
    )
    assert (found - exact).std() < 0.5 * (plain - exact).std()
    sys.modules.pop("export_onnx")


def test_codes_of_another_encoder_are_of_another_model(photographs):
    models = [
        DDH(bits=8, size=32, encoder=e).fit(photographs) for e in ("onnx", "onnx-int8", "torch")
    ]
    assert len({model.model_id for model in models}) == 3
    recorded = [model._description()[0]["fitted"]["backbone"].get("encoder") for model in models]
    assert recorded == ["onnx", "onnx-int8", None]


def test_a_model_of_another_network_file_is_refused(photographs, tmp_path, monkeypatch):
    import ddh

    DDH(bits=8, size=32, encoder="onnx").fit(photographs).save(tmp_path / "model")
    monkeypatch.setattr("ddh.backbones.onnx_network.file_digest", lambda path: "f" * 64)
    with pytest.raises(ModelError, match="installed are imagenet onnx sha256:ffff"):
        ddh.load(tmp_path / "model")


def test_it_is_copied_and_pickled_without_its_session(photographs):
    network = OnnxNetwork(size=32)
    pixels = np.ascontiguousarray(photographs[:2, :32, :32])
    expected = network(pixels)
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert np.array_equal(other(pixels), expected)


def test_misuse_is_said(photographs):
    with pytest.raises(InputError, match="no encoder 'tf'"):
        OnnxNetwork("tf")
    with pytest.raises(InputError, match="224 x 224"):
        OnnxNetwork()(photographs)
    with pytest.raises(InputError, match="runs on the CPU"):
        Extractor(OnnxNetwork(), "cuda")
    with pytest.raises(InputError, match="cannot train"):
        DDH(encoder="onnx", depth="network").fit(photographs)
    with pytest.raises(InputError, match="efficientnet-lite0 with its own weights"):
        DDH(encoder="onnx", backbone="resnet18").fit(photographs)
    with pytest.raises(InputError, match="no encoder 'tflite'"):
        DDH(encoder="tflite").fit(photographs)
