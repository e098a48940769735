"""Progress bars with the time left: on standard error, never in `--json` output.

A bar also reports what it counts to the running job, if there is one (`ddh._core.jobs`).
"""

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ddh._core.bars import Bar

Item = TypeVar("Item")

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Turn all bars off or on again (the command line's `--quiet`)."""
    global _quiet
    _quiet = quiet


def bar(label: str, *, total: int | None, unit: str = "it", show: bool | None = None) -> "Bar":
    """A bar to move by hand: `with bar("Encoding", total=n, unit="image") as b: b.update(32)`.

    `show=None` shows it when standard error is a terminal.
    """
    from ddh._core.bars import Bar

    visible = (not _quiet and sys.stderr.isatty()) if show is None else show
    return Bar(label, total, unit, visible)


def track(
    items: Iterable[Item],
    label: str,
    *,
    total: int | None = None,
    unit: str = "it",
    show: bool | None = None,
) -> Iterator[Item]:
    """Iterate over `items` with a bar."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(label, total=total, unit=unit, show=show) as progress:
        for item in items:
            yield item
            progress.update(1)
