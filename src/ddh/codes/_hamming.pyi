"""Types of the native kernel, see `_hamming.c`. Arrays are C-contiguous."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any]
_Found = tuple[bytes, bytes, bytes]  # counts int64, distances int32, indices int64

def variants() -> list[str]: ...
def matrix(variant: str, a: _Array, b: _Array, width: int, distances: _Array, /) -> None: ...
def count_ones(variant: str, data: _Array, turns: int, /) -> int: ...
def top_k(
    variant: str,
    tables: bool,
    queries: _Array,
    rows: _Array,
    width: int,
    k: int,
    distances: _Array,
    indices: _Array,
    /,
) -> None: ...
def within(
    variant: str, tables: bool, queries: _Array, rows: _Array, width: int, radius: int, /
) -> _Found: ...
def sort_into_buckets(
    keys: _Array, offsets: _Array, ids: _Array, rows: _Array, sorted: _Array, width: int, /
) -> None: ...
def index_search(
    variant: str,
    queries: _Array,
    rows: _Array,
    width: int,
    keys: _Array,
    tables: Sequence[tuple[int, _Array, _Array, _Array, _Array]],
    k: int,
    radius: int,
    row_cost: float,
    bucket_cost: float,
    done: _Array,
    /,
) -> _Found: ...
def list_search(
    variant: str,
    queries: _Array,
    rows: _Array,
    width: int,
    probes: _Array,
    offsets: _Array,
    ids: _Array,
    k: int,
    /,
) -> _Found: ...
