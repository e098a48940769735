"""The progress bar of `ddh._core.progress`, apart from it because importing tqdm takes time."""

from contextlib import suppress
from typing import Any

from tqdm import tqdm

from ddh._core import jobs


class Bar(tqdm):  # type: ignore[misc]
    """A bar that also reports to the running job."""

    def __init__(self, label: str, total: int | None, unit: str, visible: bool) -> None:
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
