"""`ddh pretrain`: teach a network the look of a collection before codes are learned."""

import shutil
from pathlib import Path
from typing import Any

import click

from ddh._core.errors import InputError
from ddh._core.jobs import recorded
from ddh._core.output import describe_failures, emit, json_option, quiet_option
from ddh.cli.fit import read_input, work_folder


@click.command()
@click.argument("images", type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path),
    help="Weights file, .safetensors.",
)  # fmt: skip
@click.option(
    "--backbone",
    default="efficientnet-lite0",
    show_default=True,
    help="Network: efficientnet-lite0/1/2, resnet18, resnet50, resnet18-tiny, timm/NAME.",
)
@click.option("--weights", default="auto", show_default=True, help="auto, random, or a file.")
@click.option("--size", type=int, help="Side of the network's input in pixels.")
@click.option("--minutes", type=float, help="Time to train; the schedule is planned to fit.")
@click.option("--epochs", type=int, help="Passes over the images, in place of --minutes.")
@click.option(
    "--objective",
    default="byol",
    show_default=True,
    help="byol: to tell pictures apart; codes: the codes of neighbourhoods, on trained weights.",
)
@click.option("--rounds", type=int, help="Of codes: labels are made anew so often.  [default: 2]")
@click.option("--batch-size", type=int, help="Images a step.  [default: 512]")
@click.option("--learning-rate", type=float, help="For 256 images a step.")
@click.option(
    "--neighbours-from",
    type=float,
    help="Share of the training after which neighbours stand for views too.  [default: 1, never]",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, mps.")
@click.option("--seed", default=0, show_default=True)
@click.option("--resume", is_flag=True, help="Go on with an interrupted run, within its plan.")
@json_option
@quiet_option
@recorded("pretrain", "out")
def pretrain(
    images: Path,
    out: Path,
    backbone: str,
    weights: str,
    size: int | None,
    device: str,
    seed: int,
    resume: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train a network on pictures without labels, for better features and codes.

    Starts from trained weights where the network has some, from random ones elsewhere. Without
    labels, progress shows in the signs that are printed: how often two views of a picture find each
    other, how stable neighbourhoods are, how many codes are in use.

    \b
    ddh pretrain photos/ -o photos.safetensors --minutes 20
    ddh pretrain photos/ -o photos.safetensors --minutes 20 --resume
    ddh pretrain icons/ -o icons.safetensors --backbone resnet18-tiny --weights random --epochs 200
    ddh pretrain icons/ -o better.safetensors --backbone auto --weights icons.safetensors \\
      --objective codes --epochs 120
    ddh fit photos/ -o photos.ddh --backbone auto --weights photos.safetensors
    """
    import torch

    from ddh.backbones import create, save
    from ddh.images import is_images, open_images
    from ddh.pretrain import pretrain as run
    from ddh.pretrain import pretrain_settings

    if out.suffix != ".safetensors":
        raise InputError(f"the weights file ends in .safetensors, not in {out.suffix or 'nothing'}")
    X = read_input(images)
    if not is_images(X):
        raise InputError(f"{images} holds features: pretraining needs the pictures themselves")
    torch.manual_seed(seed)
    network = create(backbone, weights, size)
    chosen = pretrain_settings(network.preprocessing.size, network.origin != "random", settings)
    work = work_folder(out)
    if work.exists() and not resume:
        raise InputError(f"{work} holds an interrupted run: add --resume, or delete the folder")
    done = run(
        network, open_images(X), chosen, device=device, seed=seed, folder=work, resume=resume
    )
    save(done.backbone, out)
    shutil.rmtree(work, ignore_errors=True)
    document = {
        "weights": str(out),
        "origin": done.backbone.origin,
        "epochs": round(done.epochs, 1),
        "seconds": round(done.seconds, 1),
        "skipped": [vars(failure) for failure in done.failures],
        "signs": done.history,
        "settings": chosen.to_dict(),
    }
    emit(document, _summary(document), as_json)


def _summary(document: dict[str, Any]) -> str:
    head = (
        f"{'epoch':>8} {'loss':>7} {'agreement':>10} {'stability':>10} {'entropy':>8} {'rank':>6}"
    )
    rows = [
        f"{e['epoch']:8.1f} {e['loss']:7.3f} {e['agreement']:10.3f} "
        f"{'-' if e['stability'] is None else format(e['stability'], '.3f'):>10} "
        f"{e['entropy']:8.3f} {e['rank']:6.1f}"
        for e in document["signs"]
    ]
    lines = [
        head,
        *rows,
        f"Trained for {document['epochs']:.0f} epochs in {document['seconds']:.0f} s: "
        f"{document['weights']}",
        describe_failures(document["skipped"]),
        "Next:",
        f"  ddh fit IMAGES -o photos.ddh --backbone auto --weights {document['weights']}",
    ]
    return "\n".join(line for line in lines if line)
