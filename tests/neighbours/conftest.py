"""Every test of the lists and of the labels runs with the compiled loops and without them."""

from importlib import import_module

import pytest

from ddh.neighbours import cosine, native

# the package exports a function of the same name
knn_module = import_module("ddh.neighbours.knn")


@pytest.fixture(params=["compiled", "portable"])
def loops(request, monkeypatch):
    if request.param == "compiled":
        if not native.available():
            pytest.skip("built without a compiler")
    else:
        monkeypatch.setattr(native, "loops", None)
    return request.param


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles and blocks so small that a few images need many."""
    monkeypatch.setattr(knn_module, "TILE", 16)
    monkeypatch.setattr(knn_module, "BLOCK", 200)
    monkeypatch.setattr(knn_module, "ROWS", 12)
    monkeypatch.setattr(cosine, "PIECE", 40)
