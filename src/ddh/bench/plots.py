"""Figures of the benches, each as PNG and SVG, legible in print and on a phone.

The SVG has a transparent background and uses INK and FAINT for text and grid only, so that the
HTML report can replace them by the colours of a dark or a light page.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddh._core.errors import MissingDependency

INK = "#1b1f24"
FAINT = "#c9ced6"
# Okabe and Ito's colour-blind safe colours; the first is that of the paper's method.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00",
           "#56b4e9", "#8c6d31", "#7f7f7f", "#6a51a3", "#a6761d")  # fmt: skip
DASHES = ("-", "--", "-.", ":")
MANY = 10  # lines, whose names would cover them
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ddh",
    "font.size": 10,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "figure.facecolor": "white",
    "axes.facecolor": "none",
}


@contextmanager
def drawing(folder: Path, name: str, *, width: float = 4.8, height: float = 3.6) -> Iterator[Any]:
    """Axes to draw on, saved as name.png and name.svg at the end."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingDependency('figures need matplotlib: pip install "ddh[bench]"') from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure.subplots()
        figure.savefig(folder / f"{name}.png", dpi=160)
        # Without a date, equal figures give equal files.
        figure.savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})


def style(place: int, special: bool = False) -> dict[str, Any]:
    """Colour and dash of the line at a place; the special one stands out."""
    if special:
        return {"color": COLOURS[0], "linestyle": "-", "linewidth": 2.4, "zorder": 5}
    rest = COLOURS[1:]
    return {"color": rest[place % len(rest)], "linestyle": DASHES[place // len(rest) % 4]}


Series = Mapping[str, tuple[Any, Any]]  # label -> x, y


def series_of(points: Iterable[tuple[str, float, float]]) -> Series:
    """One line per label from points (label, x, y)."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    for label, x, y in points:
        line = series.setdefault(label, ([], []))
        line[0].append(x)
        line[1].append(y)
    return series


def plot_lines(
    folder: Path,
    name: str,
    title: str,
    series: Series,
    *,
    special: str = "DDH",
    marker: str = "",
    crosses: Series | None = None,
    ticks: Sequence[int] = (),
    legend: dict[str, Any] | None = None,
    **settings: Any,
) -> dict[str, str]:
    """One line per entry of `series`; `settings` are those of the axes."""
    many = len(series) > MANY
    with drawing(folder, name, width=6.6 if many else 4.8) as axes:
        for place, (label, (x, y)) in enumerate(series.items()):
            axes.plot(x, y, label=label, marker=marker, ms=4, **style(place, label == special))
        for label, (x, y) in (crosses or {}).items():
            axes.plot(x, y, "x", color=COLOURS[0], ms=7, label=label)
        axes.set(**settings)
        if ticks:
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
        if many:
            axes.figure.legend(loc="outside right center", labelspacing=0.25)
        else:
            axes.legend(**legend or {})
    return {"name": name, "title": title}
