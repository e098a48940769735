"""Imports that wait until they are needed, and what to say where torch is not installed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ddh._core.errors import MissingDependency

TRAIN = "pip install 'ddh[train]'"


def has_torch() -> bool:
    """Whether torch is installed; it is not imported."""
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):  # something keeps it from being found
        return False


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """Where torch is missing, `MissingDependency` says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise MissingDependency(f"{what} needs torch, which is not installed: {TRAIN}") from error


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: names imported from their module when first used."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs_torch(f"{package}.{name}"):
            return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
