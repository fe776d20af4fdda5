"""The forest plot: every variant's difference to the baseline, its interval and its verdict, one line each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from orchestrator.report.pictures.colours import COLOURS, GREY, HELPS, HURTS
from orchestrator.report.pictures.drawing import change
from orchestrator.report.pictures.drawing.look import (
    MOST_TOLD,
    legend_height,
    look,
    place,
    plain,
    save,
    width_of,
    wrapped,
)
from orchestrator.report.pictures.figures import ForestRow, in_order
from orchestrator.words import NOTHING, listed, rounded_by_interval

_DARK = "#555555"
_PALE = "#dcdcdc"
_NO_VERDICT = "no verdict"
# How a verdict begins: marker, fill, edge. The shapes alone tell them apart in grey.
_MARKS = {
    "hurts": (">", HURTS, "black"),
    "helps": ("<", HELPS, "black"),
    "no effect": ("s", COLOURS[5], "black"),
    "not decided": ("o", "white", _DARK),
    _NO_VERDICT: ("x", _DARK, _DARK),
}
_WIDTH = 7.4
_ABOVE = 0.42


def draw_forest(folder: Path, rows: Sequence[ForestRow], margin_nats: float, baseline: str, level: str) -> str | None:
    """Write `forest.svg`: a line a variant, the highest difference at the top.

    `level` is the intervals' confidence in words, `95%`. Returns a sentence on what lies outside the picture, None
    where all is inside.
    """
    ordered = in_order(rows)
    values = [value for row in ordered for value in (row.nats, row.low, row.high, row.published_nats)]
    shown = change.range_of([value for value in values if value is not None], at_least=1.6 * margin_nats)
    cut: list[str] = []
    with look():
        keys = _keys(ordered, margin_nats, level)
        below = 0.48 + legend_height(keys, 2)
        names = [wrapped(row.name, 30, 3) for row in ordered]
        row_height = 0.34 if max(name.count("\n") for name in names) < 2 else 0.46
        figure = Figure(figsize=(_WIDTH, row_height * len(ordered) + _ABOVE + below))
        axes = figure.add_subplot()
        sides = (width_of(names, 8.5), width_of(map(_figures, ordered), 8))
        place(figure, sides[0] + 0.16, sides[1] + 0.16, _ABOVE, below)
        _dress(axes, shown, ordered, names, margin_nats)
        for height, row in zip(range(len(ordered) - 1, -1, -1), ordered, strict=True):
            cut += _draw_row(axes, row, float(height), shown)
        axes.set_xlabel(
            f"← lower      change of test perplexity against {plain(baseline, 24)}      higher →", fontsize=9
        )
        figure.legend(handles=keys, loc="lower center", ncols=2, fontsize=8, handlelength=1.6, borderaxespad=0.2)
        save(figure, folder, "forest")
    return f"Arrows lead out of the picture: to {listed(cut)}." if cut else None


def _dress(
    axes: Axes, shown: tuple[float, float], rows: Sequence[ForestRow], names: Sequence[str], margin: float
) -> None:
    low, high = shown
    room = 0.07 * (high - low)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    change.dress(axes.xaxis, shown)
    heights = range(len(rows) - 1, -1, -1)
    axes.set_yticks(heights, names, fontsize=8.5)
    figures = axes.twinx()
    figures.set_ylim(axes.get_ylim())
    figures.set_yticks(heights, [_figures(row) for row in rows], fontsize=8, linespacing=1.1)
    for each in (axes, figures):
        each.tick_params(axis="y", length=0)
        each.spines[["left", "right", "top"]].set_visible(False)
    for height in heights[1::2]:
        axes.axhspan(height - 0.5, height + 0.5, color="#f5f5f5", linewidth=0, zorder=0)
    axes.axvspan(-margin, margin, color=_PALE, linewidth=0, zorder=0.5)
    axes.axvline(0, color="black", linewidth=0.8, zorder=1)
    nats = axes.secondary_xaxis("top")
    nats.xaxis.set_major_locator(MaxNLocator(nbins=5))
    nats.tick_params(labelsize=7, colors=GREY, length=2)
    nats.spines["top"].set_visible(False)
    nats.set_xlabel("nats per token", fontsize=7, color=GREY)


def _draw_row(axes: Axes, row: ForestRow, height: float, shown: tuple[float, float]) -> list[str]:
    """Draw one variant; returns what of it lies outside the picture, in words."""
    low_edge, high_edge = shown
    marker, face, edge = _MARKS[_kind(row.verdict)]
    colour = _DARK if _kind(row.verdict) in ("not decided", _NO_VERDICT) else face
    name = plain(row.name, MOST_TOLD)
    cut = []
    if row.published_nats is not None and math.isfinite(row.published_nats):
        published, height = height + 0.2, height - 0.12  # the two must not hide each other
        where = min(max(row.published_nats, low_edge), high_edge)
        axes.plot(where, published, zorder=5, **_diamond(row.recalled))  # type: ignore[arg-type]
        if row.recalled:
            axes.annotate("†", (where, published), (3.5, 1.5), textcoords="offset points", fontsize=7, color=_DARK)
        if where != row.published_nats:
            _arrow_out(axes, where, published, shown, GREY)
            cut.append(f"the published difference of {name} ({change.in_words(row.published_nats)})")
    if math.isnan(row.nats):
        return cut
    where = min(max(row.nats, low_edge), high_edge)
    out = where != row.nats
    if row.low is not None and row.high is not None and not math.isnan(row.low + row.high):
        ends = [min(max(end, low_edge), high_edge) for end in (row.low, row.high)]
        axes.plot(ends, [height] * 2, color=colour, linewidth=1.8, solid_capstyle="butt", zorder=3)
        for end, true in zip(ends, (row.low, row.high), strict=True):
            if end == true:
                axes.plot(end, height, marker="|", markersize=6, color=colour, markeredgewidth=1.4, zorder=3)
            else:
                _arrow_out(axes, end, height, shown, colour)
        if not out and ends != [row.low, row.high]:
            cut.append(f"the interval of {name}")
    if out:
        _arrow_out(axes, where, height, shown, colour)
        cut.append(f"{name} ({change.in_words(row.nats)})")
    shape = {"markersize": 6.5, "markerfacecolor": face, "markeredgecolor": edge}
    axes.plot(where, height, marker=marker, markeredgewidth=1.2 if edge == _DARK else 0.6, zorder=4, **shape)  # type: ignore[arg-type]
    return cut


def _arrow_out(axes: Axes, place: float, height: float, shown: tuple[float, float], colour: str) -> None:
    ends = axes.get_xlim()
    change.arrow(axes, (place, height), (ends[1] if place == shown[1] else ends[0], height), colour)


def _figures(row: ForestRow) -> str:
    """The difference, its interval and the verdict, in two lines."""
    verdict = plain(row.verdict, 30)
    if math.isnan(row.nats):
        return f"{NOTHING}\n{verdict}"
    if row.low is None or row.high is None:
        return f"{change.in_words(row.nats)}\n{verdict}"
    shown, low, high = rounded_by_interval(*map(change.per_cent, (row.nats, row.low, row.high)))
    return f"{shown}% [{low}, {high}]\n{verdict}"


def _kind(verdict: str) -> str:
    return next((kind for kind in _MARKS if verdict.startswith(kind)), _NO_VERDICT)


def _diamond(recalled: bool) -> dict[str, object]:
    edge = {"markeredgecolor": GREY if recalled else "black", "markeredgewidth": 0.7 if recalled else 1.1}
    return {"marker": "D", "markersize": 6, "markerfacecolor": "none", "linestyle": "none", **edge}


def _keys(rows: Sequence[ForestRow], margin: float, level: str) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    for kind, (marker, face, edge) in _MARKS.items():
        verdicts = [row.verdict for row in rows if _kind(row.verdict) == kind]
        if verdicts:
            shape = {"marker": marker, "markersize": 6.5, "markerfacecolor": face, "markeredgecolor": edge}
            label = plain(verdicts[0], 34) if kind == "no effect" else kind
            keys.append(Line2D([], [], linestyle="none", label=label, **shape))  # type: ignore[arg-type]
    if any(row.low is not None for row in rows):
        label = f"{level} interval" + ", all variants at once" * (len(rows) > 1)
        keys.append(Line2D([], [], color=_DARK, linewidth=1.8, label=label))
    keys.append(Patch(color=_PALE, label=f"no more than ±{change.per_cent(margin):.2g}%"))
    for recalled, label in ((False, "published difference"), (True, "published difference, from memory †")):
        if any(row.published_nats is not None and row.recalled == recalled for row in rows):
            keys.append(Line2D([], [], label=label, **_diamond(recalled)))  # type: ignore[arg-type]
    return keys
