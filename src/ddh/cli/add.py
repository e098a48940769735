"""`ddh add`: folders of pictures, made ready to be searched by one command."""

import math
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddh._core.errors import InputError
from ddh._core.jobs import recorded
from ddh._core.output import emit, escaped, json_option, quiet_option
from ddh.cli.index import describe_update, index_exists, open_collection, update
from ddh.cli.options import FOLDER, device_option, index_option, model_option

if TYPE_CHECKING:
    from ddh.index.collection import Collection

COMPONENTS = 128  # bytes of features per picture
FITTED_ROWS = "fitted_rows"  # setting: how many rows there were when the codes were fitted to them
MIN_FITTED_ROWS = 500  # fewer pictures keep the codes of the default model
TRANSFORM = "features.npz"  # beside the default model: how features of its network are stored
GROWTH = 2.0  # how many times larger a collection is when its codes are fitted again


@click.command()
@click.argument("folders", nargs=-1, type=FOLDER)
@index_option
@model_option
@click.option("--prune", is_flag=True, help="Drop the rows of files that are gone.")
@click.option("--watch", is_flag=True, help="Go on, and keep the index in step with the folders.")
@device_option
@json_option
@quiet_option
@recorded("index", "location")
def add(
    folders: tuple[Path, ...], location: str, model: Path | None, prune: bool, watch: bool,
    device: str, as_json: bool,
) -> None:  # fmt: skip
    """Make the pictures of FOLDERS ready for `ddh search`, `ddh dedup` and `ddh serve`.

    The network runs once per picture. Its features are stored in 128 bytes, and the codes are
    fitted to the whole collection from them: at first, and again when it has doubled. On a second
    run only new and changed files are read; moved, renamed and copied ones are recognised. Without
    FOLDERS, all folders that were added before are brought up to date; `ddh index forget` forgets
    one.

    Files that are not read are counted and named. An interrupted run keeps what it has done; start
    it again to go on.

    \b
    ddh add ~/Pictures
    ddh add ~/Pictures /media/phone --watch
    ddh add photos/ --index photos.index
    """
    document = bring_up_to_date(location, list(folders), model, prune, device)
    emit(document, _text(document), as_json)
    if watch:
        from ddh.cli.watching import watch_folders

        with open_collection(location, None) as collection:
            roots = [root.path for root in collection.roots]
            local = collection.index.engine == "local"
        for changed in watch_folders(roots, Path(location).resolve() if local else None):
            document = bring_up_to_date(location, changed, None, prune, device)
            emit(document, describe_update(document), as_json)


def bring_up_to_date(
    location: str,
    folders: list[Path],
    model: Path | None,
    prune: bool,
    device: str,
) -> dict[str, Any]:
    """Add folders, or all of an index again where none are given, and fit its codes if it grew."""
    from ddh.hashers import default_model
    from ddh.images.sources import has_pictures
    from ddh.index.features import FeatureTransform

    started = time.monotonic()
    options: dict[str, Any] = {"model": model}
    if not index_exists(location):
        _check_folders(location, folders)
        if "://" not in location:
            Path(location).parent.mkdir(parents=True, exist_ok=True)
        options = {"model": model or default_model(), "features": COMPONENTS}
        if model is None:
            options["transform"] = FeatureTransform.load(default_model() / TRANSFORM)
    with open_collection(location, **options) as collection:
        if not folders and not len(collection.roots):
            raise InputError(f"{location} has no folders yet: name folders of pictures to add")
        empty = [f for f in folders if collection.key(f) is None and not has_pictures(f)]
        wanted = [f for f in folders if f not in empty] or empty  # refused, if all are
        places = [(f, collection.bind_folder(f, labelled=True)) for f in wanted] or [
            (root.path, root.label) for root in collection.roots if root.is_there
        ]
        document = update(collection, places, prune, device)
        document["empty"] += [escaped(folder.resolve()) for folder in empty]
        fitted = _fit(collection, device)
        first = next((row for row in collection.index.items() if not collection.missing(row)), None)
        example = collection.file(first.path or first.key) if first else None
        document |= {"fitted": fitted, "example": example and escaped(example)}
        rows = len(collection.index)
    seconds = round(time.monotonic() - started, 1)
    return {"index": location, "rows": rows, **document, "seconds": seconds}


def _check_folders(location: str, folders: list[Path]) -> None:
    """A new index needs pictures: nothing is written where there are none."""
    from ddh.images.sources import has_pictures, require_pictures

    if not folders:
        raise InputError(f"there is no index at {location} yet: name folders of pictures to add")
    if not any(map(has_pictures, folders)):
        require_pictures(folders[0])


# -- codes of the collection itself ----------------------------------------------------------------


def _fit(collection: "Collection", device: str) -> int:
    """Fit the codes to the stored features where the collection has grown; to how many rows.

    A model that somebody has chosen stays.
    """
    from ddh.hashers import default_model
    from ddh.index.location import models_folder

    index, present = collection.index, collection.model
    rows, fitted = len(index), int(index.settings().get(FITTED_ROWS, 0))
    if present is None or rows < MIN_FITTED_ROWS or rows < GROWTH * fitted:
        return 0
    base = models_folder(index.location)
    number = 0 if present == default_model().resolve() else _number(present, base)
    if number is None or not index.header.features:
        return 0
    from ddh.index.refit import refit

    done = refit(index, base.with_name(f"{base.name}.{number + 1}.ddh"), device=device)
    index.set_setting(**{FITTED_ROWS: str(rows)})
    if number:
        shutil.rmtree(present)  # fitted to fewer pictures, and of no more use
    return done.rows


def _number(model: Path, base: Path) -> int | None:
    """The number of a model that was fitted to this index, None for any other."""
    number = model.name.removeprefix(f"{base.name}.").removesuffix(".ddh")
    ours = model == base.with_name(f"{base.name}.{number}.ddh") and number.isdigit()
    return int(number) if ours else None


# -- what is said ----------------------------------------------------------------------------------


def _text(document: dict[str, Any]) -> str:
    from ddh.index.location import default_location

    lines = [describe_update(document)]
    if document["fitted"]:
        lines.append(
            f"The codes are fitted to these {document['fitted']:,} pictures; from "
            f"{math.ceil(GROWTH * document['fitted']):,} on they will be again."
        )
    given = "" if document["index"] == default_location() else document["index"]
    option = f" --index {shlex.quote(given)}" if given else ""
    argument = f" {shlex.quote(given)}" if given else ""
    lines += ["Next:", f"  ddh serve{argument} --open", f"  ddh dedup{option}"]
    if document.get("example"):
        lines.insert(-2, f"  ddh search {shlex.quote(document['example'])}{option}")
    return "\n".join(lines)
