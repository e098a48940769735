"""Networks that turn pixels into features: CNN-F, EfficientNet-Lite, ResNet, any timm model.

EfficientNet-Lite0, the default, also comes as an `OnnxNetwork`, which encodes without torch; so
does any other network that `export_onnx` has written.
"""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ddh._core.errors import DDHWarning, InputError
from ddh._core.lazy import lazy_names, needs_torch
from ddh.backbones.onnx_network import NAME, NETWORKS, SUFFIX, ExportedNetwork, OnnxNetwork
from ddh.backbones.variants import VARIANTS, checked_file

if TYPE_CHECKING:
    from ddh.backbones.base import Backbone as Backbone
    from ddh.backbones.base import fold_batch_norm as fold_batch_norm
    from ddh.backbones.cnnf import CNNF as CNNF
    from ddh.backbones.cnnf import load_matconvnet as load_matconvnet
    from ddh.backbones.efficientnet_lite import EfficientNetLite as EfficientNetLite
    from ddh.backbones.onnx_export import export_onnx as export_onnx
    from ddh.backbones.resnet import ResNet as ResNet
    from ddh.backbones.timm_models import TimmBackbone as TimmBackbone

__all__ = [
    "Backbone", "CNNF", "ENCODERS", "EfficientNetLite", "ExportedNetwork", "NAMES", "Network",
    "OnnxNetwork", "ResNet", "TimmBackbone", "create", "default_encoder", "export_onnx",
    "fold_batch_norm", "is_exported", "load_matconvnet", "open_network", "rebuild", "save",
]  # fmt: skip

#: A network that gives features: of torch, or one that only encodes.
Network: TypeAlias = "Backbone | OnnxNetwork"

RESNETS = ("resnet18", "resnet34", "resnet50")
NAMES = ("cnn-f", *VARIANTS, *RESNETS, *(f"{name}-tiny" for name in RESNETS), "timm/NAME")
#: What runs a network: ONNX Runtime, in 8 bits or in floating point, or torch.
ENCODERS = (*NETWORKS, "torch")
DEFAULT_ENCODER = "onnx"

__getattr__ = lazy_names(
    "ddh.backbones",
    {
        "Backbone": "base",
        "fold_batch_norm": "base",
        "CNNF": "cnnf",
        "load_matconvnet": "cnnf",
        "EfficientNetLite": "efficientnet_lite",
        "export_onnx": "onnx_export",
        "ResNet": "resnet",
        "TimmBackbone": "timm_models",
    },
)


def default_encoder(name: str = NAME, weights: str | Path | None = "auto") -> str:
    """The encoder of a frozen network on a CPU: ONNX Runtime where the package has it."""
    return DEFAULT_ENCODER if (name, weights) == (NAME, "auto") else "torch"


def is_exported(weights: str | Path | None) -> bool:
    """Whether weights are an ONNX file, which ONNX Runtime encodes with and torch cannot load."""
    return Path(str(weights)).suffix == SUFFIX


def open_network(
    name: str = NAME, weights: str | Path | None = "auto", size: int | None = None
) -> "Network":
    """A network to encode with: of torch, as `create` makes it, or of an exported ONNX file.

    Parameters
    ----------
    name, weights, size
        As for `create`; `weights` may also be a file of `export_onnx`, with the name "auto".

    Examples
    --------
    >>> open_network("auto", "icons.onnx").dimensions  # doctest: +SKIP
    512
    """
    if not is_exported(weights):
        return create(name, weights, size)
    network = ExportedNetwork.read(str(weights), size)
    if name not in ("auto", network.name):
        raise InputError(f"{weights} holds {network.name}, not {name}: take the backbone 'auto'")
    return network


def create(
    name: str = "efficientnet-lite0", weights: str | Path | None = "auto", size: int | None = None
) -> "Backbone":
    """Create a backbone of torch, to be trained or frozen. `OnnxNetwork` is its lighter sibling.

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
    if is_exported(weights):
        raise InputError(
            f"{weights} is for encoding only, on ONNX Runtime: torch and training need the weights "
            "that it was exported from"
        )
    if name == "auto":
        return _described(weights, size)
    network = rebuild(name, size)
    if weights in (None, "random"):
        return network
    if weights == "auto":
        from ddh.backbones.efficientnet_lite import EfficientNetLite
        from ddh.backbones.timm_models import TimmBackbone

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


def rebuild(name: str, size: int | None, options: dict[str, Any] | None = None) -> "Backbone":
    """The bare network of a name, or of a saved model with its options; weights to be loaded."""
    options = options or {}
    with needs_torch(f"the backbone {name}"):
        if name in VARIANTS:
            from ddh.backbones.efficientnet_lite import EfficientNetLite

            return EfficientNetLite(name, size)
        if name.removesuffix("-tiny") in RESNETS:
            from ddh.backbones.resnet import ResNet

            options = {"tiny_stem": name.endswith("-tiny")} | options
            return ResNet(name.removesuffix("-tiny"), size, **options)
        if name == "cnn-f":
            from ddh.backbones.cnnf import CNNF

            if size not in (None, 224):
                raise InputError("cnn-f reads pictures of 224 pixels: its full layers fix the size")
            return CNNF(**options)
        if name.startswith("timm/"):
            from ddh.backbones.timm_models import TimmBackbone

            return TimmBackbone(name.removeprefix("timm/"), size)
    raise InputError(f"there is no backbone {name!r}; there are: {', '.join(NAMES)}")


def save(network: "Backbone", path: str | Path) -> None:
    """Write the weights of a backbone for `create("auto", path)`, in half precision."""
    from ddh.backbones.weights import write_weights

    description = {
        "name": network.name,
        "options": network.options(),
        "size": network.preprocessing.size,
        "origin": network.origin,
    }
    write_weights(Path(path), network.state_dict(), description)


def _described(weights: str | Path | None, size: int | None) -> "Backbone":
    with needs_torch("a backbone of a weights file"):
        from ddh.backbones.weights import description_of

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


def _load_own(network: "Backbone", path: Path, described: dict[str, Any]) -> "Backbone":
    if (network.name, network.options()) != (described["name"], described["options"]):
        raise InputError(
            f"{path.name} holds weights of {described['name']} {described['options'] or ''}, not "
            f"of {network.name} {network.options() or ''}: take the backbone 'auto'"
        )
    network.load_file(path)
    network.origin = f"{described['origin']}, {network.origin}"
    return network


def _from_file(network: "Backbone", path: Path) -> "Backbone":
    """Weights from a local file: the ImageNet file of that network, or a state of ours."""
    from ddh.backbones.cnnf import CNNF, load_matconvnet
    from ddh.backbones.efficientnet_lite import EfficientNetLite
    from ddh.backbones.weights import description_of

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
