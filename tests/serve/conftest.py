"""A small collection with a real model, and a service over it that all tests share."""

import shutil
from collections.abc import Iterator

import pytest
from serve_place import Place, draw
from starlette.testclient import TestClient

import ddh.index
from ddh.index import FileStamp

BITS = 32
LABELS = ("cat", "dog", "fox")


@pytest.fixture(autouse=True, scope="session")
def user_folders(tmp_path_factory) -> Iterator[None]:
    """Caches and records of jobs go to a folder of the tests, never to the user's own."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_CACHE", str(folder / "cache"))
        patch.setenv("DDH_STATE", str(folder / "state"))
        patch.delenv("DDH_TOKEN", raising=False)
        yield


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Place:
    """24 pictures in three folders, two of them twice, with the model that encodes them."""
    from ddh.hashers import DDH
    from ddh.images import ImageFolder

    place = Place(tmp_path_factory.mktemp("prepared"))
    for seed in range(22):
        draw(place.photos / ("animals/wild" if seed % 3 else "plants") / f"{seed:02d}.png", seed)
    draw(place.photos / "copies" / "00.png", 0, (96, 72))
    draw(place.photos / "copies" / "01.png", 1, (32, 24))
    pictures = ImageFolder(place.photos)
    model = DDH(bits=BITS, size=64, epochs=2, device="cpu").fit(pictures)
    model.save(place.folder / "small.ddh")
    names, codes = list(pictures.names), model.encode(pictures)
    with ddh.index.open(place.index, bits=BITS, model_id=model.model_id) as index:
        states = [(place.photos / name).stat() for name in names]
        index.add(
            names,
            codes,
            paths=names,
            stamps=[FileStamp(state.st_mtime_ns, state.st_size) for state in states],
            metadata=[{"label": LABELS[i % 3], "number": i} for i in range(len(names))],
        )
        index.set_setting(model=str(place.folder / "small.ddh"), root=str(place.photos))
    return place


@pytest.fixture
def place(tmp_path, prepared) -> Place:
    """A copy of the collection, to be changed."""
    shutil.copytree(prepared.folder / "photos", tmp_path / "photos", copy_function=shutil.copy2)
    shutil.copytree(prepared.folder / "p.index", tmp_path / "p.index", copy_function=shutil.copy2)
    return Place(tmp_path)


@pytest.fixture(scope="session")
def reader(prepared) -> Iterator[TestClient]:
    """A read-only service that all tests share."""
    with prepared.open() as client:
        yield client
