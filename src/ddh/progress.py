"""Progress on a terminal: a bar with the time left, on standard error, never in `--json` output."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Turn all bars off or on again (the command line's `--quiet`)."""
    global _quiet
    _quiet = quiet


def _options(total: int | None, label: str, unit: str, show: bool | None) -> dict[str, Any]:
    visible = (not _quiet and sys.stderr.isatty()) if show is None else show
    return {
        "total": total,
        "desc": label,
        "unit": unit,
        "disable": not visible,
        "leave": False,
        "dynamic_ncols": True,
        "smoothing": 0.1,
    }


def track(
    items: Iterable[Item],
    label: str,
    *,
    total: int | None = None,
    unit: str = "it",
    show: bool | None = None,
) -> Iterator[Item]:
    """Walk through `items` and show a bar; `show=None` means: when somebody is watching."""
    return iter(tqdm(items, **_options(total, label, unit, show)))


@contextmanager
def bar(
    label: str, *, total: int | None, unit: str = "it", show: bool | None = None
) -> Iterator[tqdm]:
    """A bar to move by hand: `with bar("Encoding", total=n, unit="image") as b: b.update(32)`."""
    with tqdm(**_options(total, label, unit, show)) as progress:
        yield progress
