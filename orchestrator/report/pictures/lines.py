"""Lines over numbers, or points over names: a panel or two, a variant's mean with its lowest and highest seed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from orchestrator.report.pictures import style
from orchestrator.report.pictures.style import GREY, line_styles

_CHARACTERS, _KEY = 14, 8
"""Of a legend: characters to an inch, and as many as a line's sample is wide."""
_MOST_MARKED = 25
"""Places of a line that are each marked."""


@dataclass(frozen=True)
class Line:
    """Values at places along x, in ascending order: the mean over seeds, the lowest and the highest."""

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @classmethod
    def over_seeds(cls, name: str, x: Sequence[float], by_place: Collection[Collection[float]]) -> Line:
        """Of the seeds' values at each place."""
        return cls(name, x, [*map(fmean, by_place)], [*map(min, by_place)], [*map(max, by_place)])


@dataclass(frozen=True)
class LinePanel:
    """Lines over a number; `levels` are horizontal lines with their labels, `low` is the lower end of y if fixed.

    `ticks`, if there are any, name the places 0, 1, ... of x. With `log_x`, no number is below zero.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    low: float | None = None
    levels: Sequence[tuple[float, str]] = ()
    ticks: Sequence[str] = ()


def lines_figure(panels: Sequence[LinePanel], baseline: str) -> Figure:
    """The panels side by side, a colour for each name, one legend above."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    styles, others = line_styles(names, baseline if baseline in names else None), [n for n in names if n != baseline]
    width = 8.6 if len(panels) > 1 else 6.4
    shown = {name: style.one_line(name, 40) for name in names}
    columns = max(1, min(3, int(_CHARACTERS * width) // (_KEY + max(map(len, shown.values()), default=0))))
    figure = Figure(figsize=(width, 4.0 + 0.16 * (len(names) // columns)))
    keys: dict[str, Artist] = {}
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), 1 + place)
        for number, line in enumerate(panel.lines):
            colour, dash = styles[line.name]
            aside = (number - (len(panel.lines) - 1) / 2) * min(0.08, 0.6 / len(panel.lines)) if panel.ticks else 0.0
            x = [value + aside for value in line.x]
            mark = "o" if len(line.x) <= _MOST_MARKED else ""
            if panel.ticks and line.name in others:  # no dashes tell apart the colours that come again
                mark = style.SHAPES[others.index(line.name) // len(style.COLOURS) % len(style.SHAPES)]
            (key,) = axes.plot(
                x,
                line.mean,
                color=colour,
                linestyle="none" if panel.ticks else dash,
                marker=mark,
                markersize=3.5,
                label=shown[line.name],
            )
            keys.setdefault(line.name, key)
            if mark:
                axes.vlines(x, line.low, line.high, color=colour, linewidth=1.3)
            else:
                axes.fill_between(x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
        for level, label in panel.levels:
            axes.axhline(level, color=GREY, linewidth=1.0, linestyle="dotted")
            axes.annotate(label, (1.0, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
        axes.set_title(panel.title, loc="left", fontsize=9)
        _scale_x(axes, panel)
        axes.set_yscale("log" if panel.log_y else "linear")
        for axis in ([axes.xaxis] if panel.log_x else []) + ([axes.yaxis] if panel.log_y else []):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        if panel.low is not None:
            axes.set_ylim(bottom=panel.low)
        if panel.ticks:
            axes.set_xticks(range(len(panel.ticks)), panel.ticks)
        axes.grid(**style.GRID)
    if len(keys) > 1:
        figure.legend(handles=list(keys.values()), loc="outside upper center", ncols=columns)
    return figure


def _scale_x(axes: Axes, panel: LinePanel) -> None:
    """A log scale has no zero; where zero is among the numbers, the scale is linear up to the smallest other one."""
    places = sorted({x for line in panel.lines for x in line.x})
    if panel.log_x and places[0] == 0:
        axes.set_xscale("symlog", linthresh=places[1])
        axes.set_xlim(left=-places[1] / 4)  # by itself matplotlib would show numbers below zero
    elif panel.log_x:
        axes.set_xscale("log")
