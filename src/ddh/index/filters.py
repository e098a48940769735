"""Which rows a search looks at: metadata values that must be equal, and a folder."""

from collections.abc import Mapping
from dataclasses import dataclass

from ddh._core.errors import InputError
from ddh.index.rows import Row, check_text

Scalar = str | int | float | bool

_INT64 = 1 << 63


@dataclass(frozen=True)
class Filter:
    """Checked conditions, all of which must hold; every engine words them in its own language.

    Values compare as JSON does: 1 equals 1.0, but neither equals true nor "1". `folder` bounds
    are a half-open range of paths in byte order: everything below the folder, at any depth.
    """

    equal: tuple[tuple[str, Scalar], ...] = ()
    folder: tuple[str, str] | None = None

    def __bool__(self) -> bool:
        return bool(self.equal) or self.folder is not None

    def accepts(self, row: Row) -> bool:
        """Whether all conditions hold for a row."""
        path, first, behind = row.path, *(self.folder or ("", ""))
        if self.folder and (path is None or not first <= path < behind):
            return False
        return all(
            name in row.metadata
            and row.metadata[name] == value
            and isinstance(row.metadata[name], bool) == isinstance(value, bool)
            for name, value in self.equal
        )


def make_filter(where: Mapping[str, Scalar] | None, folder: str | None) -> Filter:
    """The arguments `where` and `folder` of a search as a `Filter`."""
    equal = tuple((_check_name(name), _check_value(value)) for name, value in (where or {}).items())
    if folder is None:
        return Filter(equal)
    below = check_text(folder, "the folder to search in").rstrip("/")
    return Filter(equal, (below + "/", below + "0"))  # "0" follows "/" in byte order


def _check_name(name: str) -> str:
    if not isinstance(name, str) or not name or not name.isprintable() or set(name) & set('"\\'):
        raise InputError(
            f"a metadata name to filter by is printable text without quotes or backslashes, "
            f"not {name!r}"
        )
    return name


def _check_value(value: Scalar) -> Scalar:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(value, "a metadata value to filter by") if value else value
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, float) and value - value == 0:
        return value
    raise InputError(
        f"a metadata filter compares text, finite numbers or true and false, not {value!r}"
    )
