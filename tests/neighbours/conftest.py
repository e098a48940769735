"""Every test of the lists and of the labels runs with the compiled loops and without them."""

import pytest

from ddh.neighbours import cosine, exact, expansion, native


@pytest.fixture(params=["compiled", "portable"])
def loops(request, monkeypatch):
    if request.param == "compiled":
        if not native.available():
            pytest.skip("built without a compiler")
    else:
        for module in (cosine, exact, expansion):
            monkeypatch.setattr(module, "loops", None)
    return request.param


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles and blocks so small that a few images need many."""
    monkeypatch.setattr(exact, "TILE", 16)
    monkeypatch.setattr(exact, "BLOCK", 200)
    monkeypatch.setattr(exact, "ROWS", 12)
    monkeypatch.setattr(cosine, "PIECE", 40)
