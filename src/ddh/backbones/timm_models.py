"""Any model of the timm library, by its name there, when timm is installed."""

from torch import Tensor, nn

from ddh._core.errors import InputError, optional
from ddh.backbones.base import Backbone
from ddh.images import Preprocessing


class TimmBackbone(Backbone):
    """A timm network without its classifier; its own data settings become the preprocessing."""

    def __init__(self, model: str, size: int | None = None, *, pretrained: bool = False) -> None:
        timm = optional("timm", "timm models need timm: pip install 'ddh[timm]'")
        try:
            network = timm.create_model(model, pretrained=pretrained, num_classes=0)
        except RuntimeError as error:
            raise InputError(f"timm has no model {model!r}: {error}") from error
        config = timm.data.resolve_model_data_config(network)
        side = size or config["input_size"][-1]
        bicubic = config.get("interpolation") == "bicubic"
        super().__init__(
            Preprocessing(
                size=side,
                resize=round(side / config.get("crop_pct", 1.0)),
                interpolation="bicubic" if bicubic else "bilinear",
                mean=tuple(255 * value for value in config["mean"]),
                std=tuple(255 * value for value in config["std"]),
            )
        )
        self.name = f"timm/{model}"
        self.network = network
        self.dimensions = network.num_features
        self.origin = f"timm {timm.__version__}" if pretrained else "random"

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.network(pixels)
        return features

    def last_stage(self) -> list[nn.Module]:
        return [child for child in self.network.children() if list(child.parameters())][-2:]
