"""Networks that turn pixels into features: CNN-F, EfficientNet-Lite, ResNet, any timm model."""

import warnings
from pathlib import Path
from typing import Any

from ddh._core.errors import DDHWarning, InputError
from ddh.backbones.base import Backbone, fold_batch_norm
from ddh.backbones.cnnf import CNNF, load_matconvnet
from ddh.backbones.efficientnet_lite import VARIANTS, EfficientNetLite
from ddh.backbones.resnet import DEPTHS, ResNet
from ddh.backbones.timm_models import TimmBackbone
from ddh.backbones.weights import checked_file, description_of, write_weights

__all__ = [
    "Backbone", "CNNF", "EfficientNetLite", "NAMES", "ResNet", "TimmBackbone", "create",
    "fold_batch_norm", "load_matconvnet", "rebuild", "save",
]  # fmt: skip

NAMES = ("cnn-f", *VARIANTS, "resnet18", "resnet50", "resnet18-tiny", "resnet50-tiny", "timm/NAME")


def create(
    name: str = "efficientnet-lite0", weights: str | Path | None = "auto", size: int | None = None
) -> Backbone:
    """Create a backbone.

    Parameters
    ----------
    name
        One of `NAMES`, such as "resnet18" or "timm/vit_small_patch16_224"; "auto" stands for the
        network of a weights file that `save` has written.
    weights
        "auto" (ImageNet weights where a pip package carries them, else random with a warning),
        None or "random" (random, without a warning), or a file.
    size
        Side of the input in pixels; by default the one that the network was made for.

    Examples
    --------
    >>> network = create("resnet18-tiny", weights="random")
    >>> network.dimensions
    512
    """
    if name == "auto":
        return _described(weights, size)
    network = rebuild(name, size)
    if weights in (None, "random"):
        return network
    if weights == "auto":
        if isinstance(network, EfficientNetLite):
            network.load_imagenet()
        elif isinstance(network, TimmBackbone):
            network = TimmBackbone(name.removeprefix("timm/"), size, pretrained=True)
        else:
            warnings.warn(
                f"{name} starts from random weights: no pip package carries trained ones; "
                "give a file with weights=PATH, or weights='random' if you mean it",
                DDHWarning,
                stacklevel=2,
            )
        return network
    return _from_file(network, Path(str(weights)))


def rebuild(name: str, size: int | None, options: dict[str, Any] | None = None) -> Backbone:
    """The bare network of a name, or of a saved model with its options; weights to be loaded."""
    options = options or {}
    if name in VARIANTS:
        return EfficientNetLite(name, size)
    if name.removesuffix("-tiny") in DEPTHS:
        options = {"tiny_stem": name.endswith("-tiny")} | options
        return ResNet(name.removesuffix("-tiny"), size, **options)
    if name == "cnn-f":
        if size not in (None, 224):
            raise InputError("cnn-f reads pictures of 224 pixels: its full layers fix the size")
        return CNNF(**options)
    if name.startswith("timm/"):
        return TimmBackbone(name.removeprefix("timm/"), size)
    raise InputError(f"there is no backbone {name!r}; there are: {', '.join(NAMES)}")


def save(network: Backbone, path: str | Path) -> None:
    """Write the weights of a backbone for `create("auto", path)`, in half precision."""
    description = {
        "name": network.name,
        "options": network.options(),
        "size": network.preprocessing.size,
        "origin": network.origin,
    }
    write_weights(Path(path), network.state_dict(), description)


def _described(weights: str | Path | None, size: int | None) -> Backbone:
    path = Path(str(weights))
    described = description_of(path)
    if described is None:
        if weights not in ("auto", "random", None) and not path.is_file():
            raise InputError(f"there is no weights file {path}")
        raise InputError(
            "the backbone 'auto' is the one of a weights file made by `ddh pretrain`: give such "
            f"a file, or name a backbone: {', '.join(NAMES)}"
        )
    network = rebuild(described["name"], size or described["size"], described["options"])
    return _load_own(network, path, described)


def _load_own(network: Backbone, path: Path, described: dict[str, Any]) -> Backbone:
    if (network.name, network.options()) != (described["name"], described["options"]):
        raise InputError(
            f"{path.name} holds weights of {described['name']} {described['options'] or ''}, not "
            f"of {network.name} {network.options() or ''}: take the backbone 'auto'"
        )
    network.load_file(path)
    network.origin = f"{described['origin']}, {network.origin}"
    return network


def _from_file(network: Backbone, path: Path) -> Backbone:
    """Weights from a local file: the ImageNet file of that network, or a state of ours."""
    checked_file(path)
    if (described := description_of(path)) is not None:
        return _load_own(network, path, described)
    if isinstance(network, CNNF) and path.suffix == ".mat":
        return load_matconvnet(path)
    if isinstance(network, EfficientNetLite) and path.suffix == ".pth":
        network.load_imagenet(path)
    else:
        network.load_file(path)
    return network
