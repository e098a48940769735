"""Song, He, Fan & Gao (2017), "Deep discrete hashing with self-supervised pairwise labels"."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError
from ddh.backbones import Backbone, create
from ddh.codes import code_bytes
from ddh.hashers.base import check_features, check_labels
from ddh.hashers.image_hasher import ImageHasher, work_folder
from ddh.images import ImageSource, is_images, open_images
from ddh.pretrain import Stages, pretrain_settings, pretrain_stages
from ddh.pretrain.recipe import recipe
from ddh.train.device import choose
from ddh.train.distributed import current
from ddh.train.features import Features, extract_views
from ddh.train.fitting import Data, Fitted, fit_hashing
from ddh.train.settings import DEPTHS, Depth, Settings, adapt, settings


class DDH(ImageHasher):
    """Codes from the neighbourhood structure of the images themselves.

    `fit` takes a folder, a list of files, an array of pictures, or an (n, d) array of ready
    features. It builds the labels S from features (K1-NN lists, expansion by overlap of K2
    lists; with `y`, from the labels instead), then trains the hashing layer on frozen features
    (`depth="head"`, seconds), and at the other depths goes on to train the backbone's last stage,
    or the whole network, with it for `network_epochs`.

    `preset` is "fast" (default), "quality" or "paper"; every setting of `ddh.train.Settings` can
    be changed by its name. `backbone` is any name of `ddh.backbones.NAMES`; where none is given,
    EfficientNet-Lite0 or what "quality" chooses. `weights` and `size` are passed to it.
    `label_backbone` names another one for the labels (the paper takes ResNet's pool5 for them and
    trains CNN-F).

    `pretrain` first trains the backbone on the pictures alone, without any labels: so many minutes,
    or settings of `ddh.pretrain.PretrainSettings` by name, as in {"epochs": 200}, or a
    list of such settings, one training after another.
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
        backbone: str | None = None,
        weights: str | None = "auto",
        size: int | None = None,
        label_backbone: str | None = None,
        pretrain: float | dict[str, Any] | list[dict[str, Any]] | None = None,
        depth: Depth = "head",
        k1: int | None = None,
        k2: int | None = None,
        views: int | None = None,
        mirror: bool | None = None,
        centre: bool | None = None,
        unit: bool | None = None,
        alpha: float | None = None,
        lambda1: float | None = None,
        balanced: bool | None = None,
        lambda2: float | None = None,
        pairs: str | None = None,
        optimiser: str | None = None,
        learning_rate: float | None = None,
        final_learning_rate: float | None = None,
        backbone_lr_scale: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        network_epochs: int | None = None,
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
        self.pretrain = pretrain
        self.depth = depth
        self.k1 = k1
        self.k2 = k2
        self.views = views
        self.mirror = mirror
        self.centre = centre
        self.unit = unit
        self.alpha = alpha
        self.lambda1 = lambda1
        self.balanced = balanced
        self.lambda2 = lambda2
        self.pairs = pairs
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.final_learning_rate = final_learning_rate
        self.backbone_lr_scale = backbone_lr_scale
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.network_epochs = network_epochs
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
        with work_folder(folder, resume):
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
                self._adapted(len(data.features.values), pictures=data.backbone is not None),
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
        for name in ("views", "mirror"):
            if getattr(self, name) and self.depth != "head":
                raise InputError(
                    f"{name} is for the depth 'head'; {self.depth!r} trains on random views anyway"
                )
        for stage in self._pretrain_stages():
            pretrain_settings(32, True, stage)

    def chosen_settings(self) -> Settings:
        """The preset with the changes of this object."""
        names = Settings.__dataclass_fields__
        return settings(self.preset, **{name: getattr(self, name) for name in names})

    def _adapted(self, images: int, pictures: bool) -> Settings:
        """The settings for a collection of this size; what the user named is left alone. The
        lengths of ready features may mean something, so a preset leaves them."""
        named = [name for name in Settings.__dataclass_fields__ if getattr(self, name) is not None]
        chosen = self.chosen_settings()
        if not pictures and self.unit is None:
            chosen = replace(chosen, unit=False)
        return adapt(chosen, images, named)

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
        backbone, stages = self._chosen_backbone(source)
        if stages:
            self._pretrain(backbone, stages, source, folder, resume)
        options: dict[str, Any] = {"device": self.device, "resume": resume}
        views = self.chosen_settings().views if self.depth == "head" else 0
        features = extract_views(backbone, source, views, folder=folder, **options)
        label_features = None
        if self.label_backbone is not None:
            apart = None if folder is None else folder / "labels"
            other = create(self.label_backbone)
            label_features = extract_views(other, source, views, folder=apart, **options).values
        return Data(features, len(source), backbone, source, label_features)

    def _chosen_backbone(self, source: ImageSource) -> tuple[Backbone, Stages]:
        """The network, and the settings of its pretraining if there is to be one."""
        name, weights, stages = self.backbone, self.weights, self._pretrain_stages()
        if name is None:
            taken = recipe(self.preset, source, choose(self.device).type == "cuda")
            name = taken.backbone
            if weights == "auto":
                weights = taken.weights
                stages = stages or taken.pretrain
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed())
            network = create(name, weights, self.size)
        if self.chosen_settings().mirror and self.depth == "head":
            network.preprocessing = replace(network.preprocessing, flip_tta=True)
        return network, stages

    def _pretrain(
        self,
        backbone: Backbone,
        stages: Stages,
        source: ImageSource,
        folder: Path | None,
        resume: bool,
    ) -> None:
        """Train the backbone on the pictures alone, before features are taken from it."""
        if not current().is_single:
            raise InputError(
                "pretraining runs in one process: call `ddh pretrain` first, then fit on several"
            )
        done = pretrain_stages(
            backbone,
            source,
            stages,
            device=self.device,
            seed=self._seed(),
            folder=None if folder is None else folder / "pretraining",
            resume=resume,
        )
        self.pretraining_ = done.history

    def _pretrain_stages(self) -> Stages:
        if self.pretrain is None:
            return []
        if isinstance(self.pretrain, dict):
            return [self.pretrain]
        if isinstance(self.pretrain, int | float):
            return [{"minutes": self.pretrain}]
        return list(self.pretrain)

    def _data_from_features(self, X: Any) -> Data:
        if self.pretrain is not None:
            raise InputError("pretraining needs pictures, not features")
        for name in ("views", "mirror"):
            if getattr(self, name):
                raise InputError(f"{name} is for pictures: fit on images, not features")
        if self.depth != "head":
            raise InputError(f"depth {self.depth!r} trains a network: fit on images, not features")
        values = check_features(X, least_rows=2, half=True)
        if values.dtype != np.float16:  # a mapped file of float16 is read as it is needed
            values = values.astype(np.float32, copy=False)
        return Data(Features(values, np.arange(len(values))), len(values))

    def _take(self, data: Data, fitted: Fitted) -> None:
        self.hash_weight_ = fitted.weight
        self.hash_bias_ = fitted.bias
        self.n_features_in_ = fitted.weight.shape[1]
        self.history_ = fitted.history
        self.label_statistics_ = fitted.label_statistics
        self.settings_ = fitted.settings.to_dict()
        self.images_ = len(np.unique(data.features.usable))
        self.skipped_ = [vars(failure) for failure in data.features.failures]
        self._set_backbone(data.backbone)

    def _fit(self, X: NDArray[Any], y: NDArray[np.int64] | None, rng: np.random.Generator) -> None:
        raise AssertionError("DDH has a fit of its own")

    def _outputs(self, X: NDArray[Any]) -> NDArray[np.floating]:
        """z = W^T phi + c (Eq. 10), in float64."""
        values = l2_normalize(X) if self.settings_.get("unit", False) else X
        return values.astype(np.float64) @ self.hash_weight_.T.astype(np.float64) + self.hash_bias_
