"""The base of the deep methods: settings, the layers over the features, fitting and saving.

A deep method is one file with its loss as pure functions, and a class that derives from
`DeepHasher` and makes of them the `Objective` that it minimises. It may also choose
its own layers, start them from something better than chance, or work on them after training.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddh._core.arrays import mean_and_scale, standardize
from ddh._core.errors import InputError, ModelError, check_numbers
from ddh.backbones import Backbone, create
from ddh.hashers import storage
from ddh.hashers.base import Floats
from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective, seeded
from ddh.hashers.image_hasher import ImageHasher, tensors_below
from ddh.hashers.label_pairs import labelled_rows
from ddh.images import ImageSource
from ddh.train.device import choose
from ddh.train.features import Features, Pictures, extract
from ddh.train.identity import RunIdentity
from ddh.train.inputs import FeatureInputs, Inputs, NetworkInputs
from ddh.train.network import end_training, prepare
from ddh.train.run_folder import Run

LAYERS = "layers_."


class DeepHasher(ImageHasher):
    """Settings that all deep methods share; a method lists its own and its own defaults.

    On ready features (n, d) the method trains a few layers: `hidden` are the widths of those
    before the hash layer (None: the method's own choice). On images (a folder, a list of files,
    an array) the layers stand on a `backbone` (`weights` and `size` are passed to it), and
    `depth` says what learns: "head" these layers alone, on features taken once; "last stage" and
    "network" the backbone too, end to end, at `backbone_lr_scale` times the learning rate (a tenth
    suits trained weights, one suits random ones).

    `epochs=None` means as many as give `least_steps` steps, and ten at least. Features are
    centred and scaled, trained on in float32 and held in memory (4 n d bytes, on the GPU when
    `device` is one). Layers are applied in float64, so that codes of ready features depend
    neither on the size of a batch nor on the device.
    """

    hidden: Sequence[int] | None = (512,)
    epochs: int | None = None
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    backbone: str = "efficientnet-lite0"
    weights: str | None = "auto"
    size: int | None = None
    backbone_lr_scale: float = 0.1

    # Whether each dimension is scaled to variance one, or all of them by one number.
    scale_each: ClassVar[bool] = False
    least_steps: ClassVar[int] = 1000
    # The deviation of the outputs before training: near the values that the objective draws to.
    start_deviation: ClassVar[float] = 1.0

    @abstractmethod
    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        """What to minimise, for standardised training features and their labels, if any."""

    def _sizes(self, dimensions: int) -> list[int]:
        """Widths of all layers, from the features to the bits."""
        return [dimensions, *(self.hidden or ()), self.bits]

    def _layers(self, dimensions: int) -> HashLayers:
        """New layers from `dimensions` features to `bits` outputs."""
        return HashLayers(self._sizes(dimensions))

    def _initialise(self, layers: HashLayers, features: Tensor) -> None:
        """Start the layers: outputs have mean 0 and deviation `start_deviation` on the features."""
        outputs = layers.apply_to_all(features)
        layer = layers.linear[-1]
        deviation = outputs.std(dim=0, correction=0)
        factor = self.start_deviation / torch.where(deviation > 1e-6, deviation, 1.0)
        layer.weight.mul_(factor[:, None])
        layer.bias.sub_(outputs.mean(dim=0)).mul_(factor)

    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        """Process the trained layers further, and keep what their objective has learned."""

    def _most_rows(self) -> int | None:
        """How many labelled rows to train on at the most; None is all of them."""
        return None

    def _feature_inputs(self, features: Tensor, images: int) -> Inputs:
        """Training batches of ready features: the rows of the images, then those of their views."""
        return FeatureInputs(features[:images])

    def _network_inputs(self, pictures: Pictures, mean: Tensor, scale: Tensor) -> Inputs:
        """Training batches of pictures through the backbone."""
        return NetworkInputs(pictures, mean, scale)

    def _create_backbone(self, source: ImageSource, run: Run) -> Backbone:
        with seeded(run.seed, torch.device("cpu")):
            return create(self.backbone, self.weights, self.size)

    def _learn(
        self, features: Features, y: NDArray[np.int64] | None, pictures: Pictures | None, run: Run
    ) -> None:
        """Train on features (and the images that they are of) and keep the layers."""
        X, rng = features.values, np.random.default_rng(run.seed)
        if y is not None:
            rows = labelled_rows(y, self._most_rows(), rng)
            X, y = X[rows], y[rows]
            pictures = pictures and replace(pictures, usable=pictures.usable[rows])
        images = len(X)
        if pictures is not None and self._views():
            images //= self._views() + 1
            pictures = replace(pictures, usable=pictures.usable[:images])
        if images < 2:
            raise InputError(f"two or more images are needed, {images} can be used")
        device = choose(self.device)
        self.mean_, self.scale_ = mean_and_scale(X, per_dimension=self.scale_each)
        phi = torch.from_numpy(standardize(X, self.mean_, self.scale_)).to(device)
        labels = torch.empty(0) if y is None else torch.from_numpy(y).to(device)
        seed = int(rng.integers(2**63))
        with seeded(seed, device):
            layers = self._layers(X.shape[1]).to(device)
            with torch.no_grad():
                self._initialise(layers, phi)
            training = DeepTraining(
                self._feature_inputs(phi, images),
                layers,
                self._objective(layers, phi[:images], labels),
                device,
                epochs=self._epochs(images),
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                seed=seed,
                label=f"Training {type(self).__name__}",
                backbone_lr_scale=self.backbone_lr_scale,
                resume=run.resume,
            )
            if run.folder is not None:
                training.checkpoint = run.folder / "training.safetensors"
                identity = features.identity or RunIdentity.of_arrays(features=X)
                labelled = RunIdentity.of_arrays(labels=y).values
                training.data = identity.with_values(**labelled).digest
            if pictures is not None and self.depth != "head":
                training.backbone = pictures.backbone
                prepare(pictures.backbone, self.depth, device)
                statistics = np.stack([self.mean_, self.scale_]).astype(np.float32)
                scaling = torch.from_numpy(statistics).to(device)
                training.inputs = self._network_inputs(pictures, scaling[0], scaling[1])
            self.losses_ = training.train()
            if pictures is not None and self.depth != "head":
                end_training(pictures.backbone)
                again = extract(pictures.backbone, pictures.source, device=self.device)
                X = again.values[np.searchsorted(again.usable, pictures.usable)]
                phi = torch.from_numpy(standardize(X, self.mean_, self.scale_)).to(device)
            self._finish(training, phi[:images], pictures)
        self.layers_ = layers.cpu().double().requires_grad_(False)

    def _epochs(self, rows: int) -> int:
        steps = math.ceil(rows / self.batch_size)
        return self.epochs or max(10, math.ceil(self.least_steps / steps))

    def _check(self, pictures: bool) -> None:
        super()._check(pictures)
        if self.hidden is not None and any(width < 1 for width in self.hidden):
            raise InputError(f"hidden holds widths of layers, 1 or more each, not {self.hidden}")
        least = {"epochs": 1, "batch_size": 2, "weight_decay": 0, "backbone_lr_scale": 0}
        check_numbers(vars(self), least, ["learning_rate"])

    def _outputs(self, X: Floats) -> Floats:
        device = choose(self._encoding_device or self.device)
        if device.type == "mps":  # it has no float64
            device = torch.device("cpu")
        x = torch.from_numpy((X - self.mean_) / self.scale_).to(device)
        with torch.inference_mode():
            return self.layers_.to(device)(x).cpu().numpy()

    def _state(self) -> tuple[dict[str, Any], storage.Arrays]:
        scalars, arrays = super()._state()
        layers = scalars.pop("layers_")
        # float64 is for encoding; the numbers are those of the float32 training.
        for name, tensor in layers.state_dict().items():
            arrays[LAYERS + name] = tensor.float().cpu().numpy()
        return scalars, arrays

    def _restore(self, scalars: dict[str, Any], arrays: storage.Arrays) -> None:
        rest = {name: array for name, array in arrays.items() if not name.startswith(LAYERS)}
        super()._restore(scalars, rest)
        if self.hidden is not None:
            self.hidden = tuple(self.hidden)  # JSON knows lists only
        with torch.device("meta"):  # no memory, and no draw from the random generator
            layers = self._layers(self.n_features_in_)
        try:
            layers.load_state_dict(tensors_below(arrays, LAYERS), assign=True)
        except RuntimeError as error:
            raise ModelError(
                f"the layers of this {type(self).__name__} do not fit: {error}"
            ) from error
        self.layers_ = layers.double().requires_grad_(False)
