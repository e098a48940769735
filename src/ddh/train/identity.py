"""Identity of a run: what its caches and checkpoints are made from, so that none is stale."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import ModelError
from ddh._core.spans import spans
from ddh.backbones import Network, OnnxNetwork
from ddh.images import ImageFiles, ImageSource, pixel_digest

BLOCK = 8192  # rows hashed at a time


@dataclass(frozen=True)
class RunIdentity:
    """Plain values that tell one run from another; its digest names files."""

    values: dict[str, Any]

    @classmethod
    def of_images(cls, source: ImageSource, backbone: "Network", **more: Any) -> Self:
        """Images, the network that sees them, and how they are prepared for it."""
        if isinstance(backbone, OnnxNetwork):
            weights = backbone.origin
        else:
            state = {name: tensor.cpu().numpy() for name, tensor in backbone.state_dict().items()}
            weights = arrays_digest(*(state[name] for name in sorted(state)))
        described = {
            "images": images_digest(source),
            "backbone": backbone.name,
            "weights": weights,
            "preprocessing": backbone.preprocessing.to_dict(),
        }
        return cls(described | more)

    @classmethod
    def of_arrays(cls, **arrays: NDArray[Any] | None) -> Self:
        """Features or labels by their content; None stands for none."""
        return cls({k: None if v is None else arrays_digest(v) for k, v in arrays.items()})

    def with_values(self, **more: Any) -> "RunIdentity":
        return RunIdentity(self.values | more)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits."""
        text = json.dumps(self.values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def path(self, folder: Path, stem: str, suffix: str) -> Path:
        """A file in `folder` that only a run of this identity uses."""
        return folder / f"{stem}-{self.digest}{suffix}"


def images_digest(source: ImageSource, **more: Any) -> str:
    """Digest of names and contents of images (for files: size and time of change)."""
    digest = hashlib.sha256(json.dumps(more, sort_keys=True).encode())
    if isinstance(source, ImageFiles):
        for path, name in zip(source.paths, source.names, strict=True):
            state = path.stat() if path.exists() else None
            digest.update(repr((name, state and (state.st_size, state.st_mtime_ns))).encode())
    else:
        digest.update(json.dumps([list(source.names), pixel_digest(source)]).encode())
    return digest.hexdigest()[:16]


def arrays_digest(*arrays: NDArray[Any]) -> str:
    """Digest of shapes, types and values of arrays, read block by block."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        rows = np.atleast_1d(array)
        for block in spans(len(rows), BLOCK):
            digest.update(np.ascontiguousarray(rows[block]).tobytes())
    return digest.hexdigest()


def check_same_run(checkpoint: Path, state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose state differs from what is `expected`: that of another run."""
    wanted = json.loads(json.dumps(expected))
    others = [d for key in wanted for d in _differences(key, state.get(key), wanted[key])]
    if others:
        raise ModelError(
            f"the checkpoint in {checkpoint.parent} was made with {' and '.join(others)}; resume "
            "with the same images and settings, or delete the folder to start again"
        )


def _differences(name: str, found: Any, wanted: Any) -> list[str]:
    """Where two plain values differ, by the name of each part: "settings.epochs = 10, not 20"."""
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        found, wanted = dict(enumerate(found)), dict(enumerate(wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [
            difference
            for part in {**found, **wanted}
            for difference in _differences(
                f"{name}.{part}", found.get(part, "absent"), wanted.get(part, "absent")
            )
        ]
    return [] if found == wanted else [f"{name} = {found}, not {wanted}"]
