"""Binary codes: +-1 vectors, packed bits, and Hamming distance on them. Knows nothing of torch."""

from ddh.codes.packing import code_bytes, pack, unpack

__all__ = ["code_bytes", "pack", "unpack"]
