"""`ddh bench scale` at a small size: every part runs, and every figure is there."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ddh._core.errors import DDHError, InputError
from ddh.bench.scale import _measured, exponent, scale

SMALL = ["--images", "1000,2500", "--dimensions", "16", "--codes", "5000", "--milvus", "300"]


def test_it_measures_labels_and_searches(tmp_path):
    pytest.importorskip("milvus_lite")
    run = CliRunner().invoke(scale, [*SMALL, "-o", str(tmp_path), "--json"], catch_exceptions=False)
    found = json.loads(run.stdout)
    growth, searches = found["records"][:2], found["records"][2:]
    assert [row["images"] for row in growth] == [1000, 2500]
    for row in growth:
        assert row["recall"] >= 0.95
        assert 0.5 < row["label recall"] <= 1
        assert row["cpu"] > 0
        assert row["labels per image"] >= 15
    assert [(row["storage"], row["rows"], row["queries"]) for row in searches] == [
        ("memory-mapped file", 5000, 1),
        ("memory-mapped file", 5000, 64),
        ("Milvus Lite", 300, 1),
        ("Milvus Lite", 300, 16),
    ]
    again = CliRunner().invoke(scale, [*SMALL, "-o", str(tmp_path), "--json"])
    assert json.loads(again.stdout)["records"] == found["records"]  # measured once
    files = {file.name for file in (tmp_path / "scale").iterdir()}
    assert {"label-growth.png", "label-growth.svg", "results.json", "table.md"} <= files


def test_the_exponent_is_that_of_the_power_law():
    growth = [{"images": n, "cpu": 3e-4 * n**1.25} for n in (1e4, 1e5, 1e6)]
    assert exponent(growth) == pytest.approx(1.25)


def test_a_search_that_misses_is_not_timed():
    with pytest.raises(DDHError, match="was not found"):
        _measured("here", 9, (2,), lambda: None, lambda count: np.array([[0], [3]])[:count])


def test_misuse():
    with pytest.raises(InputError, match="1000 or more"):
        CliRunner().invoke(scale, ["--images", "10"], catch_exceptions=False)
