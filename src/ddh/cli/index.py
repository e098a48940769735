"""`ddh index`: keep the codes of a folder of pictures, ready to be searched."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from ddh._core.errors import InputError
from ddh._core.jobs import recorded
from ddh._core.output import describe_failures, emit, escaped, json_option, quiet_option
from ddh.cli.encode import encode_batches
from ddh.cli.info import as_text
from ddh.cli.options import (
    NEW_FOLDER,
    Source,
    device_option,
    index_option,
    local_path,
    model_option,
    ray_options,
)

if TYPE_CHECKING:
    from ddh.cluster import Cluster
    from ddh.index import Index
    from ddh.index.collection import Collection, PictureFile
    from ddh.index.features import FeatureTransform

FEW_FILES = 100  # to be looked at before the network is loaded


@click.group()
def index() -> None:
    """Keep the codes of a folder of pictures, ready to be searched.

    \b
    ddh index add photos/ --index photos.index --model photos.ddh
    ddh index add photos/ --index photos.index --prune        after changes in the folder
    """


@index.command()
@click.argument("folder", type=Source(file_okay=False))
@index_option
@model_option
@click.option("--prune", is_flag=True, help="Drop the rows of files that are gone.")
@click.option("--moved", is_flag=True, help="FOLDER is the indexed folder in a new place.")
@click.option(
    "--features", type=click.IntRange(1, 4096), metavar="N",
    help="When the index is made: store N bytes of features per picture (64 to 256), which order "
    "the nearest pictures almost as the network's own features would.",
)  # fmt: skip
@device_option
@ray_options
@json_option
@quiet_option
@recorded("index", "location")
def add(
    folder: Path | str, location: str, model: Path | None, prune: bool, moved: bool,
    features: int | None, device: str, cluster: "Cluster | None", as_json: bool,
) -> None:  # fmt: skip
    """Add the pictures of a folder; on a second run, only those that are new or have changed.

    Pictures that cannot be read are skipped and named at the end. An interrupted run keeps what
    it has done; start it again to go on.

    \b
    ddh index add photos/ --index photos.index --model photos.ddh
    ddh index add photos/2024 --index photos.index --prune
    ddh index add s3://bucket/photos --index postgresql://host/db --model photos.ddh --ray auto
    """
    if cluster is not None and prune:
        raise InputError("--prune compares the folder with all rows: run it without --ray")
    started = time.monotonic()
    if not index_exists(location):
        check_new(location, folder, model)
    with open_collection(location, model, features) as collection:
        if cluster is None:
            document = _add_here(collection, local_path(folder), prune, moved, device)
        else:
            document = _add_on_cluster(collection, folder, moved, cluster)
        document = {
            "index": location, "rows": len(collection.index), **document,
            "seconds": round(time.monotonic() - started, 1),
        }  # fmt: skip
    emit(document, describe_update(document), as_json)


def check_new(location: str, folder: Path | str, model: Path | None) -> None:
    """Refuse a new index without a model or without pictures, before anything is written."""
    if model is None:
        raise InputError(
            f"there is no index at {location} yet, and --model is missing: give the model folder "
            "that makes its codes (from `ddh fit`), or run `ddh add`, which needs none"
        )
    from ddh.images.sources import require_pictures

    if isinstance(folder, Path):
        require_pictures(folder)


def _add_here(
    collection: "Collection", folder: Path, prune: bool, moved: bool, device: str
) -> dict[str, Any]:
    return update(
        collection, [(folder, collection.bind_folder(folder, moved=moved))], prune, device
    )


def update(
    collection: "Collection", folders: list[tuple[Path, str]], prune: bool, device: str
) -> dict[str, Any]:
    """Bring the rows of folders, each with the folder of its keys, in step with the files."""
    changes = collection.changes(folders)
    collection.write_copies(changes.moved, moved=True)
    waiting = collection.write_copies(changes.copies)
    to_encode = [*changes.new, *changes.changed]
    failures = encode_files(collection, to_encode, device)
    failures += [
        {"name": file.key, "reason": f"has the content of {key}, which could not be used"}
        for file, key in collection.write_copies(waiting)
    ]
    collection.restamp(changes.touched)
    pruned = collection.index.delete(changes.gone) if prune else 0
    failed = {failure["name"] for failure in failures}
    return {
        "new": sum(file.key not in failed for file in changes.new),
        "changed": sum(file.key not in failed for file in changes.changed),
        "moved": len(changes.moved),
        "copies": sum(file.key not in failed for file, _ in changes.copies),
        "unchanged": changes.unchanged + len(changes.touched),
        "gone": len(changes.gone),
        "pruned": pruned,
        "skipped": changes.unusable + failures,
        "ignored": dict(changes.ignored.most_common()),
        "empty": [escaped(folder) for folder in changes.empty],
        "absent": {escaped(path): rows for path, rows in collection.absent_roots().items()},
    }


def _add_on_cluster(
    collection: "Collection", folder: Path | str, moved: bool, cluster: "Cluster"
) -> dict[str, Any]:
    from ddh.cluster import ImageLocation, IndexTarget, ModelFiles, bind_url, encode_on_cluster

    if collection.index.header.features:
        raise InputError("this index stores features, which jobs with --ray do not send: run here")
    if isinstance(folder, str):
        part = bind_url(collection.index, folder, moved=moved)
    else:
        part = collection.bind_folder(folder, moved=moved)
    path = model_path(collection)
    model = ModelFiles.read(path)
    if model.id != collection.index.model_id:
        raise InputError(
            f"the index holds codes of model {collection.index.model_id}, and {path} is model "
            f"{model.id} now: give --model, or make a new index"
        )
    source, target = ImageLocation(str(folder), part), IndexTarget(collection.index)
    report = encode_on_cluster(source, model, target, cluster)
    return {
        "new": report.new, "changed": report.changed, "unchanged": report.unchanged,
        "skipped": report.skipped, "workers": len(report.workers), "retried": report.retried,
    }  # fmt: skip


def describe_update(document: dict[str, Any]) -> str:
    """What has been done, for people."""
    from ddh.images.formats import describe_ignored

    kinds = {"moved": "moved or renamed", "copies": "copies of others"}
    more = "".join(f", {document[k]:,} {text}" for k, text in kinds.items() if document.get(k))
    lines = [
        f"{document['index']} holds {document['rows']:,} pictures: {document['new']:,} new, "
        f"{document['changed']:,} changed{more}, {document['unchanged']:,} as before "
        f"({document['seconds']:.0f} s)."
    ]
    if document.get("pruned"):
        lines.append(f"Dropped {document['pruned']:,} rows whose files are gone.")
    elif document.get("gone"):
        lines.append(
            f"The files of {document['gone']:,} rows are gone; --prune drops the rows as well."
        )
    lines += [f"No pictures in {folder}." for folder in document.get("empty", [])]
    for path, rows in document.get("absent", {}).items():
        lines.append(f"{path} is not there, or is empty: its {rows:,} pictures are kept.")
    if document.get("retried"):
        lines.append(f"{document['retried']:,} pictures were sent again after a worker had died.")
    skipped = describe_failures(document["skipped"])
    return "\n".join(filter(None, [*lines, describe_ignored(document.get("ignored", {})), skipped]))


def encode_files(
    collection: "Collection", files: list["PictureFile"], device: str
) -> list[dict[str, str]]:
    """Encode files and write their rows batch by batch; the files that cannot be used."""
    failures = _failures_of_all(files) if len(files) <= FEW_FILES else []
    if len(failures) == len(files):
        return failures
    from ddh.images import ImageFiles
    from ddh.index.collection import content_digest, write_codes

    model, failures, index = load_encoder(collection, device), [], collection.index
    if index.header.features and index.feature_transform is None:
        files = _sample_first(files)
    batches = encode_batches(model, ImageFiles([file.path for file in files]))
    for batch in _held_for_sample(index, batches):
        done = [files[i] for i in batch.indices]
        stamps = [file.stamp._replace(digest=content_digest(file.path)) for file in done]
        features = batch.features if index.header.features else None
        keys, paths = [file.key for file in done], [file.path for file in done]
        write_codes(index, keys, batch.codes, stamps, features, paths)
        failures += [{"name": files[f.index].key, "reason": f.reason} for f in batch.failures]
    return failures


def _sample_first(files: list["PictureFile"]) -> list["PictureFile"]:
    """The files, some random ones before the others."""
    import numpy as np

    from ddh.index.features import SAMPLE_ROWS

    chosen = np.random.default_rng(0).permutation(len(files))[:SAMPLE_ROWS]
    is_chosen = np.isin(np.arange(len(files)), chosen)
    return [files[i] for i in np.argsort(~is_chosen, kind="stable")]


def _held_for_sample(index: "Index", batches: Iterator[Any]) -> Iterator[Any]:
    """Encoded batches; the first are held until they choose how the index stores features."""
    from ddh.index.features import SAMPLE_ROWS

    held: list[Any] = []
    wanted = SAMPLE_ROWS if index.header.features and index.feature_transform is None else 0
    for batch in batches:
        held.append(batch)
        if sum(len(each.indices) for each in held) >= wanted:
            yield from _with_transform(index, held)
            held, wanted = [], 0
    yield from _with_transform(index, held)


def _with_transform(index: "Index", held: list[Any]) -> list[Any]:
    """The batches, after an index without a transform of features has fitted one to them."""
    features = [batch.features for batch in held if len(batch.indices)]
    if features and index.header.features and index.feature_transform is None:
        import numpy as np

        index.fit_features(np.concatenate(features))
    return held


def _failures_of_all(files: list["PictureFile"]) -> list[dict[str, str]]:
    """Why each of some files cannot be read, up to the first that can and needs the network."""
    from ddh.images import UnreadableImage, decode

    failures = []
    for file in files:
        try:
            decode(file.path)
        except UnreadableImage as error:
            failures.append({"name": file.key, "reason": error.reason})
        else:
            break
    return failures


@index.command()
@click.argument("keys", nargs=-1)
@index_option
@click.option("--folder", help="Remove all below this folder, by its path or its name in keys.")
@json_option
def remove(keys: tuple[str, ...], location: str, folder: str | None, as_json: bool) -> None:
    """Remove rows by their keys or their files. Files are left alone.

    \b
    ddh index remove 2024/cat.jpg photos/2024/dog.jpg --index photos.index
    ddh index remove --folder 2019 --index photos.index
    """
    if not keys and not folder:
        raise InputError("name the keys or files to remove, or a --folder of them")
    with open_collection(location, None) as collection:
        index = collection.index
        wanted = {name: find_key(collection, name) for name in keys}
        missing = [escaped(name) for name, key in wanted.items() if key is None]
        found = [key for key in wanted.values() if key is not None]
        if folder:
            found += [row.key for row in index.items(folder=find_folder(collection, folder))]
        if not found:
            raise InputError(f"{location} holds none of these: {', '.join(missing) or folder}")
        removed = index.delete(found)
        document = {"index": location, "removed": removed, "missing": missing, "rows": len(index)}
    text = f"Removed {removed:,} rows; {document['rows']:,} are left."
    if missing:
        text += f"\nNot in the index: {', '.join(missing)}"
    emit(document, text, as_json)


@index.command()
@click.argument("folder")
@index_option
@json_option
def forget(folder: str, location: str, as_json: bool) -> None:
    """Forget a folder that was added, by its path or its label, with all of its rows.

    The pictures are left alone, and the folder may be gone.

    \b
    ddh index forget /media/phone
    ddh index forget phone --index photos.index
    """
    with open_collection(location, None) as collection:
        meant = Path(folder), Path(folder).resolve()
        found = [r for r in collection.roots if r.path in meant or r.label == folder != ""]
        if len(found) != 1:
            state = "more than one folder" if found else "not a folder that was added"
            roots = ", ".join(escaped(root.path) for root in collection.roots) or "none"
            raise InputError(f"{folder} is {state}; those of {location}: {roots}")
        removed = collection.forget(found[0])
        document = {
            "index": location, "folder": escaped(found[0].path), "removed": removed,
            "rows": len(collection.index),
        }  # fmt: skip
    text = f"Forgot {document['folder']}. Removed {removed:,} rows; {document['rows']:,} are left."
    emit(document, text, as_json)


@index.command()
@index_option
@json_option
def info(location: str, as_json: bool) -> None:
    """Tell what an index holds: rows, bits, model, size, folders.

    \b
    ddh index info --index photos.index
    """
    with open_collection(location, None) as collection:
        document = asdict(collection.index.info())
        document["folders"] = [
            {"path": escaped(root.path), "label": root.label, "is_there": root.is_there}
            for root in collection.roots
        ]
    head = f"{location}: {document['rows']:,} rows of {document['bits']} bits"
    said = ("rows", "bits", "engine", "folders")
    rest = {key: value for key, value in document.items() if key not in said}
    lines = [f"{head} ({document['engine']})", as_text(rest, "  ")]
    for each in document["folders"]:
        lines.append(f"  folder: {each['path']}{'' if each['is_there'] else ' (not there)'}")
    emit(document, "\n".join(lines), as_json)


@index.command()
@index_option
@click.option(
    "-b", "--bits", type=click.IntRange(1), help="Length of the new codes; as before by default."
)
@click.option(
    "-m", "--model", type=NEW_FOLDER, metavar="OUT",
    help="Folder for the new model; by default a new one beside the present model.",
)  # fmt: skip
@device_option
@json_option
@quiet_option
@recorded("index", "location")
def refit(location: str, bits: int | None, model: Path | None, device: str, as_json: bool) -> None:
    """Fit a new model on the stored features, and give all rows its codes.

    For an index that has grown, or for another length of code. It needs stored features (ddh
    index add --features) and does not run the network. After an interruption, run it again.

    \b
    ddh index refit --index photos.index
    ddh index refit --index photos.index --bits 128 --model photos-128.ddh
    """
    from ddh.index.refit import refit as refit_index

    started = time.monotonic()
    with open_collection(location, None) as collection:
        done = refit_index(collection.index, model, bits=bits, device=device)
    seconds = round(time.monotonic() - started, 1)
    text = (
        f"{location} holds {done.rows:,} rows with codes of {done.bits} bits of the new model "
        f"{done.model} ({done.model_id}), fitted on {done.fitted_rows:,} of them ({seconds:.0f} s)."
    )
    emit({"index": location, **asdict(done), "seconds": seconds}, text, as_json)


@index.command()
@index_option
@json_option
def compact(location: str, as_json: bool) -> None:
    """Give back the room of deleted rows; answers stay the same.

    \b
    ddh index compact --index photos.index
    """
    with open_collection(location, None) as collection:
        before = collection.index.info()
        collection.index.compact()
        after = collection.index.info()
    document = {
        "index": location, "rows": after.rows, "cleared": before.deleted - after.deleted,
        "bytes_before": before.disk_bytes, "bytes": after.disk_bytes,
    }  # fmt: skip
    text = f"Cleared away {document['cleared']:,} deleted rows; {after.rows:,} rows are there."
    if before.disk_bytes is not None and after.disk_bytes is not None:
        text += f" On disk: {before.disk_bytes / 1e6:,.1f} MB -> {after.disk_bytes / 1e6:,.1f} MB."
    emit(document, text, as_json)


@index.command()
@click.argument("location", metavar="INDEX")
@click.option("--repair", is_flag=True, help="Rebuild a damaged index from its sound rows.")
@json_option
def check(location: str, repair: bool, as_json: bool) -> None:
    """Check every row and page of a local index; exit code 1 if it is damaged.

    A repair keeps the damaged index beside the new one, with .damaged after its name.

    \b
    ddh index check photos.index
    ddh index check photos.index --repair
    """
    from ddh.index.check import check as check_index

    found = check_index(location, repair=repair)
    lines = [f"{location}: {found.rows:,} sound rows", *found.problems]
    if found.lost:
        lines.append(f"Lost: {', '.join(found.lost)}")
    if found.damaged_copy:
        lines.append(f"Repaired; the damaged index is {found.damaged_copy}.")
    emit(asdict(found), "\n".join(lines), as_json)
    if found.problems and not repair:
        raise SystemExit(1)


# -- shared with `ddh search` and `ddh dedup` -----------------------------------------------------


@contextmanager
def open_collection(
    location: str,
    model: Path | None,
    features: int | None = None,
    transform: "FeatureTransform | None" = None,
) -> Iterator["Collection"]:
    """An index that is there, or with a model also a new one; it must hold that model's codes.

    `transform` is how a new index stores features; it is fitted to its own where None.
    """
    import ddh.index
    from ddh.index.collection import Collection

    if model is None:
        try:
            opened = ddh.index.open(location, create=False, features=features)
        except ddh.index.IndexNotFound as error:
            make = f"ddh add FOLDER --index {shlex.quote(location)}"
            raise InputError(f"{error}: make it with `{make}`") from error
    else:
        from ddh.hashers import storage

        description, _, model_id = storage.read(model)
        bits, order = int(description["bits"]), description.get("bit_order", "big")
        opened = ddh.index.open(
            location, bits=bits, model_id=model_id, bit_order=order, features=features
        )
    with opened:
        collection = Collection(opened)
        if transform is not None and opened.feature_transform is None:
            opened.set_setting(**transform.as_settings())
        if model is not None:
            collection.set_path("model", model)
        yield collection


def index_exists(location: str) -> bool:
    """Whether there is an index at a location."""
    import ddh.index

    try:
        ddh.index.open(location, create=False).close()
    except ddh.index.IndexNotFound:
        return False
    return True


def model_path(collection: "Collection") -> Path:
    """The folder of the index's own model."""
    path = collection.model
    if path is None:
        noted = collection.index.settings().get("model")
        raise InputError(
            f"the model of this index ({collection.index.model_id}) is not "
            f"{f'at {noted} any more' if noted else 'known'}: give --model"
        )
    return path


