"""Lin et al. (2016), "Learning compact binary descriptors with unsupervised deep networks"."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddh._core.arrays import standardize
from ddh._core.errors import InputError
from ddh._core.progress import bar
from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective
from ddh.images import load_batches
from ddh.train.augmentation import warp
from ddh.train.features import Extractor, Pictures
from ddh.train.inputs import FeatureInputs

ANGLES = (-10.0, -5.0, 5.0, 10.0)
MOST_TURNED = 10_000


def bits_of(outputs: Tensor) -> Tensor:
    """b = (sgn F + 1) / 2, with the gradient of F (b - 1/2 is what L1 draws F to)."""
    bits = (outputs >= 0).to(outputs.dtype)
    return bits + outputs - outputs.detach()


def quantisation(outputs: Tensor) -> Tensor:
    """DeepBit's L1 per row: ||(b - 0.5) - F||^2, b held fixed."""
    return (bits_of(outputs).detach() - 0.5 - outputs).square().sum(dim=1).mean()


def evenness(outputs: Tensor) -> Tensor:
    """DeepBit's L2: sum_k (mean of bit k - 0.5)^2."""
    return (bits_of(outputs).mean(dim=0) - 0.5).square().sum()


def rotation_invariance(outputs: Tensor, rotated: Tensor, angles: Tensor, sigma: float) -> Tensor:
    """DeepBit's L3 per row: sum_t exp(-t^2 / 2 sigma^2) ||b_t - b_0||^2 over the angles t."""
    weight = torch.exp(-angles.square() / (2 * sigma**2))
    flips = (bits_of(rotated) - bits_of(outputs)).square().sum(dim=2).mean(dim=1)
    return (weight * flips).sum()


def rotate(pixels: NDArray[np.uint8], degrees: float) -> NDArray[np.uint8]:
    """Pictures (n, h, w, 3) turned about their centre; corners are filled by reflection."""
    n, height, width, _ = pixels.shape
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # affine_grid works in coordinates from -1 to 1 on both axes, whatever the proportions.
    turn = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    turned = warp(images, turn.expand(n, 2, 3), (height, width))
    return turned.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


class DeepBit(DeepHasher):
    """Outputs near +-1/2 and even bits; on images also bits that survive small rotations.

    Stage 1 minimises L1 + L2. Stage 2 adds `rotation_weight` L3, which compares an image with
    itself turned by 5 and 10 degrees either way, and trains the hash layer alone, on 10,000 images
    at the most (200 MB of features at 1,280 dimensions). It needs images: on ready features it is
    left out. Codes are cut at one number, the mean of all training outputs over all bits
    (`threshold_`), as in the release.

    `variant="release"` does what the authors' program does, not what the paper says: there the
    losses L1 and L2 get the same outputs twice and their gradients cancel, so that stage 1 leaves
    the random hash layer as it is; outputs pass a ReLU before their mean becomes the threshold.
    """

    title = "DeepBit"
    kind = "unsupervised deep"
    paper = "Lin, Lu, Chen & Zhou, Compact binary descriptors with unsupervised networks, CVPR"
    year = 2016

    hidden: Sequence[int] | None = ()
    sigma: float = 10.0
    rotation_weight: float = 1e-3
    variant: Literal["paper", "release"] = "paper"

    start_deviation = 0.5  # where L1 draws the outputs to

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        """L1 + L2, all weights one as in the release."""
        return lambda outputs, rows, progress: self._compact(outputs)

    def _compact(self, outputs: Tensor) -> Tensor:
        """L1 + L2; without a gradient in the release."""
        loss = quantisation(outputs) + evenness(outputs)
        return loss.detach() + 0 * outputs.sum() if self.variant == "release" else loss

    def _check(self, pictures: bool) -> None:
        super()._check(pictures)
        if self.variant not in ("paper", "release"):
            raise InputError(f"variant is 'paper' or 'release', not {self.variant!r}")

    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        self.stage2_losses_ = np.zeros(0)
        if pictures is not None:
            self.stage2_losses_ = self._second_stage(training, features, pictures)
        outputs = training.layers.apply_to_all(features)
        threshold = (outputs.relu() if self.variant == "release" else outputs).mean()
        training.layers.linear[-1].bias.data.sub_(threshold)
        self.threshold_ = float(threshold)

    def _second_stage(
        self, training: DeepTraining, features: Tensor, pictures: Pictures
    ) -> NDArray[np.float64]:
        """L1 + L2 + L3, for a tenth as many epochs as stage 1, as in the release's schedule."""
        drawn = np.random.default_rng(training.seed).permutation(len(features))
        chosen = np.sort(drawn[:MOST_TURNED])
        turned = self._turned_features(pictures, pictures.usable[chosen], features.device)
        degrees = torch.tensor(ANGLES, device=features.device)

        def loss(outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
            rotated = training.layers(turned[:, rows].flatten(0, 1))
            rotated = rotated.view(len(ANGLES), *outputs.shape)
            turned_bits = rotation_invariance(outputs, rotated, degrees, self.sigma)
            return self._compact(outputs) + self.rotation_weight * turned_bits

        for layer in training.layers.linear[:-1]:
            layer.requires_grad_(False)
        second = replace(
            training,
            inputs=FeatureInputs(features[torch.from_numpy(chosen).to(features.device)]),
            objective=loss,
            epochs=max(1, training.epochs // 10),
            label="Training DeepBit on rotations",
            backbone=None,
            checkpoint=None,
        )
        return second.train()

    def _turned_features(
        self, pictures: Pictures, places: NDArray[np.int64], device: torch.device
    ) -> Tensor:
        """Standardised features (angles, n, d) of the images at `places`, turned by ANGLES."""
        extractor = Extractor(pictures.backbone, self.device)
        turned = torch.empty(len(ANGLES), len(places), pictures.backbone.dimensions)
        preprocessing, size = pictures.backbone.preprocessing, extractor.batch_size
        with bar("Rotated features", total=len(places), unit="image") as progress:
            for batch in load_batches(pictures.source, preprocessing, size, indices=places):
                rows = torch.from_numpy(np.searchsorted(places, batch.indices))
                for number, angle in enumerate(ANGLES):
                    features = extractor(rotate(batch.pixels, angle))
                    standard = standardize(features, self.mean_, self.scale_)
                    turned[number, rows] = torch.from_numpy(standard)
                progress.update(len(batch))
        return turned.to(device)
