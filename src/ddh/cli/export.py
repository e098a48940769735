"""`ddh export`: a network as an ONNX file, which encodes without torch."""

from pathlib import Path

import click

from ddh._core.output import emit, json_option
from ddh.cli.options import NEW_FILE


@click.command()
@click.argument("weights")
@click.option("-o", "--out", required=True, type=NEW_FILE, help="File to write, .onnx.")
@click.option(
    "--backbone", default="auto",
    help="Network of the weights; auto: that of a file written by `ddh pretrain`.",
)  # fmt: skip
@click.option("--size", type=int, help="Side of the network's input in pixels.")
@json_option
def export(weights: str, out: Path, backbone: str, size: int | None, as_json: bool) -> None:
    """Write a network as ONNX, which encodes on ONNX Runtime without torch.

    WEIGHTS is a file, or auto: the ImageNet weights of --backbone. The ONNX file also holds the
    preprocessing, and where the weights come from.

    \b
    ddh export photos.safetensors -o photos.onnx
    ddh export auto --backbone efficientnet-lite2 --size 160 -o lite2.onnx
    ddh fit photos/ -o photos.ddh --backbone auto --weights photos.onnx
    """
    from ddh.backbones import create, export_onnx

    network = export_onnx(create(backbone, weights, size), out)
    document = {
        "network": str(out),
        "name": network.name,
        "origin": network.origin,
        "dimensions": network.dimensions,
        "preprocessing": network.preprocessing.to_dict(),
        "bytes": len(network.content),
    }
    text = (
        f"{network.name} at {network.preprocessing.size} pixels, {network.dimensions} features, "
        f"{len(network.content) / 1e6:.1f} MB: {out}\n"
        f"Next:\n  ddh fit IMAGES -o MODEL --backbone auto --weights {out}"
    )
    emit(document, text, as_json)
