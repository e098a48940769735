"""Command-line options that the benches share."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import click

from ddh._core.errors import InputError
from ddh._core.output import json_option, quiet_option

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
Settings = dict[str, dict[str, Any]]

# What --set changes beside the methods: the stages of `ddh bench quality`.
WITHOUT_CLASS = ("byol", "pseudo-codes")


def compose(*options: Decorator) -> Decorator:
    """One decorator for several options, listed in this order by --help."""
    return lambda command: reduce(lambda done, option: option(done), reversed(options), command)


def numbers(ctx: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """Callback of an option: "16,32,64" -> (16, 32, 64)."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(
            f"{option.opts[0]} takes whole numbers separated by commas, not {text!r}"
        ) from error


def numbers_option(name: str, default: str, help: str | None = None) -> Decorator:
    """An option with whole numbers separated by commas."""
    return click.option(name, default=default, callback=numbers, help=help)


def settings_of(ctx: click.Context, option: click.Parameter, changes: tuple[str, ...]) -> Settings:
    """Callback of --set: "DDH.k1=50" -> {"DDH": {"k1": 50}}; Python literals, or else text."""
    settings: Settings = {}
    for change in changes:
        name, equals, text = change.partition("=")
        method, dot, parameter = name.partition(".")
        if not (equals and dot and parameter):
            raise InputError(f"--set takes METHOD.NAME=VALUE, not {change!r}")
        method = _method_with(method, parameter)
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        settings.setdefault(method, {})[parameter] = value
    return settings


def _method_with(name: str, parameter: str) -> str:
    """The proper name of a method, or an error where there is none or it has no such setting."""
    from ddh.hashers import create, method

    if name in WITHOUT_CLASS:
        return name
    hasher, others = method(name), ("bits", "random_state")  # of --bits and --seeds
    setting: dict[str, Any] = {parameter: None}
    try:
        create(name, **setting)
        known = parameter not in others
    except TypeError:
        known = False
    if not known:
        names = ", ".join(one for one in hasher().get_params() if one not in others)
        raise InputError(f"{hasher.__name__} has no setting {parameter!r} here; it has {names}")
    return hasher.__name__


output_option = click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("results"),
    help="Results folder; a second run resumes where the first one stopped.",
)
data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="DDH_DATA",
    show_envvar=True,
    help="Folder of the data set.",
)
features_option = click.option(
    "--features",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Precomputed features: an .npz file with features, labels and query (1 for query rows).",
)
device_option = click.option("--device", default="auto", help="auto, cpu, cuda, ...")
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    callback=settings_of,
    metavar="METHOD.NAME=VALUE",
    help="A setting of a method, for example DDH.k1=50. May be repeated.",
)
seed_option = click.option("--seed", default=0)
quick_option = click.option("--quick", is_flag=True, help="Small sizes, as a smoke test.")


@dataclass(frozen=True)
class BenchOptions:
    """The values of the shared options."""

    data: Path | None
    output: Path
    backbone: str
    weights: str
    size: int | None
    device: str
    subset: int | None
    seeds: tuple[int, ...]
    settings: Settings
    as_json: bool
    features: Path | None = None
    methods: str | None = None
    jobs: int = 1
    bits: tuple[int, ...] = ()

    def data_folder(self, what: str) -> Path:
        """The folder of the data set, or an error that says how to name it."""
        if self.data is None:
            raise InputError(
                f"where is {what}? Give its folder with --data DIR (or the environment variable "
                "DDH_DATA), or ready features with --features FILE where there is that option"
            )
        return self.data


def shared_options(
    bits: str = "", features: Decorator = features_option, without: tuple[str, ...] = ()
) -> Decorator:
    """--bits (where it has a default), --data, --output, --features and so on."""
    options = {
        "bits": numbers_option("--bits", bits, "Code lengths."),
        "data": data_option,
        "output": output_option,
        "features": features,
        "backbone": click.option("--backbone", default="efficientnet-lite0"),
        "weights": click.option("--weights", default="auto", help="auto, random or a file."),
        "size": click.option("--size", type=int, help="Input size of the network in pixels."),
        "device": device_option,
        "subset": click.option(
            "--subset", type=int, help="Quick run: use only this many training images."
        ),
        "seeds": numbers_option("--seeds", "0,1,2", "Of stochastic methods."),
        "methods": click.option("--methods", help="Only these rows, separated by commas."),
        "settings": set_option,
        "jobs": click.option("--jobs", default=1, help="Measurements that run at the same time."),
        "json": json_option,
        "quiet": quiet_option,
    }
    left_out = {*without} if bits else {*without, "bits"}
    return compose(*(option for name, option in options.items() if name not in left_out))
