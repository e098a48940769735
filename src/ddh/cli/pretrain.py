"""`ddh pretrain`: self-supervised training of a backbone on a collection."""

from pathlib import Path
from typing import Any

import click

from ddh._core.errors import InputError
from ddh._core.jobs import recorded
from ddh._core.output import describe_failures, emit, json_option, quiet_option
from ddh.cli.options import EXISTING, NEW_FILE, checkpoint_dir, device_option, read_input


@click.command()
@click.argument("images", type=EXISTING)
@click.option(
    "-o", "--out", required=True, type=NEW_FILE, help="Weights file to write, .safetensors."
)
@click.option(
    "--backbone", default="efficientnet-lite0",
    help="Network: efficientnet-lite0/1/2, resnet18/34/50[-tiny], timm/NAME.",
)  # fmt: skip
@click.option("--weights", default="auto", help="auto, random, or a file.")
@click.option("--size", type=int, help="Side of the network's input in pixels.")
@click.option("--minutes", type=float, help="Training time; the schedule is planned to fit it.")
@click.option("--epochs", type=int, help="Passes over the images, in place of --minutes.")
@click.option(
    "--steps", type=int,
    help="Batches, in place of --minutes.  [default for pseudo-codes beyond 64 pixels: 1,800 to "
    "3,600]",
)  # fmt: skip
@click.option(
    "--objective", default="byol",
    help="byol: tell images apart; pseudo-codes: learn the codes of neighbourhoods, starting from "
    "trained weights.",
)  # fmt: skip
@click.option(
    "--rounds", type=int,
    help="Number of warm-up/decay cycles; pseudo-codes regenerates its labels at the start of "
    "each.  [default: byol 1, pseudo-codes 2]",
)  # fmt: skip
@click.option("--batch-size", type=int, help="Images per step.  [default: 512]")
@click.option("--learning-rate", type=float, help="Peak rate for 256 images per step.")
@click.option(
    "--neighbours-from", type=float,
    help="Fraction of training after which a confident neighbour may replace the second view.  "
    "[default: 1, never]",
)  # fmt: skip
@click.option(
    "--keep-better/--keep-last", default=None,
    help="Whether initial weights are kept unless the neighbours of images agree more between two "
    "views afterwards.  [default: where trained weights are adapted to photographs]",
)  # fmt: skip
@device_option
@click.option("--seed", default=0)
@click.option("--resume", is_flag=True, help="Continue an interrupted run within its schedule.")
@json_option
@quiet_option
@recorded("pretrain", "out")
def pretrain(
    images: Path, out: Path, backbone: str, weights: str, size: int | None, device: str, seed: int,
    resume: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Train a network on images without labels, for better features and codes.

    Starts from pretrained weights if the network has some, otherwise from random ones. Progress is
    measured without labels: how often an image's nearest second view is its own, how stable
    neighbourhoods are, how many different codes are in use.

    \b
    ddh pretrain photos/ -o photos.safetensors --objective pseudo-codes
    ddh pretrain photos/ -o photos.safetensors --objective pseudo-codes --resume
    ddh pretrain icons/ -o icons.safetensors --backbone resnet18-tiny --weights random --epochs 200
    ddh pretrain icons/ -o better.safetensors --backbone auto --weights icons.safetensors \\
      --objective pseudo-codes --epochs 120
    ddh fit photos/ -o photos.ddh --backbone auto --weights photos.safetensors
    """
    import torch

    from ddh.backbones import create, save
    from ddh.images import is_images, open_images
    from ddh.pretrain import pretrain as run
    from ddh.pretrain import pretrain_settings
    from ddh.train.run_folder import run_folder

    if out.suffix != ".safetensors":
        raise InputError(f"the weights file ends in .safetensors, not in {out.suffix or 'nothing'}")
    X = read_input(images)
    if not is_images(X):
        raise InputError(f"{images} holds features: pretraining needs the images themselves")
    torch.manual_seed(seed)
    network = create(backbone, weights, size)
    source, trained = open_images(X), network.origin != "random"
    chosen = pretrain_settings(network.preprocessing.size, trained, settings, len(source))
    with run_folder(checkpoint_dir(out), resume, seed) as kept:
        options: dict[str, Any] = {"device": device, "seed": seed, "resume": resume}
        done = run(network, source, chosen, folder=kept.folder, **options)
        save(done.backbone, out)
    document = {
        "weights": str(out),
        "origin": done.backbone.origin,
        "improved": done.improved,
        "epochs": round(done.epochs, 1),
        "images": done.images,
        "seconds": round(done.seconds, 1),
        "skipped": [vars(failure) for failure in done.failures],
        "diagnostics": done.history,
        "settings": chosen.to_dict(),
    }
    emit(document, _summary(document), as_json)


def _summary(document: dict[str, Any]) -> str:
    rows = [
        f"{e['epoch']:8.1f} {e['loss']:7.3f} {e['instance_accuracy']:13.3f} "
        f"{'-' if e['stability'] is None else format(e['stability'], '.3f'):>10} "
        f"{e['entropy']:8.3f} {e['rank']:6.1f}"
        for e in document["diagnostics"]
    ]
    lines = [
        "   epoch    loss instance acc.  stability  entropy   rank",
        *rows,
        f"Trained for {document['epochs']:.0f} epochs of {document['images']:,} images in "
        f"{document['seconds']:.0f} s: "
        f"{document['weights']}{'' if document['improved'] else ' (the initial weights)'}",
        describe_failures(document["skipped"]),
        "Next:",
        f"  ddh fit IMAGES -o photos.ddh --backbone auto --weights {document['weights']}",
    ]
    return "\n".join(line for line in lines if line)
