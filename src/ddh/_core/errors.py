"""The errors that reach a user. Each message says what is wrong and what to do about it."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any


class DDHError(Exception):
    """Anything that ddh itself refuses; the command line prints it without a traceback."""


class InputError(DDHError, ValueError):
    """Data or a setting that cannot be used as it is."""


def check_numbers(
    values: Mapping[str, Any], least: Mapping[str, float], positive: Iterable[str] = ()
) -> None:
    """Refuse settings below their `least` value, and those that are to be positive and are not."""
    for name, lowest in least.items():
        if values[name] is not None and not values[name] >= lowest:
            raise InputError(f"{name} must be at least {lowest}, not {values[name]}")
    for name in positive:
        if values[name] is not None and not values[name] > 0:
            raise InputError(f"{name} must be positive, not {values[name]}")


class ModelError(DDHError):
    """A model folder that is damaged, of another kind, or does not fit the request."""


class MissingDependency(DDHError, ImportError):
    """An optional library is needed; the message names the extra that brings it."""


class DDHWarning(UserWarning):
    """Something worked, but not the way a user may expect."""


def optional(module: str, missing: str) -> Any:
    """An optional library, or `MissingDependency` with a message that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependency(missing) from error
