"""Hashing methods, one file each, behind one contract (`ddh.hashers.base.Hasher`)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddh.hashers.registry import MODULES, create, load, load_image_encoder, method

if TYPE_CHECKING:
    from ddh.hashers.cnnh import CNNH
    from ddh.hashers.ddh import DDH
    from ddh.hashers.deepbit import DeepBit
    from ddh.hashers.dh import DH
    from ddh.hashers.dpsh import DPSH
    from ddh.hashers.drsch import DRSCH
    from ddh.hashers.dsch import DSCH
    from ddh.hashers.dsrh import DSRH
    from ddh.hashers.fasth import FastH
    from ddh.hashers.hashnet import HashNet
    from ddh.hashers.isohash import IsoHash
    from ddh.hashers.itq import ITQ
    from ddh.hashers.kmh import KMH
    from ddh.hashers.ksh import KSH
    from ddh.hashers.lfh import LFH
    from ddh.hashers.lsh import LSH
    from ddh.hashers.pcah import PCAH
    from ddh.hashers.sdh import SDH
    from ddh.hashers.semantic_hashing import SemanticHashing
    from ddh.hashers.sh import SH
    from ddh.hashers.sphh import SphH
    from ddh.hashers.splh import SPLH
    from ddh.hashers.ssh import SSH

__all__ = [
    "LSH",
    "PCAH",
    "SH",
    "SphH",
    "KMH",
    "ITQ",
    "IsoHash",
    "SemanticHashing",
    "DH",
    "DeepBit",
    "SSH",
    "SPLH",
    "LFH",
    "KSH",
    "SDH",
    "FastH",
    "CNNH",
    "DSRH",
    "DSCH",
    "DRSCH",
    "DPSH",
    "HashNet",
    "DDH",
    "create",
    "load",
    "load_image_encoder",
    "method",
]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(f"ddh.hashers.{MODULES[name]}"), name)
    raise AttributeError(f"module 'ddh.hashers' has no attribute {name!r}")
