"""`ddh bench serve` measures a real service, and finds every row that it has added."""

import json

import pytest
from click.testing import CliRunner

from ddh.cli import cli

pytest.importorskip("fastapi")


def test_the_bench_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("DDH_CACHE", str(tmp_path))
    options = ["--rows", "3000", "--seconds", "0.4", "--images", "0", "--concurrency", "4"]
    done = CliRunner().invoke(cli, ["bench", "serve", *options, "--json"], catch_exceptions=False)
    document = json.loads(done.stdout)
    assert document["code queries"]["requests"] > 10
    assert document["code queries while rows are added"]["requests"] > 0
    assert document["rows added"]["requests"] > 0
    assert document["rows added"]["not found afterwards"] == 0
    assert document["name queries"]["requests"] > 3
    assert document["memory of the service"] is None or document["memory of the service"] > 1 << 20
    for figures in ("code queries", "rows added", "name queries"):
        row = document[figures]
        assert 0 < row["p50 ms"] <= row["p99 ms"] <= row["max ms"]
