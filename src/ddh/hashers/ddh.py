"""Song, He, Fan & Gao (2017), "Deep discrete hashing with self-supervised pairwise labels"."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ddh.backbones import Backbone, EfficientNetLite, create, rebuild
from ddh.codes import code_bytes, pack
from ddh.errors import InputError, ModelError
from ddh.hashers import storage
from ddh.hashers.base import Hasher, check_features, check_labels, sgn
from ddh.images import Failure, ImageSource, Preprocessing, is_images, open_images
from ddh.training.device import choose
from ddh.training.features import Extractor, Features, extract
from ddh.training.fitting import Data, Fitted, fit_hashing
from ddh.training.settings import DEPTHS, Depth, Settings, adapt, settings

BACKBONE = "backbone."


@dataclass(frozen=True)
class EncodedBatch:
    """Packed codes of the pictures `indices` of a source, and the pictures not readable."""

    indices: NDArray[np.int64]
    codes: NDArray[np.uint8]
    failures: list[Failure]


class DDH(Hasher):
    """Codes from the neighbourhood structure of the images themselves.

    `fit` takes a folder, a list of files, an array of pictures, or an (n, d) array of ready
    features. It builds the labels S from features (K1-NN lists, expansion by overlap of K2
    lists; with `y`, from the labels instead), then trains the hashing layer, alone on frozen
    features (`depth="head"`, seconds), with the backbone's last stage, or with the whole network.

    `preset` is "fast" (default) or "paper"; every setting of `ddh.training.Settings` can be
    changed by its name. `backbone` is any name of `ddh.backbones.NAMES`; `weights` and `size` are
    passed to it. `label_backbone` names another one for the labels (the paper takes ResNet's pool5
    for them and trains CNN-F).
    """

    title = "Deep discrete hashing"
    kind = "unsupervised deep"
    labels = "optional"
    paper = "Song et al., Deep discrete hashing with self-supervised pairwise labels, PCM"
    year = 2017

    def __init__(
        self,
        bits: int = 64,
        *,
        preset: str = "fast",
        backbone: str = "efficientnet-lite0",
        weights: str | None = "auto",
        size: int | None = None,
        label_backbone: str | None = None,
        depth: Depth = "head",
        k1: int | None = None,
        k2: int | None = None,
        centre: bool | None = None,
        alpha: float | None = None,
        lambda1: float | None = None,
        balanced: bool | None = None,
        lambda2: float | None = None,
        pairs: str | None = None,
        optimiser: str | None = None,
        learning_rate: float | None = None,
        final_learning_rate: float | None = None,
        network_rate: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        approximate: bool = False,
        device: str = "auto",
        random_state: int | None = 0,
    ) -> None:
        self.bits = bits
        self.preset = preset
        self.backbone = backbone
        self.weights = weights
        self.size = size
        self.label_backbone = label_backbone
        self.depth = depth
        self.k1 = k1
        self.k2 = k2
        self.centre = centre
        self.alpha = alpha
        self.lambda1 = lambda1
        self.balanced = balanced
        self.lambda2 = lambda2
        self.pairs = pairs
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.final_learning_rate = final_learning_rate
        self.network_rate = network_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.approximate = approximate
        self.device = device
        self.random_state = random_state

    # -- fitting --------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        work: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn codes for these images or features.

        `work` is a folder for features, labels and checkpoints of a long run; with `resume`, what
        a killed run left there is taken up. It is removed when the run has ended.
        """
        code_bytes(self.bits)
        self._check()
        folder = Path(work) if work is not None else None
        with _work_folder(folder, resume):
            if is_images(X):
                data = self._data_from_images(open_images(X), folder, resume)
            else:
                data = self._data_from_features(X)
            if y is not None:
                targets = check_labels(y, data.total)
                data = data.with_labels(targets[data.features.usable])
            fitted = fit_hashing(
                data,
                self.bits,
                self._adapted(len(data.features.values)),
                depth=self.depth,
                seed=self._seed(),
                device=self.device,
                approximate=self.approximate,
                folder=folder,
                resume=resume,
            )
        self._take(data, fitted)
        return self

    def _check(self) -> None:
        """Find a wrong setting before the long work, not after it."""
        self.chosen_settings()
        choose(self.device)
        if self.depth not in DEPTHS:
            raise InputError(f"depth is one of {', '.join(DEPTHS)}, not {self.depth!r}")

    def chosen_settings(self) -> Settings:
        """The preset with the changes of this object."""
        names = Settings.__dataclass_fields__
        return settings(self.preset, **{name: getattr(self, name) for name in names})

    def _adapted(self, images: int) -> Settings:
        """The settings for a collection of this size; what the user named is left alone."""
        named = [name for name in Settings.__dataclass_fields__ if getattr(self, name) is not None]
        return adapt(self.chosen_settings(), images, named)

    def _seed(self) -> int:
        if self.random_state is not None:
            return int(self.random_state)
        return int(np.random.SeedSequence().generate_state(1)[0])

    def _data_from_images(self, source: ImageSource, folder: Path | None, resume: bool) -> Data:
        if self.k1 is not None and self.k1 >= len(source):
            raise InputError(
                f"{self.k1} neighbours need at least {self.k1 + 1} images, there are "
                f"{len(source)}: lower K1"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed())
            backbone = create(self.backbone, self.weights, self.size)
        options: dict[str, Any] = {"device": self.device, "resume": resume}
        features = extract(backbone, source, folder=folder, **options)
        label_features = None
        if self.label_backbone is not None:
            apart = None if folder is None else folder / "labels"
            other = extract(create(self.label_backbone), source, folder=apart, **options)
            label_features = other.values
        return Data(features, len(source), backbone, source, label_features)

    def _data_from_features(self, X: Any) -> Data:
        if self.depth != "head":
            raise InputError(f"depth {self.depth!r} trains a network: fit on images, not features")
        values = check_features(X, least_rows=2).astype(np.float32, copy=False)
        return Data(Features(values, np.arange(len(values))), len(values))

    def _take(self, data: Data, fitted: Fitted) -> None:
        self.hash_weight_ = fitted.weight
        self.hash_bias_ = fitted.bias
        self.n_features_in_ = fitted.weight.shape[1]
        self.history_ = fitted.history
        self.label_statistics_ = fitted.label_statistics
        self.settings_ = fitted.settings.to_dict()
        self.images_ = len(data.features.values)
        self.skipped_ = [vars(failure) for failure in data.features.failures]
        self._set_backbone(data.backbone)

    def _set_backbone(self, backbone: Backbone | None) -> None:
        self._network = backbone
        self._extractor: Extractor | None = None

    # -- encoding -------------------------------------------------------------------------

    def _fit(self, X: NDArray[Any], y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        raise AssertionError("DDH has a fit of its own")

    def _outputs(self, X: NDArray[Any]) -> NDArray[np.floating]:
        """z = W^T phi + c (Eq. 10), in float64."""
        return X.astype(np.float64) @ self.hash_weight_.T.astype(np.float64) + self.hash_bias_

    def transform(self, X: Any) -> NDArray[np.int8]:
        """Codes of pictures or ready features (2.5) as -1 and +1, int8 (n, bits).

        A picture that cannot be read is an error here; `encode_images` reports and goes on.
        """
        if not is_images(X):
            return super().transform(X)
        source = open_images(X)
        codes = np.empty((len(source), self.bits), np.int8)
        for indices, outputs, failures in self._stream(source, None):
            if failures:
                raise InputError(f"{failures[0].name}: {failures[0].reason}")
            codes[indices] = sgn(outputs)
        return codes

    def encode_images(self, images: Any, batch_size: int | None = None) -> Iterator[EncodedBatch]:
        """Packed codes batch by batch, bad files reported beside them: for folders of any size."""
        for indices, outputs, failures in self._stream(open_images(images), batch_size):
            yield EncodedBatch(indices, pack(sgn(outputs)), failures)

    def _stream(
        self, source: ImageSource, batch_size: int | None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.floating], list[Failure]]]:
        self._fitted_columns()
        if self._network is None:
            raise InputError(
                f"this model was fitted on ready features of {self.n_features_in_} dimensions; "
                "give such features, or fit a model on images"
            )
        if self._extractor is None:
            self._extractor = Extractor(self._network, self.device)
        for batch in self._extractor.stream(source, batch_size=batch_size):
            yield batch.indices, self._outputs(batch.features.cpu().numpy()), batch.failures

    # -- saving ---------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, Any], storage.Arrays]:
        scalars, arrays = super()._state()
        network = self._network
        if network is None:
            return scalars, arrays
        packaged = isinstance(network, EfficientNetLite) and network.origin.startswith("imagenet")
        scalars["backbone"] = {
            "name": network.name,
            "origin": network.origin,
            "options": network.options(),
            "preprocessing": network.preprocessing.to_dict(),
            "packaged": packaged,
        }
        if not packaged:
            for name, tensor in network.state_dict().items():
                arrays[BACKBONE + name] = tensor.detach().cpu().numpy()
        return scalars, arrays

    def _restore(self, scalars: dict[str, Any], arrays: storage.Arrays) -> None:
        described = scalars.get("backbone")
        own = {name: array for name, array in arrays.items() if not name.startswith(BACKBONE)}
        super()._restore({k: v for k, v in scalars.items() if k != "backbone"}, own)
        self._set_backbone(None if described is None else _rebuilt(described, arrays))


def _rebuilt(described: dict[str, Any], arrays: storage.Arrays) -> Backbone:
    preprocessing = Preprocessing.from_dict(described["preprocessing"])
    network = rebuild(described["name"], preprocessing.size, described["options"])
    if described["packaged"]:
        assert isinstance(network, EfficientNetLite)
        network.load_imagenet()
        if network.origin != described["origin"]:
            raise ModelError(
                f"this model needs the weights {described['origin']} of {network.name}, "
                f"installed are {network.origin}"
            )
    else:
        state = {
            name.removeprefix(BACKBONE): torch.from_numpy(array.copy())
            for name, array in arrays.items()
            if name.startswith(BACKBONE)
        }
        network.load_state_dict(state)
        network.origin = described["origin"]
    network.preprocessing = preprocessing
    return network.eval()


@contextmanager
def _work_folder(folder: Path | None, resume: bool) -> Iterator[None]:
    """A folder that is there during the run and gone after it; refuse another run's work."""
    if folder is not None and folder.exists() and any(folder.iterdir()) and not resume:
        raise InputError(
            f"{folder} holds the work of an interrupted run: resume it, or delete the folder"
        )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if folder is not None and not any(folder.iterdir()):
            folder.rmdir()  # nothing to resume
        raise
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
