"""Hashing methods, one file each, behind one contract (`ddh.hashers.base.Hasher`)."""

from typing import TYPE_CHECKING, Any

from ddh.hashers.registry import (
    MODULES,
    create,
    default_model,
    load,
    load_image_encoder,
    method,
)

__all__ = ["create", "default_model", "load", "load_image_encoder", "method"]
__all__ += list(MODULES)  # imported when first used

if TYPE_CHECKING:
    from ddh.hashers.agh import AGH as AGH
    from ddh.hashers.bihalf import BiHalf as BiHalf
    from ddh.hashers.cibhash import CIBHash as CIBHash
    from ddh.hashers.cnnh import CNNH as CNNH
    from ddh.hashers.crovca import CroVCA as CroVCA
    from ddh.hashers.csq import CSQ as CSQ
    from ddh.hashers.ddh import DDH as DDH
    from ddh.hashers.deepbit import DeepBit as DeepBit
    from ddh.hashers.dh import DH as DH
    from ddh.hashers.dpsh import DPSH as DPSH
    from ddh.hashers.dsch import DRSCH as DRSCH
    from ddh.hashers.dsch import DSCH as DSCH
    from ddh.hashers.dsrh import DSRH as DSRH
    from ddh.hashers.fasth import FastH as FastH
    from ddh.hashers.greedyhash import GreedyHash as GreedyHash
    from ddh.hashers.hashnet import HashNet as HashNet
    from ddh.hashers.imh import IMH as IMH
    from ddh.hashers.isohash import IsoHash as IsoHash
    from ddh.hashers.itq import ITQ as ITQ
    from ddh.hashers.kmh import KMH as KMH
    from ddh.hashers.ksh import KSH as KSH
    from ddh.hashers.lfh import LFH as LFH
    from ddh.hashers.lsh import LSH as LSH
    from ddh.hashers.orthohash import OrthoHash as OrthoHash
    from ddh.hashers.pcah import PCAH as PCAH
    from ddh.hashers.sdc import SDC as SDC
    from ddh.hashers.sdh import SDH as SDH
    from ddh.hashers.semantic_hashing import SemanticHashing as SemanticHashing
    from ddh.hashers.sgh import SGH as SGH
    from ddh.hashers.sh import SH as SH
    from ddh.hashers.sphh import SphH as SphH
    from ddh.hashers.splh import SPLH as SPLH
    from ddh.hashers.ssh import SSH as SSH


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return method(name)
    raise AttributeError(f"module 'ddh.hashers' has no attribute {name!r}")
