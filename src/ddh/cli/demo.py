"""`ddh demo`: the main job on bundled data, in a minute and without a download."""

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.output import emit, json_option, quiet_option
from ddh.cli.options import ANY_PATH

BITS, PAGE_BITS = 32, 64
PICTURES, SIDE = 1797, 64  # of the page: PNG files so small that learning takes seconds
QUERIES = 297
SHOWN_ROWS, SHOWN_RESULTS = 8, 10


@click.command()
@click.option(
    "-o", "--out", default="demo-output", type=ANY_PATH,
    help="Folder for the model and the contact sheet.",
)  # fmt: skip
@click.option("--page", is_flag=True, help="Index the digits as image files and open the web page.")
@click.option("--port", default=8080, help="Port of the page; 0 takes a free one.")
@click.option("--browser/--no-browser", default=True, help="Whether --page opens a browser.")
@json_option
@quiet_option
def demo(out: Path, page: bool, port: int, browser: bool, as_json: bool) -> None:
    """Learn codes for 1,797 handwritten digits, search, and compare with LSH and ITQ.

    With --page: write them as image files, learn codes, index them, and serve the web page.

    \b
    ddh demo
    ddh demo --page
    """
    if page:
        from ddh.serve import run  # says what is missing before the work begins

        run(str(build(out)), port=port, open_browser=browser, log_requests=False)
        return
    from ddh.evaluation import mean_average_precision
    from ddh.hashers import DDH, ITQ, LSH

    pixels, labels = _digits()
    features = pixels.reshape(len(pixels), -1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(features))
    queries, database = order[:QUERIES], order[QUERIES:]
    if not as_json:
        click.echo(f"Learning {BITS}-bit codes for {len(database):,} digits, without labels.")
    rows = []
    for method in (LSH, ITQ, DDH):
        started = time.perf_counter()
        model = method(bits=BITS).fit(features[database])
        seconds = time.perf_counter() - started
        codes = model.transform(features[queries]), model.transform(features[database])
        score = mean_average_precision(*codes, labels[queries], labels[database], k=100)
        rows.append({"method": method.__name__, "mAP@100": round(float(score), 4),
                     "fit seconds": round(seconds, 2)})  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "digits.ddh")
    sheet = out / "digits.png"
    seconds = _draw(sheet, pixels, labels, queries, database, *codes)
    document = {
        "bits": BITS, "queries": len(queries), "database": len(database), "scores": rows,
        "ties": "expected value over orders of equal distance", "search seconds": seconds,
        "contact sheet": str(sheet), "model": str(out / "digits.ddh"),
    }  # fmt: skip
    emit(document, _text(document), as_json)


def _digits() -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """The grey values of all digits, and which ones they are."""
    from ddh.images import ImageArray, digits

    data = digits()
    assert isinstance(data.images, ImageArray)
    return data.images.pixels[..., 0], data.labels


def _draw(
    path: Path, pixels: np.ndarray, labels: np.ndarray, queries: np.ndarray, database: np.ndarray,
    query_codes: np.ndarray, database_codes: np.ndarray,
) -> float:  # fmt: skip
    """Search, and draw a contact sheet: a query of each digit and its nearest ten."""
    from ddh.codes import pack, search
    from ddh.images import SheetRow, contact_sheet

    started = time.perf_counter()
    distances, found = search(pack(query_codes), pack(database_codes), SHOWN_RESULTS)
    seconds = time.perf_counter() - started
    shown = [int(np.flatnonzero(labels[queries] == digit)[0]) for digit in range(SHOWN_ROWS)]
    rows = [
        SheetRow(
            query=pixels[queries[row]],
            results=list(pixels[database[found[row]]]),
            captions=[f"{distance} bits" for distance in distances[row]],
            marks=list(labels[database[found[row]]] == labels[queries[row]]),
            caption=f"a {labels[queries[row]]}",
        )
        for row in shown
    ]
    contact_sheet(
        rows, path, title=f"Handwritten digits: query and its nearest ten, {BITS}-bit codes"
    )
    return round(seconds, 4)


NEXT = """
Next, look around in a browser:
  ddh demo --page

Then, with a folder of your own images:
  ddh add photos/
  ddh search a-picture.jpg
  ddh dedup"""


def _text(document: dict[str, Any]) -> str:
    table = [
        f"{row['method']:<8}{row['mAP@100']:>9.3f}{row['fit seconds']:>8.2f}s"
        for row in document["scores"]
    ]
    found = (
        f"{document['queries']} held-out digits searched {document['database']:,} codes of "
        f"{document['bits']} bits in {document['search seconds'] * 1000:.1f} ms. Labels were "
        "used for the score only."
    )
    sheet = f"See what was found (query | nearest ten): {document['contact sheet']}"
    head = f"{'method':<8}{'mAP@100':>9}{'fit':>9}"
    return "\n".join(["", head, *table, "", found, sheet, NEXT])


# -- the page ------------------------------------------------------------------------------------


def build(out: Path, pictures: int = PICTURES) -> Path:
    """The index of the digits below `out`; what a run before has finished is kept."""
    from ddh.cli.index import encode_files, open_collection
    from ddh.hashers import DDH

    folder, model, index = out / "digits", out / "digits-pictures.ddh", out / "digits.index"
    if index.is_dir():
        with open_collection(str(index), None) as collection:
            if collection.index.settings().get("demo") == "complete":
                return index
    write_pictures(folder, pictures)
    if not (model / "model.json").is_file():
        click.echo(f"Learning {PAGE_BITS}-bit codes for {pictures:,} pictures, without labels.")
        DDH(bits=PAGE_BITS, size=SIDE, random_state=0).fit(folder).save(model)
    with open_collection(str(index), model) as collection:
        changes = collection.changes([(folder, collection.bind_folder(folder))])
        encode_files(collection, [*changes.new, *changes.changed], "auto")
        # The digit of each image is metadata, for filters; the codes know nothing of it.
        rows = ((row.key, row.code, row.stamp) for row in collection.index.items())
        keys, codes, stamps = zip(*rows, strict=True)
        labels = [{"label": key.split("/")[0]} for key in keys]
        collection.index.upsert(keys, codes, paths=keys, stamps=stamps, metadata=labels)
        collection.index.set_setting(demo="complete")
    return index


def write_pictures(folder: Path, count: int) -> None:
    """The first digits as PNG files, in a folder for each class."""
    from PIL import Image

    pixels, labels = _digits()
    for row, label in enumerate(labels[:count]):
        file = folder / str(label) / f"{row:04d}.png"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(pixels[row]).convert("RGB")
            picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file)
