"""Types of the native kernel, see `_hamming.c`. Arrays are C-contiguous buffers."""

from collections.abc import Sequence

from typing_extensions import Buffer

_Found = tuple[bytes, bytes, bytes]  # counts int64, distances int32, indices int64

def variants() -> list[str]: ...
def matrix(variant: str, a: Buffer, b: Buffer, width: int, distances: Buffer, /) -> None: ...
def top_k(
    variant: str,
    tables: bool,
    queries: Buffer,
    rows: Buffer,
    width: int,
    k: int,
    distances: Buffer,
    indices: Buffer,
    /,
) -> None: ...
def within(
    variant: str, tables: bool, queries: Buffer, rows: Buffer, width: int, radius: int, /
) -> _Found: ...
def sort_into_buckets(
    keys: Buffer, offsets: Buffer, ids: Buffer, rows: Buffer, sorted: Buffer, width: int, /
) -> None: ...
def index_search(
    variant: str,
    queries: Buffer,
    rows: Buffer,
    width: int,
    keys: Buffer,
    tables: Sequence[tuple[int, Buffer, Buffer, Buffer, Buffer]],
    partition: int,
    most_steps: int,
    k: int,
    radius: int,
    row_cost: float,
    bucket_cost: float,
    done: Buffer,
    /,
) -> _Found: ...
def list_search(
    variant: str,
    queries: Buffer,
    rows: Buffer,
    width: int,
    probes: Buffer,
    offsets: Buffer,
    ids: Buffer,
    k: int,
    /,
) -> _Found: ...
