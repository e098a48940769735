"""What an index holds and what it answers: rows in, typed results out, and the checks of both."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import DDHError, InputError
from ddh.codes.inputs import check_codes

Codes = NDArray[np.uint8]
Metadata = Mapping[str, Any]

MAX_TEXT_BYTES = 2048  # of a key or a path: what every engine can keep in an ordered index
MAX_DEPTH = 64  # of metadata: what every engine and every JSON library can read back


class FileStamp(NamedTuple):
    """What a file looked like when its code was made: enough to tell whether it has changed."""

    mtime_ns: int
    size: int
    digest: str | None = None


@dataclass(frozen=True, eq=False)
class Row:
    """One row of an index."""

    key: str
    code: Codes = field(repr=False)
    path: str | None = None
    stamp: FileStamp | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def at(self, distance: int) -> "Hit":
        """This row as an answer."""
        return Hit(self.key, distance, self.path, self.metadata, self.code)

    def distance(self, other: "Row") -> int:
        """The Hamming distance of two rows."""
        return int(np.bitwise_count(self.code ^ other.code).sum())


@dataclass(frozen=True, slots=True)
class Hit:
    """One answer: a row, its Hamming distance, and the code that lies at that distance.

    `score` is the cosine of features, or the asymmetric score of a search with `values`: larger is
    nearer.
    """

    key: str
    distance: int
    path: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    code: Codes = field(default_factory=lambda: np.empty(0, np.uint8), repr=False, compare=False)
    score: float | None = None


class Written(NamedTuple):
    """What an `upsert` did."""

    added: int
    replaced: int


@dataclass(frozen=True)
class IndexInfo:
    """What `Index.info()` tells; `deleted` rows wait for `compact` to give their room back.

    `features` are the bytes of features per row, 0 where none are stored.
    """

    engine: str
    location: str
    bits: int
    bit_order: str
    model_id: str | None
    created: str
    rows: int
    deleted: int
    disk_bytes: int | None
    details: dict[str, str]
    settings: dict[str, str]
    features: int = 0


@dataclass(frozen=True)
class Columns:
    """Checked rows on their way into an engine; metadata is JSON text, None where there is none."""

    keys: list[str]
    codes: Codes
    paths: list[str | None]
    stamps: list[FileStamp | None]
    metadata: list[str | None]
    features: NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, codes: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """(key, code, path, stamp, metadata) of each row, with the codes in an engine's form."""
        return zip(self.keys, codes, self.paths, self.stamps, self.metadata, strict=True)


def check_columns(
    bits: int,
    keys: Sequence[str],
    codes: ArrayLike,
    paths: Sequence[str | None] | None,
    stamps: Sequence[FileStamp | None] | None,
    metadata: Sequence[Metadata | None] | None,
) -> Columns:
    """Rows that every engine can store, or an error that names the first bad one."""
    packed = check_codes(codes, bits, "the codes")
    if isinstance(keys, str):
        raise InputError("keys are a list of strings, one for each code, not a single string")
    names = check_texts(keys, "a key")
    columns = {"keys": names, "paths": paths, "stamps": stamps, "metadata": metadata}
    for what, column in columns.items():
        if column is not None and len(column) != len(packed):
            raise InputError(f"there are {len(packed)} codes and {len(column)} {what}")
    if len(set(names)) != len(names):
        repeated = Counter(names).most_common(1)[0][0]
        raise InputError(f"the key {repeated!r} comes twice in one call")
    none: list[Any] = [None] * len(names)
    return Columns(
        names,
        packed,
        none if paths is None else [p if p is None else check_text(p, "a path") for p in paths],
        none if stamps is None else [s if s is None else _check_stamp(s) for s in stamps],
        none if metadata is None else [metadata_text(m) for m in metadata],
    )


def check_texts(values: Sequence[str], what: str) -> list[str]:
    """Many keys at once: all together where nothing is wrong, one by one to name what is."""
    if all(type(value) is str and 0 < len(value) <= MAX_TEXT_BYTES // 4 for value in values):
        together = "\0".join(values)
        if together.isascii() and together.count("\0") == max(0, len(values) - 1):
            return list(values)
    return [check_text(value, what) for value in values]


def check_text(value: str, what: str) -> str:
    """A key or path that every engine can store and compare byte by byte."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} is a string of one character or more, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} must be valid text: {value!r} cannot be written as UTF-8"
        ) from error
    if "\0" in value:
        raise InputError(f"{what} cannot hold the NUL character: {value!r}")
    if size > MAX_TEXT_BYTES:
        raise InputError(
            f"{what} has at most {MAX_TEXT_BYTES} bytes, not {size}: {value[:60]!r}..."
        )
    return value


class IndexRecoded(DDHError):
    """Somebody else has given the rows of an open index codes of another model."""


def recoded(location: object, model_id: str | None) -> IndexRecoded:
    """The error for an index whose codes are not those that it was opened with."""
    return IndexRecoded(
        f"the index {location} has codes of another model ({model_id}) since it was opened: open "
        "it again"
    )


def check_radius(radius: int, bits: int) -> int:
    """A Hamming distance that codes of `bits` bits can have."""
    whole = isinstance(radius, int | np.integer) and not isinstance(radius, bool)
    if not whole or not 0 <= radius <= bits:
        raise InputError(f"the radius is a distance from 0 to {bits}, not {radius!r}")
    return int(radius)


def key_digest(key: str) -> str:
    """A key as 32 hexadecimal digits, which Milvus may put into expressions as they are."""
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def bit_strings(codes: Codes, bits: int) -> list[str]:
    """Packed codes as PostgreSQL writes `bit(n)`: one character a bit, the first bit first."""
    characters = np.unpackbits(codes, axis=1, count=bits) + np.uint8(ord("0"))
    return np.ascontiguousarray(characters).view(f"S{bits}").ravel().astype(str).tolist()


def _check_stamp(stamp: FileStamp) -> FileStamp:
    mtime_ns, size, digest = stamp
    if digest is not None:
        check_text(digest, "a digest")
    numbers = int(mtime_ns), int(size)
    if not all(-(2**63) <= number < 2**63 for number in numbers):
        raise InputError(f"a stamp holds numbers of 64 bits, not {numbers}")
    return FileStamp(*numbers, digest)


def metadata_text(metadata: Metadata | None) -> str | None:
    """Metadata as JSON text; None where there is nothing to keep."""
    if not metadata:
        return None
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
        text.encode()
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata must be what JSON can hold ({error}): {metadata!r}") from error
    if text.count("{") + text.count("[") > MAX_DEPTH and _nests(metadata, MAX_DEPTH):
        raise _too_deep()
    if "\\u0000" in text and _holds_nul(json.loads(text)):
        raise InputError(f"metadata cannot hold the NUL character: {metadata!r}")
    return text


def _too_deep() -> InputError:
    return InputError(f"metadata is nested at most {MAX_DEPTH} levels deep")


def _nests(value: Any, levels: int) -> bool:
    """Whether lists and objects lie within each other more than `levels` deep."""
    if not isinstance(value, Mapping | list | tuple):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(_nests(part, levels - 1) for part in parts)


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(part) for item in value.items() for part in item)
    return isinstance(value, list) and any(_holds_nul(part) for part in value)


def read_metadata(stored: str | None) -> dict[str, Any]:
    """The inverse of `metadata_text`."""
    return json.loads(stored) if stored else {}


def read_stamp(mtime_ns: int | None, size: int | None, digest: str | None) -> FileStamp | None:
    """A stamp from its three stored columns."""
    return None if mtime_ns is None or size is None else FileStamp(mtime_ns, size, digest)
