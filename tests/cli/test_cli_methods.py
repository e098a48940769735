"""`ddh methods` lists the registry."""

import json

from click.testing import CliRunner

from ddh.cli import cli
from ddh.hashers.registry import MODULES


def test_every_method_with_its_paper():
    answer = CliRunner().invoke(cli, ["methods", "--json"])
    assert answer.exit_code == 0, answer.output
    rows = json.loads(answer.output)["methods"]
    assert [row["name"] for row in rows] == list(MODULES)
    by_name = {row["name"]: row for row in rows}
    assert by_name["KSH"]["labels"] == "required"
    assert by_name["ITQ"]["year"] == 2011
    assert all(set(row) == {"name", "title", "kind", "labels", "paper", "year"} for row in rows)


def test_table_for_people():
    answer = CliRunner().invoke(cli, ["methods"])
    lines = answer.output.splitlines()
    assert len(lines) == 1 + len(MODULES)
    (spectral,) = [line for line in lines if line.startswith("SH ")]
    assert "unsupervised" in spectral
    assert spectral.endswith("Spectral hashing, NIPS 2008")
