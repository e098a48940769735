"""`ddh plan`: the calculator, its documentation, and rates measured on the spot."""

import json
import re

import pytest
from click.testing import CliRunner

from ddh._core.errors import InputError
from ddh.bench import capacity
from ddh.bench.capacity import RATES, Collection, Machine, in_bytes, in_time, searching, stages
from ddh.cli.plan import plan


def invoke(*arguments):
    return CliRunner().invoke(plan, [str(a) for a in arguments], catch_exceptions=False)


@pytest.mark.parametrize("images", ["1e6", "1e8", "1e9"])
def test_the_tables_of_the_documentation_are_what_the_command_prints(repository, images):
    documented = (repository / "docs" / "scale.md").read_text()
    printed = invoke("--images", images).stdout
    table = re.search(r"\| stage .*?(?=\n\n)", printed, re.S)[0]
    assert table in documented, f"docs/scale.md is behind: ddh plan --images {images}"


def test_the_rates_of_the_documentation_are_those_of_the_table(repository):
    documented = (repository / "docs" / "scale.md").read_text()
    for rate in RATES.values():
        assert f"| {rate.unit} | {rate.value:,.4g} | `{rate.command}` |" in documented


def test_a_billion_images():
    found = json.loads(invoke("--images", "1e9", "--bits", 64, "--json").stdout)
    by_name = {stage["name"]: stage for stage in found["stages"]}
    assert list(by_name) == ["features", "labels", "training", "codes"]
    assert by_name["features"]["disk"] == 2 * 10**9 * 1280
    assert by_name["codes"]["disk"] == 8 * 10**9
    assert found["search"]["machines"] == 1
    assert found["rates"]["labels"]["command"] == RATES["labels"].command
    hours = 1e9 / found["rates"]["pictures"]["value"] / 3600
    assert by_name["features"]["core_hours"] == pytest.approx(hours)
    assert by_name["features"]["machines"] == -(-hours // (16 * 24))


def test_what_grows_and_how():
    def core_hours(**changes):
        collection = Collection(**{"images": 10**8} | changes)
        return {stage.name: stage.core_hours for stage in stages(collection)}

    base, ten = core_hours(), core_hours(images=10**9)
    assert ten["features"] == pytest.approx(10 * base["features"])
    assert ten["labels"] == pytest.approx(10**1.5 * base["labels"])
    assert core_hours(side=112)["features"] == pytest.approx(base["features"] / 4)
    assert core_hours(learn=10**6)["training"] == pytest.approx(base["training"] / 100)
    assert core_hours(learn=10**6)["features"] == base["features"]
    small, large = (searching(Collection(n), Machine()) for n in (10**6, 10**10))
    assert small.machines == 1
    assert large.machines == 2
    assert large.query_seconds == pytest.approx(5000 * small.query_seconds)


def test_a_stage_gets_the_machines_for_its_memory_and_its_time():
    stage = capacity.Stage("labels", 0, 600e9, 10)
    assert stage.machines(Machine(cores=10, memory_gb=100, hours=1)) == 8  # 80 GB each
    assert stage.machines(Machine(cores=1, memory_gb=1e4, hours=1)) == 10
    assert stage.hours(Machine(cores=1, memory_gb=1e4, hours=1)) == 1


def test_words():
    assert [in_bytes(n) for n in (0, 12, 8e6, 2.56e9, 1.28e12)] == [
        "-", "12 B", "8 MB", "2.56 GB", "1.28 TB",
    ]  # fmt: skip
    assert [in_time(s / 3600) for s in (5e-5, 0.2, 30, 600, 36000, 9e6)] == [
        "0.05 ms", "200 ms", "30 s", "10 min", "10 h", "104 days",
    ]  # fmt: skip


def test_rates_can_be_measured_here():
    found = capacity.measured_rates(64, small=20)
    assert set(found) == set(RATES)
    assert found["labels"].unit == RATES["labels"].unit.replace("20,000", "1,000")
    assert all(rate.value > 0 and rate.command == capacity.COMMAND for rate in found.values())


@pytest.mark.parametrize("wrong", [("--images", "many"), ("--images", "0.5")])
def test_numbers_that_are_none(wrong):
    assert CliRunner().invoke(plan, wrong).exit_code == 2


def test_misuse():
    with pytest.raises(InputError, match="more than"):
        invoke("--images", 10, "--learn", 11)
    with pytest.raises(InputError, match="bits must be at least 1"):
        invoke("--images", 10, "--bits", 0)
    with pytest.raises(InputError, match="positive"):
        invoke("--images", 10, "--cores", 0)
