"""`ddh search`: the pictures of an index that are nearest to given ones."""

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddh._core.errors import InputError
from ddh._core.output import (
    describe_failures,
    emit,
    escaped,
    json_option,
    open_viewer,
    quiet_option,
)
from ddh.cli.index import find_folder, find_key, load_encoder, open_collection
from ddh.cli.options import device_option, index_option, model_option, sheet_option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ddh.index import Hit, Index
    from ddh.index.collection import Collection

SHEET_COLUMNS = 12
TILE = 120
MISSING = {"gone": "gone", "offline": "its folder is not there"}

SheetEntries = list[tuple[Path | None, str]]  # file and caption: the query, then what was found


@dataclass
class Query:
    """What is searched for: its name, its file, the key of its row where that is current.

    The code is that of the row, or comes from the model with its real `values` and `features`.
    """

    name: str
    file: Path | None
    key: str | None = None
    code: "NDArray[np.uint8] | None" = None
    values: "NDArray[np.float32] | None" = None
    features: "NDArray[np.float32] | None" = None


@click.command()
@click.argument("images", nargs=-1, required=True)
@index_option
@model_option
@click.option("-k", default=10, help="Answers for each picture.")
@click.option("--folder", help="Search below this folder only, by its path or its name in keys.")
@sheet_option
@click.option("--open", "show", is_flag=True, help="Open the contact sheet.")
@device_option
@json_option
@quiet_option
def search(
    images: tuple[str, ...], location: str, model: Path | None, k: int, folder: str | None,
    sheet: Path | None, show: bool, device: str, as_json: bool,
) -> None:  # fmt: skip
    """Find the pictures that are nearest to IMAGES: files, or keys of the index.

    A picture that is in the index already is searched by its stored code, without the model; it
    is its own first answer. For any other picture the model's real-valued outputs order what their
    signs, the code, have found.

    \b
    ddh search cat.jpg --index photos.index
    ddh search 2024/cat.jpg -k 5 --index photos.index --sheet near.png
    """
    with open_collection(location, model) as collection:
        folder = folder and find_folder(collection, folder)
        queries = [_query(collection, name) for name in images]
        failures = _encode(collection, [query for query in queries if query.code is None], device)
        queries = [query for query in queries if query.code is not None]
        if not queries:
            raise InputError(f"{failures[0]['name']}: {failures[0]['reason']}")
        started = time.perf_counter()
        answers = _answers(collection.index, queries, k, folder)
        seconds = time.perf_counter() - started
        if show and sheet is None:
            sheet = Path(tempfile.mkdtemp(prefix="ddh-")) / "search.png"
        if sheet is not None:
            draw_sheet(map(partial(_shown, collection), queries, answers), sheet)
        document = {
            "index": location,
            "queries": [
                {"query": query.name, "hits": [_entry(collection, hit) for hit in answer]}
                for query, answer in zip(queries, answers, strict=True)
            ],
            "skipped": failures,
            "sheet": None if sheet is None else str(sheet),
            "seconds": round(seconds, 4),
        }
    emit(document, _table(document), as_json)
    if show:
        open_viewer(str(sheet))


def _query(collection: "Collection", name: str) -> Query:
    file = Path(name)
    if file.is_dir():
        raise InputError(
            f"{name} is a folder: give pictures, for instance {name.rstrip('/')}/*.jpg"
        )
    key, name = find_key(collection, name), escaped(name)
    if key is None and not file.is_file():
        raise InputError(f"{name} is neither a file nor a key of the index")
    row = None if key is None else collection.index.get(key)
    if file.is_file() and (row is None or not collection.is_current(row, file)):
        return Query(name, file)
    assert row is not None
    known = file if file.is_file() else collection.file(row.path or row.key)
    return Query(name, known, row.key, row.code)


def _answers(index: "Index", queries: list[Query], k: int, folder: str | None) -> list[list["Hit"]]:
    """The k nearest rows of each query, ordered by its values where it has them."""
    import numpy as np

    from ddh.index.collection import COMPARED_HITS, content_digest, same_content_first

    codes = np.array([query.code for query in queries])
    answers = index.search(codes, k, keys=[query.key for query in queries], folder=folder)
    encoded = [i for i, query in enumerate(queries) if query.values is not None]
    if encoded:
        values = np.array([queries[i].values for i in encoded])
        features = np.array([queries[i].features for i in encoded])
        found = index.search(
            codes[encoded], max(k, COMPARED_HITS), values=values, folder=folder,
            features=features if index.header.features else None,
        )  # fmt: skip
        for i, hits in zip(encoded, found, strict=True):
            digest = content_digest(queries[i].file or Path())
            answers[i] = same_content_first(index, hits, digest)[:k]
    return answers


def _encode(collection: "Collection", queries: list[Query], device: str) -> list[dict[str, str]]:
    """Fill in missing codes; the files that cannot be used."""
    if not queries:
        return []
    model = load_encoder(collection, device)
    failures = []
    for batch in model.encode_images([query.file for query in queries]):
        for row, position in enumerate(batch.indices.tolist()):
            query = queries[position]
            query.code, query.values = batch.codes[row], batch.outputs[row]
            query.features = batch.features[row]
        failures += [{"name": queries[f.index].name, "reason": f.reason} for f in batch.failures]
    return failures


def _entry(collection: "Collection", hit: "Hit") -> dict[str, Any]:
    file = collection.file(hit.path or hit.key) or hit.path
    return {
        "key": hit.key, "distance": hit.distance, "score": hit.score,
        "file": file and escaped(file), "missing": collection.missing(hit),
        "metadata": hit.metadata,
    }  # fmt: skip


def _table(document: dict[str, Any]) -> str:
    blocks = []
    for answer in document["queries"]:
        lines = [f"{answer['query']}", "  rank  bits  picture"]
        lines += [
            f"  {rank:>4}  {hit['distance']:>4}  {hit['file'] or hit['key']}{_mark(hit)}"
            for rank, hit in enumerate(answer["hits"], 1)
        ]
        blocks.append("\n".join(lines) if answer["hits"] else f"{answer['query']}: nothing found")
    if document["sheet"]:
        blocks.append(f"Contact sheet: {document['sheet']}")
    return "\n\n".join(filter(None, [*blocks, describe_failures(document["skipped"])]))


def _mark(hit: dict[str, Any]) -> str:
    """What to say of a picture whose file is not there."""
    return f"  ({MISSING[hit['missing']]})" if hit["missing"] else ""


def _shown(collection: "Collection", query: Query, answer: list["Hit"]) -> SheetEntries:
    """The entries of a query's row on the contact sheet."""
    found = [
        (collection.file(hit.path or hit.key), f"{hit.distance}  {Path(hit.key).name}")
        for hit in answer
    ]
    return [(query.file, Path(query.name).name), *found]


def draw_sheet(rows: Iterable[SheetEntries], target: Path) -> None:
    """A contact sheet: in each row the query and what was found."""
    from ddh.images import SheetRow, contact_sheet

    contact_sheet(
        [
            SheetRow(_picture(file), [_picture(each) for each, _ in found[:SHEET_COLUMNS]],
                     [text for _, text in found[:SHEET_COLUMNS]], caption=caption)
            for (file, caption), *found in rows
        ],
        target, tile=TILE,
    )  # fmt: skip


def _picture(file: Path | None) -> Any:
    """A picture for a contact sheet; a grey tile where it cannot be shown."""
    from PIL import Image

    from ddh.images import decode

    try:
        if file is not None:
            return decode(file, at_least=TILE)
    except InputError:
        pass
    return Image.new("RGB", (TILE, TILE), (225, 225, 225))
