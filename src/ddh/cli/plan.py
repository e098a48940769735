"""`ddh plan`: bytes, hours and machines for a collection of any size, on paper."""

import math
from dataclasses import asdict
from typing import Any

import click

from ddh._core.output import emit, json_option, quiet_option


class Count(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """A whole number that may be written as 1e9 or 1_000_000."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            number = float(str(value).replace(",", "").replace("_", ""))
        except ValueError:
            number = math.nan
        if not number.is_integer():
            self.fail(f"{value!r} is not a whole number such as 1000000 or 1e9", param, ctx)
        return int(number)


@click.command(short_help="Bytes, hours and machines for a collection of any size.")
@click.option("--images", required=True, type=Count(), help="Pictures, for example 1e9.")
@click.option("--bits", default=64, help="Length of a code.")
@click.option("--size", default=224, help="Side of the network's input.")
@click.option("--dimensions", default=1280, help="Of the network's features.")
@click.option("--learn", type=Count(), help="Pictures to learn from; by default all of them.")
@click.option("--cores", default=16, help="Of a machine.")
@click.option("--memory", default=64.0, help="Of a machine, in GB.")
@click.option("--hours", default=24.0, help="A stage may take so long.")
@click.option("--measure", is_flag=True, help="Measure the rates here first, half a minute.")
@click.option("--device", default="cpu", help="Measured for features: or cuda.")
@json_option
@quiet_option
def plan(
    images: int, bits: int, size: int, dimensions: int, learn: int | None, cores: int,
    memory: float, hours: float, measure: bool, device: str, as_json: bool,
) -> None:  # fmt: skip
    """What features, labels, training, codes and search of so many pictures need.

    The rates behind it are measured ones of one core (docs/scale.md), or this machine's with
    --measure; with --device cuda as well, a "core" of the features is one GPU.

    \b
    ddh plan --images 1e9 --bits 64
    ddh plan --images 1e8 --learn 1e7 --cores 64 --memory 256 --hours 48
    ddh plan --images 1e6 --measure
    """
    from ddh._core.errors import InputError
    from ddh.bench import capacity

    if min(cores, memory, hours) <= 0:
        raise InputError("cores, memory and hours must be positive")
    collection = capacity.Collection(images, bits, dimensions, size, learn)
    machine = capacity.Machine(cores, memory, hours)
    rates = capacity.measured_rates(size, device) if measure else capacity.RATES
    document = {
        "collection": asdict(collection),
        "machine": asdict(machine),
        "stages": [
            {**asdict(s), "machines": s.machines(machine), "hours": s.hours(machine)}
            for s in capacity.stages(collection, rates)
        ],
        "search": asdict(capacity.searching(collection, machine, rates)),
        "rates": {name: asdict(rate) for name, rate in rates.items()},
    }
    text = [
        f"{images:,} images, {bits} bits; machines of {cores} cores and {memory:g} GB, "
        f"{hours:g} hours a stage",
        "",
        capacity.table(collection, machine, rates),
        "",
        "Rates:",
        *[f"  {rate.value:,.4g}  {rate.unit}  ({rate.command})" for rate in rates.values()],
    ]
    emit(document, "\n".join(text), as_json)
