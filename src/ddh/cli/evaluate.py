"""`ddh evaluate`: how well codes find images of the same class, with the protocol beside it."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.output import emit, json_option, quiet_option
from ddh.cli.encode import encode_images
from ddh.cli.labels import classes_of
from ddh.cli.options import ANY_PATH, EXISTING, device_option
from ddh.evaluation import (
    DENOMINATORS,
    PROTOCOLS,
    Protocol,
    Retrieval,
    Score,
    diagnose,
    protocol_images,
    refuse_shared_images,
    split_by_name,
)

NOTES = {
    "expected": "mean over all orders of ties",
    "legacy": "legacy: ties in a seeded order",
}


class Side(NamedTuple):
    """Packed codes and the names of their images; the images too, unless codes were given."""

    codes: NDArray[np.uint8]
    bits: int
    names: list[str]
    model_id: str
    images: Any = None


# What is ranked: queries, database, the labels of both, and what the protocol says of the data.
Task = tuple[Side, Side, tuple[NDArray[Any], NDArray[Any]], dict[str, Any]]


@click.command(short_help="Score codes: tie-aware and legacy mAP, precision, recall.")
@click.argument("queries", required=False, type=EXISTING)
@click.argument("database", required=False, type=EXISTING)
@click.option("-m", "--model", type=ANY_PATH, help="Model folder.")
@click.option(
    "--labels", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV: name,label (several: name,a;b). Default: the first folder in a name is its class.",
)  # fmt: skip
@click.option("--protocol", type=click.Choice(sorted(PROTOCOLS)), help="A data set by name.")
@click.option(
    "--data", type=ANY_PATH, envvar="DDH_DATA", show_envvar=True,
    help="Folder of the data set of --protocol.",
)  # fmt: skip
@click.option("-k", type=int, help="Ranking cutoff; 1000, or that of the protocol.")
@click.option(
    "--denominator", type=click.Choice(DENOMINATORS), default=DENOMINATORS[0],
    help="What AP is divided by.",
)  # fmt: skip
@click.option(
    "--without-relevant", type=click.Choice(["zero", "skip"]), default="zero",
    help="What a query without any relevant image counts as.",
)  # fmt: skip
@click.option("--seed", default=0, help="Order of ties in the legacy value.")
@device_option
@json_option
@quiet_option
def evaluate(
    queries: Path | None, database: Path | None, model: Path | None, labels: Path | None,
    protocol: str | None, data: Path | None, k: int | None, denominator: str,
    without_relevant: Any, seed: int, device: str, as_json: bool,
) -> None:  # fmt: skip
    """Rank DATABASE by Hamming distance for each of QUERIES and score the rankings.

    QUERIES and DATABASE are folders of images (with -m), or code files that `ddh encode` wrote.
    A query that is also in the database, pixel for pixel, is refused.

    \b
    ddh evaluate queries/ photos/ -m photos.ddh       classes are the folders in each
    ddh evaluate queries.npz codes.npz --labels labels.csv
    ddh evaluate -m cifar.ddh --protocol cifar10-10k-50k --data DIR
    """
    from ddh.hashers import load_image_encoder

    encoder = partial(load_image_encoder, device=device)
    if protocol is not None:
        if queries is not None or model is None or data is None:
            raise InputError("--protocol goes with -m MODEL and --data DIR, and with nothing else")
        task, of_protocol = _protocol_task(protocol, data, encoder(model), seed)
        k = of_protocol if k is None else k
    elif queries is None or database is None:
        raise InputError("give QUERIES and DATABASE, or --protocol with --data and -m")
    else:
        task = _folder_task(queries, database, model and partial(encoder, model), labels)
        k = 1000 if k is None else k
    asked, searched, classes, described = task
    if asked.images is not None and searched.images is not None:
        refuse_shared_images(asked.images, searched.images)
    retrieval = Retrieval(
        asked.codes, searched.codes, *classes, bits=asked.bits,
        without_relevant=without_relevant, protocol=Protocol(**described, **_features(model)),
    )  # fmt: skip
    scores = _scores(retrieval, k, denominator, seed)
    codes = diagnose(retrieval.database_codes, bits=retrieval.bits)
    document = {
        "scores": {name: score.as_dict() for name, score in scores.items()},
        "codes": codes.as_dict(),
    }
    emit(document, _text(scores, str(codes), retrieval.protocol), as_json)


def _scores(retrieval: Retrieval, k: int | None, denominator: str, seed: int) -> dict[str, Score]:
    depth, score = k or 1000, partial(retrieval.mean_average_precision, denominator=denominator)
    return {
        "expected": score(k),
        "legacy": score(k, ties="legacy", seed=seed),
        "whole ranking": score(None),
        "precision": retrieval.precision_at(min(depth, 100)),
        "recall": retrieval.recall_at(depth),
        "radius 2": retrieval.precision_within(2),
    }


def _text(scores: dict[str, Score], codes: str, protocol: Protocol) -> str:
    lines = []
    for name, score in scores.items():
        title = "mAP, whole ranking" if name == "whole ranking" else score.protocol.title
        lines.append(f"{title:<26} {score.figure}   {NOTES.get(name, '')}".rstrip())
    expected = scores["expected"]
    if expected.empty:
        lines.append(f"{expected.empty:,} queries have no relevant image in the database")
    lines.append(f"codes: {codes}")
    lines.append(f"measured on: {protocol}; denominator {expected.protocol.denominator}")
    return "\n".join(lines)


def _folder_task(queries: Path, database: Path, open_model: Any, labels: Path | None) -> Task:
    if arrays := [path for path in (queries, database) if path.suffix == ".npy"]:
        raise InputError(
            f"{arrays[0]} is no folder of images: encode its rows with `ddh encode` and give the "
            "code files, without a model"
        )
    hasher = open_model and open_model()
    asked, searched = _side(queries, hasher), _side(database, hasher)
    if asked.model_id != searched.model_id:
        raise InputError(
            f"the codes of {queries} are of model {asked.model_id}, those of {database} of "
            f"{searched.model_id}: encode both with one model"
        )
    if asked.names == searched.names and np.array_equal(asked.codes, searched.codes):
        raise InputError(
            f"{queries} and {database} are the same codes: the queries are also in the database, "
            "and a query must not find itself"
        )
    if labels is not None and (both := set(asked.names) & set(searched.names)):
        raise InputError(
            f"{len(both)} name(s) stand on both sides, the first is {min(both)!r}, and {labels} "
            "has one line for both: use names that differ, or score the codes with ddh.evaluation"
        )
    classes = classes_of([*asked.names, *searched.names], labels)
    count = len(asked.names)
    data = {"data": f"{queries.name} against {database.name}"}
    return asked, searched, (classes[:count], classes[count:]), data


def _protocol_task(name: str, root: Path, hasher: Any, seed: int) -> tuple[Task, int | None]:
    data = protocol_images(name, root)
    split = split_by_name(name, data.labels, seed=seed, parts=data.parts)
    asked, searched = (
        _encode(hasher, data.images.take(rows)) for rows in (split.query, split.database)
    )
    labels = data.labels[split.query], data.labels[split.database]
    return (asked, searched, labels, {"data": data.name, "split": split.title}), split.k


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
        raise InputError(f"{path} holds images: give the model that encodes them with -m MODEL")
    return _encode(hasher, open_images(path))


def _read_codes(path: Path) -> Side:
    try:
        with np.load(path, allow_pickle=False) as file:
            names, model_id = file["names"].tolist(), str(file["model_id"])
            return Side(file["codes"], int(file["bits"]), names, model_id)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise InputError(f"{path} is not a file that `ddh encode` wrote: {error}") from error


def _encode(hasher: Any, images: Any) -> Side:
    _, codes, failures = encode_images(hasher, images)
    if failures:
        raise InputError(f"{failures[0].name}: {failures[0].reason}; repair or remove it")
    return Side(codes, hasher.bits, list(images.names), hasher.model_id, images)
