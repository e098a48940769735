"""`ddh fit`: learn codes from pictures."""

import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from ddh._core.errors import InputError
from ddh._core.jobs import recorded
from ddh._core.output import describe_failures, emit, json_option, quiet_option

DEPTHS = ("head", "last-stage", "network")


@click.command()
@click.argument("images", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="Model folder.")
@click.option("-b", "--bits", default=64, show_default=True, help="Length of a code.")
@click.option(
    "--preset",
    type=click.Choice(["fast", "quality", "paper"]),
    default="fast",
    show_default=True,
    help="Where the settings come from: seconds, the best codes, or the paper.",
)
@click.option(
    "--backbone",
    help="Network: cnn-f, efficientnet-lite0/1/2, resnet18, resnet50, resnet18-tiny, timm/NAME, or "
    "auto: that of a file made by `ddh pretrain`.  "
    "[default: efficientnet-lite0, or what the preset chooses]",
)
@click.option("--weights", default="auto", show_default=True, help="auto, random, or a file.")
@click.option("--size", type=int, help="Side of the network's input in pixels.")
@click.option("--label-backbone", help="Another network for the neighbourhood labels.")
@click.option(
    "--depth",
    type=click.Choice(DEPTHS),
    default="head",
    show_default=True,
    help="What learns: the hashing layer, with the last stage, or the whole network.",
)
@click.option("--k1", type=int, help="Neighbours of the first stage.")
@click.option("--k2", type=int, help="Lists joined by the expansion.")
@click.option("--views", type=int, help="Random views of each picture to learn from too.")
@click.option("--epochs", type=int, help="Passes of the hashing layer over the images.")
@click.option(
    "--network-epochs", type=int, help="Passes of the network, at the other depths than head."
)
@click.option("--learning-rate", type=float, help="Learning rate of the hashing layer.")
@click.option("--approximate", is_flag=True, help="Approximate neighbours, for very many images.")
@click.option("--labels", type=click.Path(exists=True, path_type=Path), help="CSV: name,label.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, mps.")
@click.option("--seed", default=0, show_default=True, help="Same seed, same codes.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--force", is_flag=True, help="Replace the model in --out.")
@json_option
@quiet_option
@recorded("fit", "out")
def fit(
    images: Path,
    out: Path,
    depth: str,
    seed: int,
    labels: Path | None,
    resume: bool,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Learn codes for a folder of pictures (or a .npy file of pictures or features).

    \b
    ddh fit photos/ -o photos.ddh
    ddh fit photos/ -o photos.ddh --preset quality
    ddh fit photos/ -o photos.ddh --bits 128 --backbone efficientnet-lite2 --size 160
    ddh fit photos/ -o photos.ddh --resume        after a crash or Ctrl-C
    torchrun --nproc-per-node 4 -m ddh fit photos/ -o photos.ddh      on four GPUs
    """
    from ddh.hashers import DDH
    from ddh.train.distributed import job

    if (out / "model.json").exists() and not force:
        raise InputError(
            f"{out} holds a model, and an index may depend on it: choose another --out, or "
            "replace it with --force"
        )
    started = time.monotonic()
    with job(settings["device"]) as processes:
        X = read_input(images)
        model = DDH(depth=depth.replace("-", " "), random_state=seed, **settings)  # type: ignore[arg-type]
        y = None if labels is None else read_labels(labels, X)
        model.fit(X, y, checkpoint_dir=work_folder(out), resume=resume)
        if processes.is_main:
            model.save(out)
            document = _document(model, out, time.monotonic() - started)
            emit(document, _summary(document), as_json)


def _document(model: Any, out: Path, seconds: float) -> dict[str, Any]:
    return {
        "model": str(out),
        "id": model.model_id,
        "bits": model.bits,
        "images": model.images_,
        "skipped": model.skipped_,
        "seconds": round(seconds, 1),
        "settings": model.settings_,
        "labels": model.label_statistics_,
        "loss": model.history_[-1]["loss"],
    }


def _summary(document: dict[str, Any]) -> str:
    lines = [
        f"Learned {document['bits']}-bit codes from {document['images']:,} images "
        f"in {document['seconds']:.0f} s.",
        describe_failures(document["skipped"]),
        _approximation(document["labels"].get("approximation")),
        f"Model {document['id']} is in {document['model']}",
        "Next:",
        f"  ddh index add FOLDER --index photos.index --model {document['model']}",
        "  ddh search PICTURE --index photos.index",
    ]
    return "\n".join(line for line in lines if line)


def _approximation(report: dict[str, Any] | None) -> str:
    """What approximate neighbours cost, where they were used."""
    if report is None:
        return ""
    return (
        f"Approximate neighbours ({report['index']}): recall {report['recall']:.3f} on "
        f"{report['sample']} images; {report['label_recall']:.1%} of the exact labels are there, "
        f"{report['label_precision']:.1%} of the labels are exact ones."
    )


def work_folder(out: Path) -> Path:
    """Where a run keeps its unfinished work: beside the model."""
    return out.with_name(out.name + ".work")


def read_input(path: Path) -> Any:
    """A folder or a picture stays a path; a .npy file is an array of pictures or features."""
    if path.suffix != ".npy":
        return path
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise InputError(f"{path} cannot be read as an array: {error}") from error


def read_labels(path: Path, X: Any) -> np.ndarray:
    """Labels from lines `name,label` (several labels: `name,a;b`), in the order of the images."""
    import csv

    from ddh.images import is_images, open_images

    names = list(open_images(X).names) if is_images(X) else [str(i) for i in range(len(X))]
    with path.open(newline="", encoding="utf-8") as stream:
        table = {row[0]: row[1].split(";") for row in csv.reader(stream) if len(row) >= 2}
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(
            f"{path} has no label for {len(missing)} images, the first is {missing[0]!r}"
        )
    classes = sorted({label for name in names for label in table[name]})
    matrix = np.zeros((len(names), len(classes)), np.int64)
    for row, name in enumerate(names):
        matrix[row, [classes.index(label) for label in table[name]]] = 1
    return matrix.argmax(axis=1) if (matrix.sum(axis=1) == 1).all() else matrix
