"""What all figures share: colours, settings, names cut to size, panels, axes for perplexities and their changes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Any, Literal

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from orchestrator.analysis.effects import per_cent
from orchestrator.report.markdown import MOST_PANELS
from orchestrator.words import MINUS, counted

Style = dict[str, Any]
"""Arguments of matplotlib that say what a line or a marker looks like."""
Limits = tuple[float, float]
# Paul Tol's "muted" scheme: nine colours that differ with every common kind of colour blindness.
COLOURS = ("#CC6677", "#332288", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#DDCC77")
DASHES = ("solid", "dashed", "dotted", "dashdot")  # names that matplotlib and Bokeh share
SHAPES = "os^vDPX"
GREY = "#8c8c8c"
# Of a change in perplexity: rose and indigo differ in hue for every eye, and in lightness without colour.
HURTS, HELPS = COLOURS[:2]
PALE = 0.4
"""How opaque a bar is on whose sign the seeds disagree."""
GRID: Style = {"color": "#e3e3e3", "linewidth": 0.6}
_NEVER_OUTSIDE = 0.05
"""A change of at most this many nats is shown, however small the others are."""
_TALLEST = 10.0
"""Perplexities of more than this many times the lowest stand at the top: a few ruined ones would flatten the others."""
_NUMBER = (14, 9)
"""Width and height that a number takes, in points."""
ROUND_STEPS = (1, 2, 2.5, 5, 10)
_SETTINGS = {
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.hashsalt": "report",
    "text.parse_math": False,
}


@contextmanager
def report_style() -> Iterator[None]:
    """Matplotlib's defaults with the report's settings on top, whatever the user's own settings are."""
    with style.context(["default", _SETTINGS], after_reset=True), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; the page has the name as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def line_styles(variants: Iterable[str], baseline: str | None) -> dict[str, tuple[str, str]]:
    """Colour and dash by variant, for the plan's order: the baseline is black and solid, up to 36 others differ."""
    others = [name for name in variants if name != baseline]
    styles = {name: (COLOURS[k % len(COLOURS)], DASHES[k % len(DASHES)]) for k, name in enumerate(others)}
    return styles if baseline is None else {baseline: ("#000000", "solid")} | styles


def one_line(name: str, limit: int) -> str:
    """A name as one short line of literal text; matplotlib would hide a legend entry with a leading `_`."""
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(name.split()))
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    return "\u200b" + line if line.startswith("_") else line


def wrapped(name: str, width: int, most_lines: int) -> str:
    """A name as a few lines of literal text, cut with an ellipsis if it is longer."""
    line = one_line(name, most_lines * width)
    return "\n".join(wrap(line, width, break_on_hyphens=False, max_lines=most_lines, placeholder="…"))


