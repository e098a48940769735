"""Song, He, Fan & Gao (2017), "Deep discrete hashing with self-supervised pairwise labels"."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ddh._core.arrays import l2_normalize
from ddh._core.errors import InputError
from ddh._core.lazy import needs_torch
from ddh.backbones import (
    ENCODERS,
    Network,
    OnnxNetwork,
    create,
    default_encoder,
    is_exported,
    open_network,
)
from ddh.hashers.base import Floats
from ddh.hashers.image_hasher import ImageHasher
from ddh.images import ImageSource
from ddh.pretrain.recipe import Stages, preset_stages
from ddh.train.device import device_type
from ddh.train.distributed import current
from ddh.train.features import Features, Pictures
from ddh.train.head import fit_head
from ddh.train.run_folder import Run
from ddh.train.settings import Depth, Settings, adapt, settings


class DDH(ImageHasher):
    """Deep discrete hashing: codes from the neighbourhood structure of the images themselves.

    The labels S are built from features: K1 nearest neighbours per image, expanded by the overlap
    of neighbour lists. The hashing layer is then trained on frozen features, which takes seconds,
    or together with the backbone.

    Parameters
    ----------
    bits : int, default 64
        Length of a code.
    preset : {"fast", "quality", "paper"}, default "fast"
        Where settings come from that are not given: seconds, the best codes, or the paper.
    backbone : str, optional
        A name of `ddh.backbones.NAMES`. By default EfficientNet-Lite0, or what the preset
        "quality" chooses for the images.
    weights : str or None, default "auto"
        "auto" (pretrained), "random", or a file of weights. The backbone "auto" is that of a file
        of `ddh pretrain` or, for ONNX Runtime, of `ddh export` (.onnx).
    size : int, optional
        Side of the network's input in pixels; by default that of the backbone.
    encoder : {"auto", "onnx-int8", "onnx", "torch"}, default "auto"
        What runs the backbone: ONNX Runtime on the CPU, for EfficientNet-Lite0 as it comes with
        the package and for files of `ddh export`, or torch, which trains networks and knows GPUs.
        "auto" is ONNX Runtime where that is possible and there is no GPU, and for ONNX files.
        Codes of different encoders do not mix.
    label_backbone : str, optional
        Another backbone whose features give the labels (the paper takes ResNet's pool5 for them
        and trains CNN-F).
    label_weights : str or None, default "auto"
        Weights of that backbone, as in `weights`. A file of `ddh pretrain` names its backbone
        itself: ``DDH(label_weights="photos.safetensors")``.
    pretrain : float, dict or list of dict, optional
        First train the backbone on the images themselves, without labels: for this many minutes,
        or by settings of `ddh.pretrain.PretrainSettings` such as ``{"epochs": 200}``, or by a
        list of such settings, one stage after another.
    depth : {"head", "last stage", "network"}, default "head"
        What is trained: the hashing layer, the last stage of the backbone with it, or all.
    approximate : bool, default False
        Approximate nearest neighbours, for very many images.
    device : str, default "auto"
        "auto", "cpu", "cuda" or "mps".
    random_state : int or None, default 0
        Seed of everything random. None draws one per `fit`, kept in `seed_`.
    settings : dict, optional
        Settings of the training by name, in place of those of the preset.
    **overrides
        The same, as keywords: ``DDH(k1=20)`` is ``DDH(settings={"k1": 20})``.

    Other Parameters
    ----------------
    Those of `ddh.train.Settings`.

    Attributes
    ----------
    hash_weight_, hash_bias_ : array
        The hashing layer on features: z = weight phi + bias, and the code is sgn(z).
    history_ : list of dict
        Mean loss and its terms per epoch.
    label_statistics_ : dict
        Degrees of S, and more.
    settings_ : dict
        All settings, as they were adapted to the number of images.
    seed_ : int
        The seed that was used.
    images_, skipped_ : int, list
        Number of images learned from; those that could not be read, with the reason.

    Notes
    -----
    A preset is adapted to a small collection (`ddh.train.adapt`); settings that you give are not.

    Examples
    --------
    >>> import numpy as np
    >>> from ddh import DDH
    >>> features = np.random.default_rng(0).standard_normal((100, 16))
    >>> DDH(bits=8, epochs=2).fit(features).transform(features).shape
    (100, 8)
    """

    title = "Deep discrete hashing"
    kind = "unsupervised deep"
    labels = "optional"
    paper = "Song et al., Deep discrete hashing with self-supervised pairwise labels, ECML PKDD"
    year = 2017

    def __init__(
        self,
        bits: int = 64,
        *,
        preset: str = "fast",
        backbone: str | None = None,
        weights: str | None = "auto",
        size: int | None = None,
        encoder: str = "auto",
        label_backbone: str | None = None,
        label_weights: str | None = "auto",
        pretrain: float | dict[str, Any] | list[dict[str, Any]] | None = None,
        depth: Depth = "head",
        approximate: bool = False,
        device: str = "auto",
        random_state: int | None = 0,
        settings: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> None:
        self.bits = bits
        self.preset = preset
        self.backbone = backbone
        self.weights = weights
        self.size = size
        self.encoder = encoder
        self.label_backbone = label_backbone
        self.label_weights = label_weights
        self.pretrain = pretrain
        self.depth = depth
        self.approximate = approximate
        self.device = device
        self.random_state = random_state
        self.settings = settings
        if overrides:
            self.set_params(**overrides)

    def set_params(self, **params: Any) -> Self:
        """Change parameters; names of settings go into `settings`, where None removes one."""
        own = self._get_param_names()
        changes = {name: params.pop(name) for name in list(params) if name not in own}
        super().set_params(**params)
        if changes:
            before = self.settings if isinstance(self.settings, Mapping) else {}
            merged = {**before, **changes}
            self.settings = {k: v for k, v in merged.items() if v is not None} or None
        return self

    @property
    def chosen_settings(self) -> Settings:
        """The preset with the settings of this object."""
        return settings(self.preset, **self._given())

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in (self.settings or {}).items() if value is not None}

    def _views(self) -> int:
        return self.chosen_settings.views if self.depth == "head" else 0

    def _learn(
        self, features: Features, y: NDArray[np.int64] | None, pictures: Pictures | None, run: Run
    ) -> None:
        values, label_features, chosen = features.values, None, self.chosen_settings
        if pictures is None:
            # lengths of precomputed features may mean something, so a preset leaves them
            chosen = replace(chosen, normalize=bool(self._given().get("normalize", False)))
            if values.dtype != np.float16:  # a mapped file of float16 is read as it is needed
                values = values.astype(np.float32, copy=False)
        elif self.label_backbone is not None or self.label_weights not in ("auto", "random", None):
            name, weights = self.label_backbone or "auto", self.label_weights
            network = self._network(name, weights, None, run.seed)
            label_features = self._extract(network, pictures.source, run).values
        adapted = chosen
        if self.preset != "paper":
            adapted = adapt(chosen, len(values), self._given())
        head = fit_head(
            values,
            self.bits,
            adapted,
            seed=run.seed,
            device=self.device,
            labels=y,
            label_features=label_features,
            pictures=pictures,
            depth=self.depth,
            approximate=self.approximate,
            folder=run.folder,
            resume=run.resume,
            identity=features.identity,
        )
        self.hash_weight_, self.hash_bias_ = head.weight, head.bias
        self.history_, self.label_statistics_ = head.history, head.label_statistics
        self.settings_ = adapted.to_dict()
        self.images_ = len(np.unique(features.usable))

    def _check(self, pictures: bool) -> None:
        settings(self.preset, **self._given())
        super()._check(pictures)
        for name in ("views", "flip_tta"):
            if self._given().get(name) and not pictures:
                raise InputError(f"{name} is for pictures: fit on images, not features")
            if self._given().get(name) and self.depth != "head":
                raise InputError(
                    f"{name} is for the depth 'head'; {self.depth!r} trains on random views anyway"
                )
        if self.encoder not in ("auto", *ENCODERS):
            raise InputError(
                f"there is no encoder {self.encoder!r}; there are: auto, {', '.join(ENCODERS)}"
            )
        if self.encoder in ENCODERS[:-1] and (self.depth != "head" or self.pretrain is not None):
            raise InputError(f"the encoder {self.encoder!r} cannot train the network: use 'torch'")
        if self.depth != "head":
            with needs_torch(f"the depth {self.depth!r}"):
                import torch  # noqa: F401
        for stage in self._pretrain_stages():
            with needs_torch("pretraining"):
                from ddh.pretrain import pretrain_settings

            pretrain_settings(self.size or 224, True, stage)  # again for the network's own size
        if self.pretrain is not None and not pictures:
            raise InputError("pretraining needs pictures, not features")

    def _network(
        self, name: str, weights: str | None, size: int | None, seed: int, *, trains: bool = False
    ) -> "Network":
        """A network for its features, or one that `trains`; random weights come from the seed."""
        encoder = self.encoder
        if is_exported(weights) and not trains and encoder in ("auto", "onnx"):
            return open_network(name, weights, size)
        if encoder == "auto":
            frozen = not trains and device_type(self.device) == "cpu"
            encoder = default_encoder(name, weights) if frozen else "torch"
        if encoder == "torch":
            return _seeded(name, weights, size, seed)
        if default_encoder(name, weights) == "torch":
            raise InputError(
                f"the encoder {encoder!r} is there for efficientnet-lite0 with its own weights; "
                "use 'torch' for other networks, or 'onnx' with a file of `ddh export`"
            )
        return OnnxNetwork(encoder, size)

    def _create_backbone(self, source: ImageSource, run: Run) -> "Network":
        """The backbone, pretrained on the images if that is wanted."""
        k1 = self._given().get("k1", 0)
        if k1 >= len(source):
            raise InputError(
                f"{k1} neighbours need at least {k1 + 1} images, there are {len(source)}: lower K1"
            )
        name, weights, stages = self.backbone, self.weights, self._pretrain_stages()
        if name is None:
            name, gpu = "efficientnet-lite0", device_type(self.device) == "cuda"
            # Several processes take the network as it is, rather than refuse to fit.
            if weights == "auto" and current().is_single:
                stages = stages or preset_stages(self.preset, len(source), gpu, self.size)
        trains = bool(stages) or self.depth != "head"
        network = self._network(name, weights, self.size, run.seed, trains=trains)
        if self.chosen_settings.flip_tta and self.depth == "head":
            network.preprocessing = replace(network.preprocessing, flip_tta=True)
        if stages:
            if not current().is_single:
                raise InputError(
                    "pretraining runs in one process: call `ddh pretrain` first, and then fit"
                )
            folder = None if run.folder is None else run.folder / "pretraining"
            options: dict[str, Any] = {"device": self.device, "seed": run.seed}
            from ddh.pretrain import pretrain_stages

            assert not isinstance(network, OnnxNetwork)
            done = pretrain_stages(
                network, source, stages, folder=folder, resume=run.resume, **options
            )
            self.pretraining_ = done.history
        return network

    def _pretrain_stages(self) -> Stages:
        if self.pretrain is None:
            return []
        if isinstance(self.pretrain, int | float):
            return [{"minutes": self.pretrain}]
        return [self.pretrain] if isinstance(self.pretrain, dict) else list(self.pretrain)

    def before(self, projection: Floats, backbone: "Network | None" = None) -> Self:
        """This model of components z = P x as one of the unit-length features x themselves, or of
        the pictures from which a backbone makes them.

        Parameters
        ----------
        projection : array of shape (components, dimensions)
            P.
        backbone : Backbone or OnnxNetwork, optional
            The network that gives x.

        Returns
        -------
        DDH
        """
        model = copy.copy(self)
        model.set_params(normalize=True)
        model.settings_ = self.settings_ | {"normalize": True}
        model.hash_weight_ = (self.hash_weight_.astype(np.float64) @ projection).astype(np.float32)
        model.n_features_in_, model._loaded_id = projection.shape[1], None
        model.backbone = None if backbone is None else backbone.name
        model._set_backbone(backbone)
        return model

    def _outputs(self, X: Floats) -> Floats:
        """z = W^T phi + c (Eq. 10), in float64."""
        values = l2_normalize(X) if self.settings_.get("normalize", False) else X
        return values.astype(np.float64) @ self.hash_weight_.T.astype(np.float64) + self.hash_bias_


def _seeded(name: str, weights: str | None, size: int | None, seed: int) -> "Network":
    """A backbone of torch whose random weights, if it has any, come from the seed."""
    with needs_torch(f"the backbone {name}"):
        import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return create(name, weights, size)


# help(DDH) explains the settings too
_explained = (Settings.__doc__ or "").split("----------\n")[1].rstrip(" ")
DDH.__doc__ = (DDH.__doc__ or "").replace("    Those of `ddh.train.Settings`.\n", _explained)
