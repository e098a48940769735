"""Hashing methods, one file each, behind one contract (`ddh.hashers.base.Hasher`)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddh.hashers.registry import MODULES, create, load, method

if TYPE_CHECKING:
    from ddh.hashers.ddh import DDH
    from ddh.hashers.itq import ITQ
    from ddh.hashers.lsh import LSH

__all__ = ["DDH", "ITQ", "LSH", "create", "load", "method"]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(f"ddh.hashers.{MODULES[name]}"), name)
    raise AttributeError(f"module 'ddh.hashers' has no attribute {name!r}")
