"""What a search in buckets costs, and the number of substrings that costs least.

Work is in clock cycles as measured on a Neoverse N1; only the ratios matter, and only for speed.
"""

from math import comb

from ddh.codes.packing import code_bytes

COPIED_BYTES = 8  # codes up to this width are kept in the order of each table
LONGEST_SUBSTRING = 24
SHORT_CODE = 16  # bits: one table of all codes, whose buckets tell the distance
BUCKET = 180.0

_ROW, _ROW_LOOKED_UP = 2.5, 30.0
_SCANNED_BYTE, _SCANNED_BYTE_OF_FEW = 0.055, 0.12  # for many queries at once, and for a few
_FEW_QUERIES = 32


def row_cost(width: int) -> float:
    """Cycles for a row of a bucket."""
    return _ROW if width <= COPIED_BYTES else _ROW_LOOKED_UP


def scan_cost(width: int, queries: int) -> float:
    """Cycles for a row in a scan, for each of so many queries."""
    return width * (_SCANNED_BYTE_OF_FEW if queries < _FEW_QUERIES else _SCANNED_BYTE)


def radius_cost(rows: int, bits: int, tables: int, radius: int) -> float:
    """Expected cycles to find all rows within `radius` of a query, for codes without structure."""
    row = row_cost(code_bytes(bits))
    cycles = 0.0
    for table in range(min(tables, radius + 1)):
        length = (table + 1) * bits // tables - table * bits // tables
        steps = min((radius - table) // tables, length)
        buckets = sum(comb(length, step) for step in range(steps + 1))
        cycles += buckets * (BUCKET + row * rows / 2**length)
    return cycles


def tables_for_radius(rows: int, bits: int, radius: int) -> int:
    """The number of substrings with the least work for a radius."""
    counts = {-(-bits // length) for length in range(4, LONGEST_SUBSTRING + 1)}
    return min(sorted(counts), key=lambda tables: radius_cost(rows, bits, tables, radius))


def tables_for_neighbours(rows: int, bits: int, k: int = 10) -> int:
    """The number of substrings with the least work for k neighbours."""
    if bits <= SHORT_CODE:
        return 1
    if code_bytes(bits) > COPIED_BYTES:  # made for near-duplicates: the scan finds the others
        return tables_for_radius(rows, bits, bits // 10)
    nearer, radius = 1, 0  # codes within the radius, of 2 ** bits
    while rows * nearer < k << bits and radius < bits:
        radius += 1
        nearer += comb(bits, radius)
    return tables_for_radius(rows, bits, radius)
