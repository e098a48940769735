"""`ddh bench encode`: images per second from files to features, against a simple loop."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.output import emit, json_option
from ddh.bench.options import seed_option
from ddh.bench.timing import timed


@click.command()
@click.option(
    "--images",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of photographs, or of Oxford-17 (which also compares mAP). "
    "Default: crops of scikit-learn's two photographs.",
)
@click.option("--backbone", default="efficientnet-lite0")
@click.option("--bits", default=64)
@click.option("--plain", default=48, help="Images for the slow simple loop.")
@click.option("--limit", default=400, help="Use at most this many images.")
@click.option("--device", default="cpu")
@seed_option
@json_option
def encode(
    images: Path | None, backbone: str, bits: int, plain: int, limit: int, device: str, seed: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Images per second of our encoder, and of the eager network with one image at a time."""
    import torch

    from ddh.backbones import create
    from ddh.images import ImageFolder
    from ddh.train import Extractor

    with tempfile.TemporaryDirectory() as scratch:
        photographs = ImageFolder(images or sample_photographs(Path(scratch), limit, seed))
        source = photographs.take(np.random.default_rng(seed).permutation(len(photographs))[:limit])
        few = source.take(range(min(plain, len(source))))
        network = create(backbone).eval()
        slow, simple = timed(_simple_loop, network, few.paths)
        extractor = Extractor(network, device)
        list(extractor.stream(few))  # warm-up
        found, seconds = timed(lambda: [batch.features.cpu() for batch in extractor.stream(source)])
        ours = torch.cat(found).numpy()
    simple_rate, rate = len(few) / simple["wall"], len(source) / seconds["wall"]
    document = {
        "backbone": backbone,
        "images": len(source),
        "plain images/s": round(simple_rate, 2),
        "ddh images/s": round(rate, 2),
        "ratio": round(rate / simple_rate, 2),
        "threads": torch.get_num_threads(),
        "bfloat16": extractor.half,
        **_agreement(slow, ours, few.names, bits),
    }
    emit(document, "\n".join(f"{key}: {value}" for key, value in document.items()), as_json)


def _simple_loop(network: Any, paths: Sequence[Path]) -> NDArray[np.float32]:
    """Open, resize, normalise, one forward pass: image by image, as a first script would."""
    import torch
    from PIL import Image

    features = []
    for path in paths:
        with Image.open(path) as image:
            pixels = network.preprocessing.apply(image)
        with torch.no_grad():
            x = torch.from_numpy(pixels[None].copy())
            features.append(network(network.normalise(x).contiguous())[0].numpy())
    return np.stack(features)


def _agreement(
    plain: NDArray[np.float32], ours: NDArray[np.float32], names: Sequence[str], bits: int
) -> dict[str, Any]:
    """Fraction of equal bits, and the mAP of both where the file names give the class."""
    from ddh.evaluation import mean_average_precision
    from ddh.hashers import ITQ

    hasher = ITQ(bits=min(bits, len(ours) - 1)).fit(ours)
    codes = hasher.transform(plain), hasher.transform(ours[: len(plain)])
    found: dict[str, Any] = {"equal bits": round(float((codes[0] == codes[1]).mean()), 5)}
    labels = _oxford_classes(names)
    if labels is not None and len(plain) >= 30:
        cut = len(plain) // 3
        for way, code in zip(("plain", "ddh"), codes, strict=True):
            score = mean_average_precision(
                code[:cut], code[cut:], labels[:cut], labels[cut:], k=None
            )
            found[f"{way} mAP"] = round(float(score), 4)
    return found


def _oxford_classes(names: Sequence[str]) -> NDArray[np.int64] | None:
    """Classes of Oxford-17 from its file names: 80 images per class, numbered consecutively."""
    numbers = [re.search(r"image_(\d{4})\.jpg$", name) for name in names]
    if not all(numbers):
        return None
    return np.array([(int(match[1]) - 1) // 80 for match in numbers if match])


def sample_photographs(folder: Path, count: int, seed: int) -> Path:
    """Random crops of scikit-learn's two photographs, as JPEG files."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(seed)
    photographs = [Image.fromarray(array) for array in load_sample_images().images]
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        side = int(rng.integers(200, min(photograph.size)))
        left = int(rng.integers(0, photograph.width - side + 1))
        top = int(rng.integers(0, photograph.height - side + 1))
        crop = photograph.crop((left, top, left + side, top + side)).resize((500, 500))
        crop.save(folder / f"{number:05d}.jpg", quality=90)
    return folder
