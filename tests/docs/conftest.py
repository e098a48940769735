"""What README, docs and examples speak of: photographs, queries, a fitted model, servers."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

# The servers of the index tests: real ones, started here too where an example asks for one.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "index"))
from index_servers import any_postgres, need_milvus

PHOTOS, QUERIES = 26, 8  # more than K1 + K2 of a small collection, few enough for a processor
SIDE = 64


def write_digits(folder: Path, rows: range) -> list[str]:
    """Handwritten digits as PNG files in folders by class; their names."""
    from ddh.images import digits

    data = digits()
    names = []
    for row in rows:
        name = f"{data.classes[data.labels[row]]}/{row:04d}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.images.pixels[row, ..., 0]).resize((SIDE, SIDE)).save(folder / name)
        names.append(name)
    return names


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every page starts with; made once, copied for each."""
    import ddh

    folder = tmp_path_factory.mktemp("furnished")
    write_digits(folder / "photos", range(PHOTOS))
    names = write_digits(folder / "queries", range(PHOTOS, PHOTOS + QUERIES))
    with Image.open(folder / "queries" / names[0]) as picture:
        picture.convert("RGB").save(folder / "cat.jpg")
    ddh.DDH(bits=64, epochs=5).fit(folder / "photos").save(folder / "photos.ddh")
    return folder


@pytest.fixture
def household(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the furnished folder, as the working folder."""
    shutil.copytree(furnished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL of this test's own, with pgvector or without it."""
    server = any_postgres()
    yield server.url
    server.stop()


@pytest.fixture
def milvus_lite() -> None:
    """Skips where Milvus Lite is not installed."""
    need_milvus()
