"""Progress bars with the time left: on standard error, never in `--json` output.

A bar also reports what it counts to the running job, if there is one (`ddh._core.jobs`).
"""

import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from typing import Any, TypeVar

from tqdm import tqdm

from ddh._core import jobs

Item = TypeVar("Item")

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Turn all bars off or on again (the command line's `--quiet`)."""
    global _quiet
    _quiet = quiet


class Bar(tqdm):  # type: ignore[misc]
    """A bar to move by hand: `with bar("Encoding", total=n, unit="image") as b: b.update(32)`.

    `show=None` shows it when standard error is a terminal.
    """

    def __init__(
        self, label: str, *, total: int | None, unit: str = "it", show: bool | None = None
    ) -> None:
        visible = (not _quiet and sys.stderr.isatty()) if show is None else show
        super().__init__(
            total=total, desc=label, unit=unit, disable=not visible, leave=False,
            dynamic_ncols=True, smoothing=0.1,
        )  # fmt: skip
        self._stage = jobs.stage(label, total, unit)

    def update(self, n: float | None = 1) -> bool | None:
        if self._stage is not None:
            self._stage.advance(int(n or 0))
        shown: bool | None = super().update(n)
        return shown

    def expect(self, total: int) -> None:
        """Set the total once it is known."""
        self.total = total
        if self._stage is not None:
            self._stage.total = total

    def set_postfix(self, *args: Any, **values: Any) -> None:
        """Figures beside the bar; those that are not whole numbers become curves of the job."""
        for name, value in values.items():
            with suppress(TypeError, ValueError):
                if self._stage is not None and not isinstance(value, int):
                    self._stage.point(name, float(value))
        super().set_postfix(*args, **values)


bar = Bar


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
