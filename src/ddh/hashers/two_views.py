"""The base of the methods that compare two random views of each image: CIBHash and CroVCA."""

from torch import Tensor

from ddh._core.errors import InputError
from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import TwoViews
from ddh.train.features import Pictures
from ddh.train.inputs import FeatureInputs, Inputs, NetworkInputs


class TwoViewHasher(DeepHasher):
    """A method on two views per image, whose objective gets their outputs stacked (2 b, bits).

    On images the views are random crops and mirror images: features of two of them are taken once
    with the depth "head", new ones are drawn in every step otherwise. On ready features, which
    cannot be cropped, a view is the row after dropout with the probability `dropout`.
    """

    dropout: float = 0.5

    def _views(self) -> int:
        return 2 if self.depth == "head" else 0

    def _feature_inputs(self, features: Tensor, images: int) -> Inputs:
        if len(features) == images:
            plain = FeatureInputs(features)
            return TwoViews(plain, plain, self.dropout)
        _, first, second = features.split(images)
        return TwoViews(FeatureInputs(first), FeatureInputs(second))

    def _network_inputs(self, pictures: Pictures, mean: Tensor, scale: Tensor) -> Inputs:
        network = NetworkInputs(pictures, mean, scale)
        return TwoViews(network, network)

    def _check(self, pictures: bool) -> None:
        super()._check(pictures)
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is a probability below 1, not {self.dropout}")
