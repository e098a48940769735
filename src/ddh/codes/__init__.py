"""Binary codes: +-1 vectors, packed bits, and Hamming search on them. Knows nothing of torch."""

from ddh.codes.kernels import kernel
from ddh.codes.packing import code_bytes, pack, unpack
from ddh.codes.pairs import pairs_within
from ddh.codes.results import Neighbours, Pairs, RadiusNeighbours
from ddh.codes.scan import hamming, search, search_radius

__all__ = [
    "code_bytes",
    "pack",
    "unpack",
    "hamming",
    "search",
    "search_radius",
    "pairs_within",
    "Neighbours",
    "RadiusNeighbours",
    "Pairs",
    "kernel",
]