def panel_grid(
    names: Sequence[str], keys: Sequence[Artist], height: float, labels: tuple[str, str]
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel of this height, in inches, for each of the first `MOST_PANELS` names.

    A legend stands above, the labels of x and y outside, with the number of names that have no panel.
    """
    left_out, names = len(names) - MOST_PANELS, names[:MOST_PANELS]
    columns = min(len(names), 3 if len(names) <= 12 else 4)
    rows = math.ceil(len(names) / columns)
    # A factorial's names are long, and if they were cut, two of them might look the same.
    titles = [wrapped(name, 19 if columns > 3 else 27, 5) for name in names]
    lines = max(title.count("\n") + 1 for title in titles)
    figure = Figure(figsize=(8.6 if columns > 2 else 5.8, rows * (height + 0.15 * lines) + 1.0))
    panels = [figure.add_subplot(rows, columns, 1 + k) for k in range(len(names))]
    for k, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        axes.set_title(title, loc="left", fontsize=8, fontweight="bold", pad=3)
        # If the last place of a column is empty, its numbers stand below the panel above.
        axes.tick_params(labelsize=7.5, labelleft=k % columns == 0, labelbottom=k + columns >= len(names))
    figure.legend(handles=keys, loc="outside upper center", ncols=6 if columns > 2 else 3)
    without = f"\n{counted(left_out, 'variant')} more without a panel" if left_out > 0 else ""
    figure.supxlabel(labels[0] + without, fontsize=9)
    figure.supylabel(labels[1], fontsize=8)
    return figure, panels


def bar_panel(axes: Axes, labels: Sequence[str]) -> None:
    """A place for a horizontal bar of each label, from above, with a line at zero."""
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(axis="x", **GRID)


def perplexity_axis(axes: Axes, values: Sequence[float]) -> float:
    """A log scale from the lowest to the highest, but far ones; returns the perplexity at which those stand."""
    low = min(values, default=1.0)
    top = min(max(values, default=2.0), _TALLEST * low)
    margin = max((top / low) ** 0.08, 1.01)
    axes.set(yscale="log", ylim=(low / margin, top * margin))
    log_ticks(axes.yaxis, (low / margin, top * margin))
    axes.grid(**GRID)
    return top


def any_scale(axes: Axes, axis: Axis, values: Sequence[float]) -> None:
    """A log scale if the values span more than a factor of five; numbers in thousands and millions."""
    low, high = min(values), max(values)
    if low > 0 and high > 5 * low:
        (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        log_ticks(axis, (low, high))
    else:
        axis.set_major_locator(MaxNLocator(6, steps=ROUND_STEPS))
    axis.set_major_formatter(EngFormatter(sep=""))


def log_ticks(axis: Axis, limits: Limits) -> None:
    """Round numbers on a log scale with these limits; matplotlib's own may be none within a factor of ten."""
    low, high = limits
    factors = (1, 2, 3, 5) if high < 30 * low else (1, 3) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ticks = [tick for power in powers for factor in factors if low <= (tick := factor * 10.0**power) <= high]
    axis.set_major_locator(
        MaxNLocator(6, steps=ROUND_STEPS) if high < 4 * low else FixedLocator(ticks[:: 1 + len(ticks) // 9])
    )
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,.10g}")


def change_range(values: Iterable[float], at_least: float = 0.01) -> Limits:
    """The range, nats, that an axis shows: `at_least` on both sides of 0, and all finite values but far outliers."""
    finite = np.array([value for value in values if math.isfinite(value)] or [0.0])
    sizes = np.abs(finite)
    far = max(_NEVER_OUTSIDE, at_least, min(10 * float(np.median(sizes)), 3 * float(np.quantile(sizes, 0.75))))
    far = 1.5 * float(np.max(sizes, where=sizes <= far, initial=0.0))  # what lies just beyond is worth its room
    near = finite[sizes <= max(far, at_least)]
    return min(float(near.min(initial=0.0)), -at_least), max(float(near.max(initial=0.0)), at_least)


def change_ticks(limits: Limits, most: int) -> list[float]:
    """Nats whose changes in per cent are round numbers: zero, and up to about `most` in all, none near another."""
    if limits[1] - limits[0] < 0.7:
        low, high = map(per_cent, limits)
        percents = MaxNLocator(nbins=most, steps=ROUND_STEPS).tick_values(low, high)
        return [math.log1p(value / 100) for value in percents if low <= value <= high]
    ticks, gap = [0.0], (limits[1] - limits[0]) / most
    ratios = [0.9, 0.8, 1.2, 1.5, *(digit * 10.0**power for power in range(-3, 10) for digit in (1, 2, 5))]
    for value in sorted(map(math.log, ratios), key=abs):
        if limits[0] <= value <= limits[1] and all(abs(value - tick) >= gap for tick in ticks):
            ticks.append(value)
    return sorted(ticks)


def show_change(axes: Axes, axis: Literal["x", "y"], limits: Limits, most_ticks: int = 7) -> None:
    """Per cent along an axis in nats, whose differences add; beyond the limits there is room for arrows."""

    def label(nats: float, _: object) -> str:
        value = round(per_cent(nats), 6) + 0.0
        return f"{value:+.0e}%" if value >= 5e4 else f"{value:+,.6g}%".replace("+0%", "0%").replace("-", MINUS)

    margin = 0.07 * (limits[1] - limits[0])
    axes.set(**{f"{axis}lim": (limits[0] - margin, limits[1] + margin)})
    ticks: Axis = getattr(axes, f"{axis}axis")
    ticks.set_major_locator(FixedLocator(change_ticks(limits, most_ticks)))
    ticks.set_major_formatter(FuncFormatter(label))


def marker(shape: str, size: float, face: str, edge: str = "black", width: float = 0.6) -> Style:
    """A marker without a line; sizes in points."""
    edges = {"markeredgecolor": edge, "markeredgewidth": width}
    return {"linestyle": "none", "marker": shape, "markersize": size, "markerfacecolor": face, **edges}


def number_places(axes: Axes, places: Mapping[int, tuple[float, float]], offset: tuple[float, float]) -> None:
    """Write its number beside each place, from the bottom up, raised above those that it would cover."""
    taken: list[tuple[float, float]] = []
    for number, place in sorted(places.items(), key=lambda each: each[1][1]):
        x, y = axes.transData.transform(place) * 72 / axes.figure.dpi
        raised = y
        while any(abs(x - other) < _NUMBER[0] and abs(raised - height) < _NUMBER[1] for other, height in taken):
            raised += 1
        taken.append((x, raised))
        outline = [withStroke(linewidth=1.5, foreground="white")]
        text: Style = {"textcoords": "offset points", "fontsize": 8, "zorder": 5, "path_effects": outline}
        axes.annotate(str(number), place, (offset[0], offset[1] + raised - y), **text)


def arrow_out(axes: Axes, x: float, y: float, limits: Limits, colour: str) -> None:
    """Draw an arrow to the edge if x lies beyond the limits."""
    if not limits[0] <= x <= limits[1] and not math.isnan(x):
        side = int(x > limits[1])
        draw_arrow(axes, (limits[side], y), (axes.get_xlim()[side], y), colour)


def draw_arrow(axes: Axes, tail: tuple[float, float], head: tuple[float, float], colour: str) -> None:
    """An open arrow: what it stands for lies further that way."""
    style = {"arrowstyle": "->", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", head, tail, arrowprops=style, zorder=4)
