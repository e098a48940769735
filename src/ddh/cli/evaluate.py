"""`ddh evaluate`: how well codes find images of the same class, with the protocol beside it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.output import emit, json_option, quiet_option
from ddh.cli.labels import classes_of
from ddh.evaluation import (
    DENOMINATORS,
    PROTOCOLS,
    Protocol,
    Retrieval,
    Score,
    diagnose,
    refuse_shared_images,
    split_by_name,
)


@dataclass(frozen=True)
class Side:
    """Packed codes and the names of their images; the images too, where pictures were given."""

    codes: NDArray[np.uint8]
    bits: int
    names: list[str]
    model_id: str
    images: Any = None


@click.command(short_help="Score codes: mAP with and without luck in ties, precision, recall.")
@click.argument("queries", required=False, type=click.Path(exists=True, path_type=Path))
@click.argument("database", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("-m", "--model", type=click.Path(path_type=Path), help="Model folder.")
@click.option(
    "--labels",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV: name,label (several: name,a;b). Default: the first folder in a name is its class.",
)
@click.option("--protocol", type=click.Choice(sorted(PROTOCOLS)), help="A data set by name.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="DDH_DATA",
    show_envvar=True,
    help="Folder of the data set of --protocol.",
)
@click.option("-k", type=int, help="Cut of the ranking; 1000, or what the protocol says.")
@click.option(
    "--denominator",
    type=click.Choice(DENOMINATORS),
    default=DENOMINATORS[0],
    show_default=True,
    help="What AP is divided by.",
)
@click.option(
    "--without-relevant",
    type=click.Choice(["zero", "skip"]),
    default="zero",
    show_default=True,
    help="What a query without any relevant image counts.",
)
@click.option("--seed", default=0, show_default=True, help="Order of ties in the legacy value.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, mps.")
@json_option
@quiet_option
def evaluate(
    queries: Path | None,
    database: Path | None,
    model: Path | None,
    labels: Path | None,
    protocol: str | None,
    data: Path | None,
    k: int | None,
    denominator: str,
    without_relevant: Any,
    seed: int,
    device: str,
    as_json: bool,
) -> None:
    """Rank DATABASE by Hamming distance for each of QUERIES and score the rankings.

    QUERIES and DATABASE are folders of pictures (with -m), or code files that `ddh encode` wrote.
    A query that is also in the database, pixel for pixel, is refused.

    \b
    ddh evaluate queries/ photos/ -m photos.ddh       classes are the folders in each
    ddh evaluate queries.npz codes.npz --labels labels.csv
    ddh evaluate -m cifar.ddh --protocol cifar10-10k-50k --data DIR
    """
    if protocol is not None:
        if queries is not None or model is None or data is None:
            raise InputError("--protocol goes with -m MODEL and --data DIR, and with nothing else")
        retrieval, k = _by_protocol(protocol, data, model, k, seed, device, without_relevant)
    elif queries is None or database is None:
        raise InputError("give QUERIES and DATABASE, or --protocol with --data and -m")
    else:
        retrieval = _by_folders(queries, database, model, labels, device, without_relevant)
        k = 1000 if k is None else k
    scores = _scores(retrieval, k, denominator, seed)
    codes = diagnose(retrieval.database_codes, bits=retrieval.bits)
    document = {
        "scores": {name: score.as_dict() for name, score in scores.items()},
        "codes": codes.as_dict(),
    }
    emit(document, _text(scores, str(codes), retrieval.protocol), as_json)


def _scores(retrieval: Retrieval, k: int | None, denominator: str, seed: int) -> dict[str, Score]:
    depth = k or 1000
    return {
        "expected": retrieval.mean_average_precision(k, denominator=denominator),
        "legacy": retrieval.mean_average_precision(
            k, ties="legacy", denominator=denominator, seed=seed
        ),
        "whole ranking": retrieval.mean_average_precision(None, denominator=denominator),
        "precision": retrieval.precision_at(min(depth, 100)),
        "recall": retrieval.recall_at(depth),
        "radius 2": retrieval.precision_within(2),
    }


def _text(scores: dict[str, Score], codes: str, protocol: Protocol) -> str:
    expected, legacy = scores["expected"], scores["legacy"]
    lines = [
        f"{expected.protocol.title:<26} {expected.figure}   mean over all orders of ties",
        f"{'':<26} {legacy.figure}   legacy: ties in a seeded order",
    ]
    for name in ("whole ranking", "precision", "recall", "radius 2"):
        title = "mAP, whole ranking" if name == "whole ranking" else scores[name].protocol.title
        lines.append(f"{title:<26} {scores[name].figure}")
    if expected.empty:
        lines.append(f"{expected.empty:,} queries have no relevant image in the database")
    lines += [f"codes: {codes}", f"measured on: {protocol}; denominator "]
    lines[-1] += str(expected.protocol.denominator)
    return "\n".join(lines)


def _by_folders(
    queries: Path,
    database: Path,
    model: Path | None,
    labels: Path | None,
    device: str,
    without_relevant: Any,
) -> Retrieval:
    from ddh.hashers import load_image_encoder

    hasher = None if model is None else load_image_encoder(model, device=device)
    asked, searched = _side(queries, hasher), _side(database, hasher)
    if asked.model_id != searched.model_id:
        raise InputError(
            f"the codes of {queries} are of model {asked.model_id}, those of {database} of "
            f"{searched.model_id}: encode both with one model"
        )
    if asked.images is not None and searched.images is not None:
        refuse_shared_images(asked.images, searched.images)
    classes = classes_of([*asked.names, *searched.names], labels)
    count = len(asked.names)
    return Retrieval(
        asked.codes,
        searched.codes,
        classes[:count],
        classes[count:],
        bits=asked.bits,
        without_relevant=without_relevant,
        protocol=Protocol(data=f"{queries.name} against {database.name}", **_features(model)),
    )


def _by_protocol(
    name: str,
    root: Path,
    model: Path,
    k: int | None,
    seed: int,
    device: str,
    without_relevant: Any,
) -> tuple[Retrieval, int | None]:
    from ddh.hashers import load_image_encoder
    from ddh.images import cifar10, nus_wide

    data = cifar10(root, "all") if name.startswith("cifar10") else nus_wide(root)
    split = split_by_name(name, data.labels, seed=seed)
    hasher = load_image_encoder(model, device=device)
    asked = _encode(hasher, data.images.take(split.query))
    searched = _encode(hasher, data.images.take(split.database))
    refuse_shared_images(asked.images, searched.images)
    retrieval = Retrieval(
        asked.codes,
        searched.codes,
        data.labels[split.query],
        data.labels[split.database],
        bits=asked.bits,
        without_relevant=without_relevant,
        protocol=Protocol(data=data.name, split=split.title, **_features(model)),
    )
    return retrieval, split.k if k is None else k


def _features(model: Path | None) -> dict[str, Any]:
    """What the protocol says of the features, from the description of a model."""
    from ddh.hashers import storage

    if model is None:
        return {}
    description, _, model_id = storage.read(model)
    backbone = description["fitted"]["backbone"]
    size = backbone["preprocessing"]["size"]
    return {
        "backbone": f"{backbone['name']} at {size} px, {description['method']} {model_id}",
        "supervision": backbone["origin"],
    }


def _side(path: Path, hasher: Any) -> Side:
    from ddh.images import open_images

    if path.suffix == ".npz":
        return _read_codes(path)
    if hasher is None:
        raise InputError(f"{path} holds pictures: give the model that encodes them with -m MODEL")
    return _encode(hasher, open_images(path))


def _read_codes(path: Path) -> Side:
    try:
        with np.load(path, allow_pickle=False) as file:
            names, model_id = file["names"].tolist(), str(file["model_id"])
            return Side(file["codes"], int(file["bits"]), names, model_id)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise InputError(f"{path} is not a file that `ddh encode` wrote: {error}") from error


def _encode(hasher: Any, images: Any) -> Side:
    from ddh._core.progress import bar

    codes: list[NDArray[np.uint8]] = []
    with bar("Encoding", total=len(images), unit="image") as progress:
        for batch in hasher.encode_images(images):
            if batch.failures:
                first = batch.failures[0]
                raise InputError(f"{first.name}: {first.reason}; repair it or take it away")
            codes.append(batch.codes)
            progress.update(len(batch.codes))
    return Side(np.concatenate(codes), hasher.bits, list(images.names), hasher.model_id, images)
