"""`ddh bench encode`: pictures a second from files to codes, against a plain loop."""

import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ddh._core.output import emit, json_option


@click.command()
@click.option(
    "--images", type=click.Path(exists=True, path_type=Path),
    help="Folder of photographs, or of Oxford-17 (then mAP is compared too). "
    "Default: crops of scikit-learn's two photographs.",
)  # fmt: skip
@click.option("--backbone", default="efficientnet-lite0", show_default=True)
@click.option("--bits", default=64, show_default=True)
@click.option("--plain", default=48, show_default=True, help="Pictures for the slow plain loop.")
@click.option("--limit", default=400, show_default=True, help="Use at most this many pictures.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--seed", default=0, show_default=True)
@json_option
def encode(
    images: Path | None, backbone: str, bits: int, plain: int, limit: int, device: str, seed: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Pictures a second of our encoder, and of one picture at a time through the eager network."""
    import torch

    from ddh.backbones import create
    from ddh.images import ImageFolder
    from ddh.train import Extractor

    with tempfile.TemporaryDirectory() as scratch:
        folder = images or sample_photographs(Path(scratch), limit, seed)
        photographs = ImageFolder(folder)
        chosen = np.random.default_rng(seed).permutation(len(photographs))[:limit]
        source = photographs.take(chosen)
        network = create(backbone).eval()
        few = source.take(range(min(plain, len(source))))
        slow, plain_rate = _plain_loop(network, few)
        extractor = Extractor(network, device)
        list(extractor.stream(few))  # the first pass warms up
        started = time.perf_counter()
        ours = torch.cat([batch.features.cpu() for batch in extractor.stream(source)]).numpy()
        rate = len(source) / (time.perf_counter() - started)
        document = {
            "backbone": backbone, "images": len(source), "plain images/s": round(plain_rate, 2),
            "ddh images/s": round(rate, 2), "ratio": round(rate / plain_rate, 2),
            "threads": torch.get_num_threads(), "bfloat16": extractor.half,
        }  # fmt: skip
        document |= _agreement(slow, ours, few.names, bits)
    emit(document, "\n".join(f"{key}: {value}" for key, value in document.items()), as_json)


def _plain_loop(network: Any, source: Any) -> tuple[np.ndarray, float]:
    """Open, resize, normalise, one forward pass: picture by picture, as a first script would."""
    import torch
    from PIL import Image

    features = []
    started = time.perf_counter()
    for path in source.paths:
        with Image.open(path) as image:
            pixels = network.preprocessing.apply(image)
        with torch.no_grad():
            x = torch.from_numpy(pixels[None].copy())
            features.append(network(network.normalise(x).contiguous())[0].numpy())
    return np.stack(features), len(features) / (time.perf_counter() - started)


def _agreement(
    plain: np.ndarray, ours: np.ndarray, names: Sequence[str], bits: int
) -> dict[str, Any]:
    """Share of equal bits of the two ways, and mAP by each where the names tell the class."""
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


def _oxford_classes(names: Sequence[str]) -> np.ndarray | None:
    """Classes of Oxford-17 from its file names: 80 pictures a class, numbered through."""
    numbers = [re.search(r"image_(\d{4})\.jpg$", name) for name in names]
    if not all(numbers):
        return None
    return np.array([(int(match[1]) - 1) // 80 for match in numbers if match])


def sample_photographs(folder: Path, count: int, seed: int) -> Path:
    """Random crops of the two photographs that scikit-learn carries, as JPEG files."""
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
