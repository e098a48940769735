"""Binary codes: +-1 vectors, packed bits, and search in them; torch for search on a GPU only."""

from ddh.codes.approximate import ApproximateIndex
from ddh.codes.asymmetric import asymmetric_scores, search_asymmetric
from ddh.codes.databases import register_duckdb, register_sqlite
from ddh.codes.gpu import GpuIndex
from ddh.codes.kernels import Neighbours, ScoredNeighbours, kernel
from ddh.codes.multi_index import MultiIndex, search
from ddh.codes.packing import code_bytes, pack, unpack
from ddh.codes.pairs import pairs_within
from ddh.codes.scan import Pairs, RadiusNeighbours, hamming, search_radius

__all__ = [
    "code_bytes",
    "pack",
    "unpack",
    "hamming",
    "search",
    "search_radius",
    "pairs_within",
    "search_asymmetric",
    "asymmetric_scores",
    "MultiIndex",
    "ApproximateIndex",
    "GpuIndex",
    "register_sqlite",
    "register_duckdb",
    "Neighbours",
    "RadiusNeighbours",
    "ScoredNeighbours",
    "Pairs",
    "kernel",
]