def load_encoder(collection: "Collection", device: str) -> Any:
    """The index's own model, ready to encode pictures."""
    from ddh.hashers import load_image_encoder

    path = model_path(collection)
    return load_image_encoder(path, device=device, model_id=collection.index.model_id)


def find_key(collection: "Collection", name: str) -> str | None:
    """The key that a user means by a key or a file's name, None where the index has neither."""
    for key in (escaped(name), collection.key(Path(name))):
        if key and key in collection.index:
            return key
    return None


def find_folder(collection: "Collection", name: str) -> str | None:
    """The folder of keys that a user means by it or by its path, None for the whole collection."""
    below = collection.key(Path(name))
    for folder in (escaped(name), below):
        if folder and next(collection.index.items(folder=folder), None) is not None:
            return folder
    if below == "" and len(collection.roots) == 1:
        return None
    paths = {PurePosixPath(row.path).parent for row in collection.index.items() if row.path}
    folders = {str(each) for path in paths for each in (path, *path.parents)} - {".", "/"}
    near = get_close_matches(name, folders, n=5, cutoff=0.5)
    some = near or sorted(folders, key=lambda each: (each.count("/"), each))[:5]
    raise InputError(
        f"no folder of {collection.index.location} is called {name}; some that are: "
        f"{', '.join(some) or 'none'}"
    )
