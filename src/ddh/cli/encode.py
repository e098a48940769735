"""`ddh encode`: write the codes of images to a file."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddh._core.atomic import atomic_path, exclusive
from ddh._core.errors import InputError
from ddh._core.jobs import recorded
from ddh._core.output import csv_line, describe_failures, emit, json_option, quiet_option
from ddh._core.progress import bar
from ddh.cli.options import (
    ANY_PATH,
    Source,
    checkpoint_dir,
    device_option,
    local_path,
    ray_options,
    read_input,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ddh.cluster import Cluster
    from ddh.images import Failure

PART_IMAGES = 2048


@click.command()
@click.argument("images", type=Source())
@click.option("-m", "--model", required=True, type=ANY_PATH, help="Model folder.")
@click.option(
    "-o", "--out", required=True,
    help="Codes file: .npz (names, codes, bits, model) or .csv (name, code in hexadecimal); with "
    "--ray a folder or URL for Parquet files.",
)  # fmt: skip
@device_option
@click.option("--resume", is_flag=True, help="Continue an interrupted run (always with --ray).")
@ray_options
@json_option
@quiet_option
@recorded("encode", "out")
def encode(
    images: Path | str, model: Path, out: str, device: str, resume: bool,
    cluster: "Cluster | None", as_json: bool,
) -> None:  # fmt: skip
    """Compute the codes of a folder of images (or a .npy file of images or features).

    \b
    ddh encode photos/ -m photos.ddh -o codes.npz
    ddh encode photos/ -m photos.ddh -o codes.csv
    ddh encode s3://bucket/photos -m photos.ddh -o codes/ --ray auto       on a cluster
    """
    started = time.monotonic()
    if cluster is not None:
        document = _encode_on_cluster(str(images), model, out, cluster)
    else:
        document = _encode_here(local_path(images), model, Path(out), device, resume)
    document["seconds"] = round(time.monotonic() - started, 1)
    text = (
        f"Encoded {document['images']:,} images to {document['bits']} bits in "
        f"{document['seconds']:.0f} s: {out}"
    )
    if document.get("retried"):
        text += f"\n{document['retried']:,} pictures were sent again after a worker had died."
    from ddh.images.formats import describe_ignored

    ignored, skipped = document.get("ignored", {}), document["skipped"]
    lines = [text, describe_ignored(ignored), describe_failures(skipped)]
    emit(document, "\n".join(filter(None, lines)), as_json)


def _encode_here(images: Path, model: Path, out: Path, device: str, resume: bool) -> dict[str, Any]:
    from ddh.hashers import load, load_image_encoder
    from ddh.images import is_images, open_images

    if out.suffix not in (".npz", ".csv"):
        raise InputError(f"the codes file must end with .npz or .csv, not {out.name!r}")
    X = read_input(images)
    X = open_images(X) if is_images(X) else X
    hasher: Any = load_image_encoder(model, device=device) if is_images(X) else load(model)
    if not is_images(X):
        names, codes = [str(i) for i in range(len(X))], hasher.encode(X)
        failures: list[dict[str, Any]] = []
        _write(out, names, codes, hasher)
    else:
        folder = checkpoint_dir(out)
        if folder.exists() and not resume:
            raise InputError(
                f"{folder} holds an interrupted run: use --resume, or delete the folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder):
            names, codes, failures = _encode_parts(hasher, X, folder)
            _write(out, names, codes, hasher)
            shutil.rmtree(folder)
    return {
        "codes": str(out), "images": len(names), "bits": hasher.bits, "model_id": hasher.model_id,
        "skipped": failures, "ignored": dict(getattr(X, "ignored", {})),
    }  # fmt: skip


def _encode_on_cluster(source: str, model: Path, out: str, cluster: "Cluster") -> dict[str, Any]:
    """Codes into Parquet files; what an earlier run has done is kept."""
    from ddh.cluster import ImageLocation, ModelFiles, ShardTarget, encode_on_cluster

    if Path(out).suffix in (".npz", ".csv"):
        raise InputError(f"with --ray the codes go into a folder of Parquet files, not to {out!r}")
    if Path(source).is_file():
        raise InputError(f"with --ray give a folder of images or a URL, not the file {source}")
    files, images = ModelFiles.read(model), ImageLocation(source)
    target = ShardTarget(out, images.location, files.bits, files.id)
    report = encode_on_cluster(images, files, target, cluster)
    return {
        "codes": out, "images": report.rows, "bits": files.bits, "model_id": files.id,
        "encoded": report.new, "skipped": report.skipped, "workers": len(report.workers),
        "retried": report.retried,
    }  # fmt: skip


def encode_images(
    model: Any, images: Any, progress: Any = None
) -> "tuple[NDArray[np.int64], NDArray[np.uint8], list[Failure]]":
    """Which of the images could be encoded, their codes, and the failures."""
    import numpy as np

    done = list(encode_batches(model, images, progress))
    indices = np.concatenate([batch.indices for batch in done])
    codes = np.concatenate([batch.codes for batch in done])
    return indices, codes, [failure for batch in done for failure in batch.failures]


def encode_batches(
    model: Any, images: Any, progress: Any = None, title: str = "Encoding"
) -> Iterator[Any]:
    """Codes and failures batch by batch, counted on `progress` or on a bar of their own."""
    own = bar(title, total=len(images), unit="image")
    with own if progress is None else nullcontext(progress) as shown:
        for batch in model.encode_images(images):
            yield batch
            shown.update(len(batch.indices) + len(batch.failures))


def _encode_parts(
    model: Any, source: Any, folder: Path
) -> "tuple[list[str], NDArray[np.uint8], list[dict[str, Any]]]":
    """Encode in parts of a few thousand images, each kept on disk until all are written."""
    import numpy as np

    names: list[str] = []
    codes: list[NDArray[np.uint8]] = []
    failures: list[dict[str, Any]] = []
    with bar("Encoding", total=len(source), unit="image") as progress:
        for start in range(0, len(source), PART_IMAGES):
            part = source.take(range(start, min(start + PART_IMAGES, len(source))))
            kept, part_codes, failed = _encode_part(model, part, folder / f"{start}.npz", progress)
            names += [part.names[i] for i in kept]
            codes.append(part_codes)
            failures += failed
    if not names:
        shutil.rmtree(folder)
        raise InputError(f"none of the images could be encoded: {failures[0]['reason']}")
    return names, np.concatenate(codes), failures


def _encode_part(
    model: Any, part: Any, file: Path, progress: Any
) -> "tuple[NDArray[np.int64], NDArray[np.uint8], list[dict[str, Any]]]":
    """Encode a part, or read it where an earlier run has written it."""
    import numpy as np

    identity = {"model": model.model_id, "names": list(part.names)}
    if file.is_file():
        try:
            with np.load(file, allow_pickle=False) as saved:
                note, kept = json.loads(str(saved["note"])), (saved["indices"], saved["codes"])
        except Exception as error:  # zip files have many ways to be damaged
            raise InputError(f"{file} is damaged; delete it to encode its images again") from error
        if note["identity"] != identity:
            raise InputError(
                f"{file.parent} belongs to other images or another model; delete the folder "
                "to start again"
            )
        progress.update(len(part))
        return *kept, note["failures"]
    indices, codes, failed = encode_images(model, part, progress)
    failures = [{"name": f.name, "reason": f.reason} for f in failed]
    note = json.dumps({"identity": identity, "failures": failures})
    with atomic_path(file) as target, target.open("wb") as stream:
        np.savez(stream, indices=indices, codes=codes, note=np.array(note))
    return indices, codes, failures


def _write(out: Path, names: list[str], codes: "NDArray[np.uint8]", hasher: Any) -> None:
    import numpy as np

    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(out) as target:
        if out.suffix == ".csv":
            with target.open("w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
                stream.write(csv_line(["name", "code"]))
                for name, code in zip(names, codes, strict=True):
                    stream.write(csv_line([name, code.tobytes().hex()]))
            return
        with target.open("wb") as stream:
            np.savez(
                stream, names=np.array(names), codes=codes, bits=np.array(hasher.bits),
                model_id=np.array(hasher.model_id), bit_order=np.array("big"),
            )  # fmt: skip
