"""`ddh demo --page`: the digits as a folder of pictures, learnt, indexed, and shown on the page."""

from pathlib import Path

import click

from ddh._core.progress import bar
from ddh.cli.index import open_collection

PICTURES = 1797
SIDE = 64  # of the PNG files, and of what the network sees: learning takes seconds
BITS = 64


def show(out: Path, port: int, browser: bool) -> None:
    """Make the collection where it is not there yet, and serve its page until Ctrl-C."""
    from ddh.serve import run  # says what is missing before the work begins

    index = build(out)
    run(str(index), port=port, open_browser=browser, log_requests=False)


def build(out: Path, pictures: int = PICTURES) -> Path:
    """The index of the digits below `out`; what a run before has finished is kept."""
    from ddh.hashers import DDH

    folder, model, index = out / "digits", out / "digits-pictures.ddh", out / "digits.index"
    if _is_complete(index):
        return index
    write_pictures(folder, pictures)
    if not (model / "model.json").is_file():
        click.echo(f"Learning {BITS}-bit codes for {pictures:,} pictures, without labels.")
        DDH(bits=BITS, size=SIDE, random_state=0).fit(folder).save(model)
    _write_index(index, folder, model)
    return index


def _is_complete(index: Path) -> bool:
    from ddh.index import open as open_index

    if not index.is_dir():
        return False
    with open_index(index, create=False) as opened:
        return opened.settings().get("demo") == "complete"


def write_pictures(folder: Path, count: int) -> None:
    """The first digits as PNG files, in a folder for each class."""
    from PIL import Image

    from ddh.images import ImageArray, digits

    data = digits()
    assert isinstance(data.images, ImageArray)
    for row, label in enumerate(data.labels[:count]):
        file = folder / str(label) / f"{row:04d}.png"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(data.images.pixels[row])
            picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file)


def _write_index(location: Path, folder: Path, model: Path) -> None:
    """Codes of all pictures, with the digit that each shows as metadata: for filters, not codes."""
    import ddh
    from ddh.images import ImageFiles

    encoder = ddh.load(model)
    with open_collection(str(location), model) as collection:
        changes = collection.changes(folder, collection.bind_folder(folder))
        files = [*changes.new, *changes.changed]
        with bar("Encoding", total=len(files), unit="image") as progress:
            for batch in encoder.encode_images(ImageFiles([file.path for file in files])):
                part = [files[i] for i in batch.indices]
                keys = [file.key for file in part]
                collection.index.upsert(
                    keys, batch.codes, paths=keys, stamps=[file.stamp for file in part],
                    metadata=[{"label": key.split("/")[0]} for key in keys],
                )  # fmt: skip
                progress.update(len(part))
        collection.index.set_setting(demo="complete")
