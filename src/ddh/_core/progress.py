"""Progress on a terminal: a bar with the time left, on standard error, never in `--json` output.

What a bar counts is also told to the job that runs, where one does (`ddh._core.jobs`).
"""

import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tqdm import tqdm

from ddh._core import jobs

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


class Bar(tqdm):
    """A bar that tells its job what it counts, also when nobody is watching."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stage = jobs.stage(options["desc"], options["total"], options["unit"])

    def update(self, n: float | None = 1) -> bool | None:
        if self._stage is not None:
            self._stage.advance(int(n or 0))
        return super().update(n)

    def expect(self, total: int) -> None:
        """Tell the total, where it becomes known on the way."""
        self.total = total
        if self._stage is not None:
            self._stage.total = total

    def set_postfix(self, *args: Any, **values: Any) -> None:
        """Figures beside the bar; measures, unlike whole counts, are curves of the job."""
        for name, value in values.items():
            with suppress(TypeError, ValueError):
                if self._stage is not None and not isinstance(value, int):
                    self._stage.point(name, float(value))
        super().set_postfix(*args, **values)


def track(
    items: Iterable[Item],
    label: str,
    *,
    total: int | None = None,
    unit: str = "it",
    show: bool | None = None,
) -> Iterator[Item]:
    """Walk through `items` and show a bar; `show=None` means: when somebody is watching."""
    with bar(label, total=_length(items) if total is None else total, unit=unit, show=show) as walk:
        for item in items:
            yield item
            walk.update(1)


def _length(items: Iterable[Any]) -> int | None:
    return len(items) if isinstance(items, Sized) else None


@contextmanager
def bar(
    label: str, *, total: int | None, unit: str = "it", show: bool | None = None
) -> Iterator[Bar]:
    """A bar to move by hand: `with bar("Encoding", total=n, unit="image") as b: b.update(32)`."""
    with Bar(**_options(total, label, unit, show)) as progress:
        yield progress
