"""`ddh bench search` at a small size: every peer answers, and every figure is there."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ddh._core.errors import DDHError, InputError
from ddh.bench import search, search_data, search_gpu

SMALL = ["--bits", "16", "--bits", "64", "--rows", "3000", "-k", "5", "--repeat", "1"]


def test_json():
    run = CliRunner().invoke(search.search, [*SMALL, "--json"], catch_exceptions=False)
    document = json.loads(run.stdout)
    assert [(c["data"], c["bits"]) for c in document["exact"]] == [
        ("lsh", 16),
        ("lsh", 64),
        ("clustered", 16),
        ("clustered", 64),
    ]
    assert document["faiss"] == search.faiss_level() != ""
    names = {peer.name for peer in search.installed()}
    for cell in document["exact"]:
        assert set(cell["rates"]) == names >= {"ours", "numpy"}
        assert all(rate["1"] > 0 and rate["2"] > 0 for rate in cell["rates"].values())
        assert cell["times faiss"] > 0
    assert document["limits"]["memory read GB/s"] > 0.1
    assert [row["recall"] for row in document["sublinear"]] == [1, 1, 1, 1]
    (batch,) = document["batches"]
    assert batch["bits"] == 64
    assert list(batch["rates"]) == [str(k) for k in search.BATCHED_K]
    ways = {"Hamming", "Hamming by rows", "asymmetric"}
    for by_size in batch["rates"].values():
        assert list(by_size) == [str(size) for size in search.BATCHES]
        assert all(set(rates) == ways for rates in by_size.values())

    assert document["single"][0]["threads"] == 1
    assert document["single"][0]["share"] > 0
    assert document["pairs"]["pairs"] >= 30
    assert document["pairs"]["peak MB"] > 0


def test_one_part():
    options = [*SMALL, "--part", "single"]
    run = CliRunner().invoke(search.search, [*options, "--json"], catch_exceptions=False)
    assert set(json.loads(run.stdout)) == {
        "kernel", "machine", "faiss", "settings", "limits", "single"
    }  # fmt: skip
    run = CliRunner().invoke(search.search, options, catch_exceptions=False)
    assert "A single query" in run.stdout
    assert "Exact search" not in run.stdout


def test_longer_codes_have_batches_of_their_own():
    settings = {"bits": (32, 64, 128), "rows": (2000,), "seed": 0, "repeat": 1}
    usual, longer = search.batches(settings)
    assert (usual["bits"], longer["bits"]) == (64, 128)
    assert set(longer["rates"]["10"]["96"]) == {"Hamming"}


def test_a_device(monkeypatch):
    monkeypatch.setattr(search_gpu, "BATCHES", (1, 2, 8))
    options = ["--bits", "64", "--rows", "1000", "-k", "5", "-k", "9", "--device", "cpu"]
    run = CliRunner().invoke(search.search, [*options, "--json"], catch_exceptions=False)
    document = json.loads(run.stdout)
    found = [(cell["queries"], cell["k"]) for cell in document["cells"]]
    assert found[:3] == [(1, 5), (1, 9), (2, 5)]
    assert all(cell["rate"] > 0 for cell in document["cells"])
    assert document["pairs"][0]["pairs"] >= 10
    run = CliRunner().invoke(search.search, options, catch_exceptions=False)
    assert "Exact search on the device" in run.stdout


def test_text():
    run = CliRunner().invoke(search.search, [*SMALL, "--data", "random"], catch_exceptions=False)
    assert "Exact search" in run.stdout
    assert "popcount" in run.stdout
    assert "time of asymmetric / Hamming" in run.stdout
    assert "MultiIndex(3000 rows of 64 bits" in run.stdout


@pytest.mark.parametrize("wrong", [["--bits", "12"], ["-k", "0"], ["--rows", "0"]])
def test_misuse(wrong):
    with pytest.raises(InputError):
        CliRunner().invoke(search.search, [*wrong], catch_exceptions=False)


def test_a_wrong_answer_is_not_timed():
    right = np.array([[1, 2]])
    search._check(search.OURS, right, right)
    with pytest.raises(DDHError, match="disagree"):
        search._check(search.OURS, right + 1, right)


@pytest.mark.parametrize("kind", list(search_data.KINDS))
def test_data_repeats_and_has_its_structure(kind):
    make = search_data.KINDS[kind]
    rows = make(2000, 64, 3, 0)
    np.testing.assert_array_equal(rows, make(2000, 64, 3, 0))
    assert not np.array_equal(rows[:100], make(100, 64, 3, 1))
    equal = 2000 - len(np.unique(rows, axis=0))
    assert (equal > 100) == (kind == "clustered")
