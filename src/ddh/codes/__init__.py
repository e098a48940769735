"""Binary codes: +-1 vectors, packed bits, and Hamming search on them. Knows nothing of torch."""

from ddh.codes.approximate import ApproximateIndex
from ddh.codes.kernels import Neighbours, kernel
from ddh.codes.multi_index import MultiIndex, pairs_within, search
from ddh.codes.packing import code_bytes, pack, unpack
from ddh.codes.scan import Pairs, RadiusNeighbours, hamming, search_radius

__all__ = [
    "code_bytes",
    "pack",
    "unpack",
    "hamming",
    "search",
    "search_radius",
    "pairs_within",
    "MultiIndex",
    "ApproximateIndex",
    "Neighbours",
    "RadiusNeighbours",
    "Pairs",
    "kernel",
]
