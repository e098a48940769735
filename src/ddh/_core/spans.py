"""Ranges of rows cut into slices, for blocks and threads."""


def spans(stop: int, size: int, start: int = 0) -> list[slice]:
    """start..stop cut into slices of `size`, the last one shorter."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def even_spans(total: int, parts: int) -> list[slice]:
    """0..total cut into at most `parts` slices of nearly equal size, none of them empty."""
    return spans(total, max(1, -(-total // parts)))
