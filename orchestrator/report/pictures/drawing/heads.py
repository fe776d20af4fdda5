"""Heads beside each other: test perplexity against what a decoder weighs and what its training takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from orchestrator.report.pictures.colours import COLOURS, GREY
from orchestrator.report.pictures.drawing.labels import label_points
from orchestrator.report.pictures.drawing.look import figure_of, look, plain, save, ticks
from orchestrator.report.pictures.figures import HeadPoint, Reach
from orchestrator.words import listed

MOST_NAMED = 7
"""More variants than this are numbered, and named in the legend."""
# A shape and a colour for each kind of head, the same in every report; the shapes alone tell them apart in grey.
MARKERS = {
    "softmax": ("o", COLOURS[1]),
    "mixture": ("s", COLOURS[0]),
    "adaptive": ("^", COLOURS[2]),
    "hierarchical": ("v", COLOURS[5]),
    "differentiated": ("D", COLOURS[6]),
    "sampled": ("P", COLOURS[7]),
    "ecoc": ("X", COLOURS[4]),
}
_DECADE = 10.0
_TALLEST = 8.0
"""So many times the lowest perplexity is shown; what lies above stands at the top, unless that is much."""
_RING = {"marker": "o", "markersize": 12, "markerfacecolor": "none", "markeredgecolor": "black", "linestyle": "none"}


def draw_heads(folder: Path, rows: Sequence[HeadPoint], baseline: str) -> str | None:
    """Write `heads.svg`: two panels, a point a variant, a bar from its lowest seed to its highest.

    Returns a sentence on the variants that lie above the picture, None where there are none.
    """
    ranked = sorted(rows, key=lambda row: row.test_perplexity.mean)
    numbered = len(ranked) > MOST_NAMED
    labels = [str(rank) if numbered else plain(row.name, 30) for rank, row in enumerate(ranked, 1)]
    heights = _heights(ranked)
    above = [row for row, height in zip(ranked, heights, strict=True) if height.mean < row.test_perplexity.mean]
    with look():
        figure = Figure(figsize=(10.4 if numbered else 9.6, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        parameters = [Reach(*3 * (float(row.decoder_parameters),)) for row in ranked]
        for axes, places in ((left, parameters), (right, [row.train_seconds for row in ranked])):
            for row, place, height in zip(ranked, places, heights, strict=True):
                _draw_point(axes, row, place, height, baseline)
            _dress_across(axes, places)
        _dress_up(left, heights, heights[-1].mean if above else None)
        left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        left.set_xlabel("parameters of the decoder itself")
        right.set_xlabel("seconds of training")
        left.set_ylabel("test perplexity (log scale)")
        figure.legend(handles=_keys(ranked, labels if numbered else None, baseline), loc="outside right upper")
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # labels stand around points that must no longer move
        label_points(left, labels, list(zip(parameters, heights, strict=True)))
        label_points(right, labels, [(row.train_seconds, height) for row, height in zip(ranked, heights, strict=True)])
        save(figure, folder, "heads")
    names = listed([f"{row.name} ({figure_of(row.test_perplexity.mean)})" for row in above])
    return f"Above the top of the picture, where arrows point: {names}." if above else None


def _heights(rows: Sequence[HeadPoint]) -> list[Reach]:
    """Where the rows stand: at their perplexity, but a few that lie far above the others at the top, below an arrow."""
    highest = _TALLEST * min(row.test_perplexity.mean for row in rows)
    inside = [row.test_perplexity for row in rows if row.test_perplexity.mean <= highest]
    if len(inside) < 2 / 3 * len(rows):
        return [row.test_perplexity for row in rows]
    top = max(reach.high for reach in inside)
    gap = max(top / min(reach.low for reach in inside), 1.1) ** 0.1
    edge = Reach(top * gap, top * gap, top * gap**2)
    return [row.test_perplexity if row.test_perplexity.mean <= highest else edge for row in rows]


def _draw_point(axes: Axes, row: HeadPoint, place: Reach, here: Reach, baseline: str) -> None:
    marker, colour = MARKERS[row.kind]
    bar = {"color": colour, "linewidth": 1.3, "solid_capstyle": "butt", "zorder": 2}
    axes.plot([place.mean, place.mean], [here.low, here.high], **bar)  # type: ignore[arg-type]
    axes.plot([place.low, place.high], [here.mean, here.mean], **bar)  # type: ignore[arg-type]
    cut = here.mean < row.test_perplexity.mean
    if row.name == baseline:
        axes.plot(place.mean, here.mean, **_RING)  # type: ignore[arg-type]
        if not cut:
            axes.axhline(here.mean, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.plot(place.mean, here.mean, **_shape(marker, colour), zorder=3)  # type: ignore[arg-type]
    if cut:
        arrow = {"arrowstyle": "->", "color": colour, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (place.mean, here.high), (place.mean, here.mean), arrowprops=arrow)


def _shape(marker: str, colour: str) -> dict[str, object]:
    edge = {"markeredgecolor": "black", "markeredgewidth": 0.6}
    return {"marker": marker, "markersize": 7.5, "markerfacecolor": colour, "linestyle": "none", **edge}


def _keys(rows: Sequence[HeadPoint], labels: Sequence[str] | None, baseline: str) -> list[Line2D]:
    """The legend: numbers with their names, or the kinds of head; and how the baseline is marked."""
    keys = [
        Line2D([], [], label=f"baseline: {plain(row.name, 24)}", **_RING)  # type: ignore[arg-type]
        for row in rows
        if row.name == baseline
    ]
    if labels is None:
        kinds = [kind for kind in MARKERS if any(row.kind == kind for row in rows)]
        named = [(kind, kind) for kind in kinds if len(kinds) > 1]
    else:
        named = [(row.kind, f"{label}  {plain(row.name, 30)}") for row, label in zip(rows, labels, strict=True)]
    return keys + [Line2D([], [], label=label, **_shape(*MARKERS[kind])) for kind, label in named]  # type: ignore[arg-type]


def _dress_across(axes: Axes, places: Sequence[Reach]) -> None:
    """The horizontal scale: a logarithm where it spans more than a decade, with room for a decoder of nothing."""
    low, high = min(place.low for place in places), max(place.high for place in places)
    least = min((place.low for place in places if place.low > 0), default=1.0)
    if high > _DECADE * least:
        if low > 0:
            axes.set_xlim(least / (high / least) ** 0.12, high * (high / least) ** 0.12)
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=least, linscale=0.5)
            axes.set_xlim(-0.3 * least, high * (high / least) ** 0.12)
        marks = ticks(least / 2, high * 2)
        axes.xaxis.set_major_locator(FixedLocator(marks if low > 0 else [0.0, *marks]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.15 * (high - low) or 0.1 * high or 1.0
        axes.set_xlim(low - margin, high + margin)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _dress_up(axes: Axes, heights: Sequence[Reach], edge: float | None) -> None:
    low, high = min(height.low for height in heights), max(height.high for height in heights)
    margin = min(max((high / low) ** 0.1, 1.01), 10.0)
    axes.set_ylim(low / margin, high * margin)
    axes.set_yscale("log")
    # No number stands above what is cut off, which is higher in truth.
    axes.yaxis.set_major_locator(FixedLocator(ticks(low / margin, high * margin if edge is None else edge)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _short(value: float) -> str:
    """A count as an axis shows it: 250, 20K, 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
