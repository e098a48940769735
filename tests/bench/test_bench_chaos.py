"""`ddh bench chaos`: nothing is lost, and what would be lost is told."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import ddh.index
from ddh.bench import chaos
from ddh.cli import cli

pytest.importorskip("resource")


def test_nothing_is_lost_and_every_trial_is_told():
    kinds = ["index writes", "compactions", "model saves", "full disk", "few descriptors"]
    command = ["bench", "chaos", "--kills", "8", "--only", ",".join(kinds), "--json", "--quiet"]
    run = CliRunner().invoke(cli, command)
    assert run.exit_code == 0, run.output
    trials = json.loads(run.stdout)["trials"]
    assert [trial["what"] for trial in trials] == kinds
    assert all(trial["tried"] and not trial["lost"] + trial["unusable"] for trial in trials)
    assert trials[3]["acknowledged"] > 0


def test_a_thousand_kills_are_mostly_cheap_ones():
    plan = chaos._plan(1000, None)
    assert sum(plan[name] for name in chaos.SHARES if name in plan) == 1000
    assert plan["pretrain"] + plan["fit"] + plan["encode"] < 100
    assert chaos._plan(5, "fit") == {"fit": 5}


@pytest.mark.parametrize("options", [["--only", "nothing"], ["--kills", "0"]])
def test_a_wrong_option_is_refused(options):
    assert CliRunner().invoke(cli, ["bench", "chaos", *options]).exit_code != 0


@pytest.mark.parametrize("said", ["done", "doing"])
def test_a_row_that_was_acknowledged_and_is_not_there_is_lost(tmp_path, said):
    rows, trial = chaos.Rows(tmp_path / "index"), chaos.Trial("a test")
    told = [("ready", None), (said, ("write", "k", 2, 0))]
    rows.verify(trial, SimpleNamespace(told=told))
    assert bool(trial.lost) == (said == "done")
    assert not trial.unusable


def test_half_a_row_is_told(tmp_path):
    rows, trial = chaos.Rows(tmp_path / "index"), chaos.Trial("a test")
    with ddh.index.open(tmp_path / "index") as index:
        index.add(["k"], bytes_of(16), features=bytes_of(8).view("int8"), metadata=[{"version": 0}])
    rows.verify(trial, SimpleNamespace(told=[]))
    assert "half a row" in trial.unusable[0]


def bytes_of(count: int) -> np.ndarray:
    return np.frombuffer(random.Random(0).randbytes(count), np.uint8).reshape(1, -1)
