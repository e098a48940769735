"""`ddh bench encode`: images per second from files to features, by each encoder."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import MissingDependency
from ddh._core.lazy import TRAIN, has_torch
from ddh._core.output import emit, json_option
from ddh._core.threads import omp_threads
from ddh.bench.options import seed_option
from ddh.bench.timing import timed


@click.command()
@click.option(
    "--images",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of photographs, or of Oxford-17 (which also compares mAP). "
    "Default: crops of scikit-learn's two photographs.",
)
@click.option(
    "--backbone", default="efficientnet-lite0",
    help="Network; ONNX Runtime is compared where it runs it, torch where it is installed.",
)  # fmt: skip
@click.option("--bits", default=64)
@click.option("--plain", default=48, help="Images for the slow simple loop of torch.")
@click.option("--limit", default=400, help="Use at most this many images.")
@click.option("--repeats", default=3, help="Rounds over the encoders; the fastest of each counts.")
@click.option("--device", default="cpu", help="Device of torch.")
@seed_option
@json_option
def encode(
    images: Path | None, backbone: str, bits: int, plain: int, limit: int, repeats: int,
    device: str, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Images per second from files to features: each encoder, and a simple loop of torch.

    The encoders take turns, so that what else the machine does slows all of them. CPU seconds
    count only what the encoder itself has used.
    """
    from ddh.backbones import create
    from ddh.images import ImageFolder
    from ddh.train import Extractor

    with tempfile.TemporaryDirectory() as scratch:
        photographs = ImageFolder(images or sample_photographs(Path(scratch), limit, seed))
        source = photographs.take(np.random.default_rng(seed).permutation(len(photographs))[:limit])
        few = source.take(range(min(plain, len(source))))
        extractors = {name: Extractor(n, d) for name, n, d in _encoders(backbone, device)}
        if not extractors:
            raise MissingDependency(f"the backbone {backbone} needs torch: {TRAIN}")
        best: dict[str, dict[str, float]] = {}
        features = {}
        for extractor in extractors.values():
            list(extractor.stream(few))  # warm-up
        for name, extractor in list(extractors.items()) * repeats:
            found, taken = timed(lambda e=extractor: [b.features for b in e.stream(source)])  # type: ignore[misc]
            features[name] = np.concatenate(found)
            kept = best.setdefault(name, taken)
            best[name] = {clock: min(kept[clock], taken[clock]) for clock in ("wall", "cpu")}
        rows: dict[str, dict[str, Any]] = {
            name: {
                "precision": extractors[name].precision,
                "images/s": round(len(source) / taken["wall"], 2),
                "images per CPU second": round(len(source) / taken["cpu"], 2),
            }
            for name, taken in best.items()
        }
        if "torch" in extractors:
            slow, simple = timed(_simple_loop, create(backbone).eval(), few.paths)
            features["simple loop of torch"] = slow
            rows["simple loop of torch"] = {
                "precision": "float32",
                "images/s": round(len(few) / simple["wall"], 2),
                "images per CPU second": round(len(few) / simple["cpu"], 2),
            }
    document: dict[str, Any] = {
        "backbone": backbone,
        "images": len(source),
        "threads": omp_threads(),
        "encoders": rows,
        "agreement": _agreement(features, list(few.names), bits),
    }
    document["ratio to torch"] = {
        name: round(row["images per CPU second"] / rows["torch"]["images per CPU second"], 2)
        for name, row in rows.items()
        if "torch" in rows and name != "torch"
    }
    emit(document, _text(document), as_json)


def _encoders(backbone: str, device: str) -> Iterator[tuple[str, Any, str]]:
    """(name, network, device) of what can run the backbone here."""
    from ddh.backbones import ENCODERS, OnnxNetwork, create, default_encoder

    if default_encoder(backbone) != "torch":
        yield from ((name, OnnxNetwork(name), "cpu") for name in ENCODERS[:-1])
    if has_torch():
        yield "torch", create(backbone), device


def _text(document: dict[str, Any]) -> str:
    lines = [f"{document['backbone']}, {document['images']} images, {document['threads']} threads"]
    lines.append(
        f"{'encoder':<22}{'precision':<11}{'images/s':>10}{'per CPU s':>11}{'of torch':>10}"
    )
    for name, row in document["encoders"].items():
        ratio = document["ratio to torch"].get(name, "")
        lines.append(
            f"{name:<22}{row['precision']:<11}{row['images/s']:>10}"
            f"{row['images per CPU second']:>11}{ratio:>10}"
        )
    for name, value in document["agreement"].items():
        lines.append(f"{name}: {value}")
    return "\n".join(lines)


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
    features: dict[str, NDArray[np.float32]], names: Sequence[str], bits: int
) -> dict[str, Any]:
    """Share of bits equal to those of float features, and mAP where file names give the class."""
    from ddh.evaluation import mean_average_precision
    from ddh.hashers import ITQ

    first = "onnx" if "onnx" in features else "torch"
    few = {name: values[: len(names)] for name, values in features.items()}
    hasher = ITQ(bits=min(bits, len(features[first]) - 1)).fit(features[first])
    codes = {name: hasher.transform(values) for name, values in few.items()}
    found: dict[str, Any] = {
        f"bits of {name} equal to {first}": round(float((code == codes[first]).mean()), 4)
        for name, code in codes.items()
        if name != first
    }
    labels = _oxford_classes(names)
    if labels is not None and len(names) >= 30:
        cut = len(names) // 3
        for name, code in codes.items():
            score = mean_average_precision(
                code[:cut], code[cut:], labels[:cut], labels[cut:], k=None
            )
            found[f"mAP of {name}"] = round(float(score), 4)
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
