"""`ddh fit`: learn codes from pictures."""

import shlex
import time
from pathlib import Path
from typing import Any

import click

from ddh._core.errors import InputError
from ddh._core.jobs import recorded
from ddh._core.output import describe_failures, emit, json_option, quiet_option
from ddh.cli.labels import classes_of
from ddh.cli.options import ANY_PATH, EXISTING, checkpoint_dir, device_option, read_input

DEPTHS = ("head", "last-stage", "network")


@click.command()
@click.argument("images", type=EXISTING)
@click.option("-o", "--out", required=True, type=ANY_PATH, help="Model folder.")
@click.option("-b", "--bits", default=64, help="Code length in bits.")
@click.option(
    "--preset", type=click.Choice(["fast", "quality", "paper"]), default="fast",
    help="Default settings: seconds of training, the best codes, or those of the paper.",
)  # fmt: skip
@click.option(
    "--backbone",
    help="Network: cnn-f, efficientnet-lite0/1/2, resnet18/34/50[-tiny], timm/NAME, or "
    "auto: that of a file written by `ddh pretrain` or `ddh export`.  "
    "[default: efficientnet-lite0, or what the preset chooses]",
)
@click.option("--weights", default="auto", help="auto, random, or a file.")
@click.option("--size", type=int, help="Side of the network's input in pixels.")
@click.option(
    "--encoder", type=click.Choice(["auto", "onnx-int8", "onnx", "torch"]), default="auto",
    help="What runs the network: ONNX Runtime in 8 bits or in floating point, or torch, which "
    "trains networks and knows GPUs.",
)  # fmt: skip
@click.option("--label-backbone", help="Another network for the pairwise labels.")
@click.option("--label-weights", default="auto", help="Its weights: auto, random, or a file.")
@click.option(
    "--depth", type=click.Choice(DEPTHS), default="head",
    help="What is trained: the hashing layer, the last stage as well, or the whole network.",
)  # fmt: skip
@click.option("--k1", type=int, help="Nearest neighbours per image (K1 of the paper).")
@click.option("--k2", type=int, help="Neighbour lists joined by the expansion (K2).")
@click.option("--views", type=int, help="Random views per image to train on as well.")
@click.option("--epochs", type=int, help="Epochs of the hashing layer.")
@click.option("--network-epochs", type=int, help="Epochs of the network, unless --depth is head.")
@click.option("--learning-rate", type=float, help="Learning rate of the hashing layer.")
@click.option("--approximate", is_flag=True, help="Approximate neighbours, for very many images.")
@click.option("--labels", type=EXISTING, help="CSV: name,label.")
@device_option
@click.option("--seed", default=0, help="Same seed, same codes.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--force", is_flag=True, help="Replace the model in --out.")
@json_option
@quiet_option
@recorded("fit", "out")
def fit(
    images: Path, out: Path, depth: str, seed: int, labels: Path | None, resume: bool, force: bool,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Learn codes for a folder of images (or a .npy file of images or features).

    \b
    ddh fit photos/ -o photos.ddh
    ddh fit photos/ -o photos.ddh --preset quality
    ddh fit photos/ -o photos.ddh --bits 128 --backbone efficientnet-lite2 --size 160
    ddh fit photos/ -o photos.ddh --resume        after a crash or Ctrl-C
    torchrun --nproc-per-node 4 -m ddh fit photos/ -o photos.ddh      on four GPUs
    """
    from ddh.hashers import DDH
    from ddh.images import is_images, open_images
    from ddh.train.distributed import job

    if (out / "model.json").exists() and not force:
        raise InputError(
            f"{out} holds a model, and an index may depend on it: choose another --out, or "
            "replace it with --force"
        )
    started = time.monotonic()
    with job(settings["device"]) as processes:
        X = read_input(images)
        X = open_images(X) if is_images(X) else X
        model = DDH(depth=depth.replace("-", " "), random_state=seed, **settings)  # type: ignore[arg-type]
        y = None if labels is None else classes_of(_names(X), labels)
        model.fit(X, y, checkpoint_dir=checkpoint_dir(out), resume=resume)
        if processes.is_main:
            model.save(out)
            document = {
                "model": str(out),
                "id": model.model_id,
                "bits": model.bits,
                "images": model.images_,
                "skipped": model.skipped_,
                "ignored": dict(getattr(X, "ignored", {})),
                "seconds": round(time.monotonic() - started, 1),
                "settings": model.settings_,
                "labels": model.label_statistics_,
                "loss": model.history_[-1].get("loss"),
                "kept_neighbours": model.history_[-1].get("kept_neighbours"),
            }
            emit(document, _summary(document, _next_commands(images, out, model.skipped_)), as_json)


def _next_commands(images: Path, model: Path, skipped: list[dict[str, Any]]) -> list[str]:
    """Commands to go on with, ready to be pasted."""
    from ddh.images.decoding import printable
    from ddh.images.sources import picture_files

    bad = {failure["name"] for failure in skipped}
    files = picture_files(images) if images.is_dir() else iter(())
    first = next((f for f in files if printable(f.relative_to(images)) not in bad), None)
    if first is None:
        return []
    index = model.with_suffix(".index")
    return [
        "Next:",
        "  " + shlex.join(
            ["ddh", "index", "add", str(images), "--index", str(index), "--model", str(model)]
        ),
        "  " + shlex.join(["ddh", "search", str(first), "--index", str(index)]),
    ]  # fmt: skip


def _summary(document: dict[str, Any], next_commands: list[str]) -> str:
    from ddh.images.formats import describe_ignored

    lines = [
        f"Learned {document['bits']}-bit codes from {document['images']:,} images "
        f"in {document['seconds']:.0f} s.",
        _kept(document["kept_neighbours"]),
        describe_ignored(document["ignored"]),
        describe_failures(document["skipped"]),
        _approximation(document["labels"].get("approximation")),
        f"Model {document['id']} is in {document['model']}",
        *next_commands,
    ]
    return "\n".join(line for line in lines if line)


def _kept(share: float | None) -> str:
    """How well the codes know single pictures, where that was measured."""
    if share is None:
        return ""
    return f"{share:.0%} of the ten nearest pictures are among the first 100 by these codes."


def _approximation(report: dict[str, Any] | None) -> str:
    """What approximate neighbours cost, where they were used."""
    if report is None:
        return ""
    return (
        f"Approximate neighbours ({report['index']}): recall {report['recall']:.3f} on "
        f"{report['sample']} images; {report['label_recall']:.1%} of the exact labels are there, "
        f"{report['label_precision']:.1%} of the labels are exact ones."
    )


def _names(X: Any) -> list[str]:
    """What a table of labels calls the rows: the names of images, the numbers of features."""
    from ddh.images import is_images, open_images

    return list(open_images(X).names) if is_images(X) else [str(i) for i in range(len(X))]
