"""How variants differ from the baseline: the forest plot, on rare or on common words, and along the test text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from orchestrator.report.pictures import figures
from orchestrator.report.pictures.curves import Limits
from orchestrator.report.pictures.drawing import style
from orchestrator.report.pictures.figures import COLOURS, GREY, HELPS, HURTS
from orchestrator.words import NOTHING, counted, listed, rounded_by_interval

_PALE = 0.4
_NEVER = "never"
_MEAN: style.Style = {"color": "#555555", "linestyle": "dashed", "linewidth": 1.2}
_DARK = "#555555"
_BAND = "#dcdcdc"
_NO_VERDICT = "no verdict"
# Keyed by how a verdict begins. The shapes alone tell them apart in grey.
MARKERS = {
    "raises": style.marker(">", 6.5, HURTS),
    "lowers": style.marker("<", 6.5, HELPS),
    "no effect": style.marker("s", 6.5, COLOURS[5]),
    "not decided": style.marker("o", 6.5, "white", _DARK, 1.2),
    _NO_VERDICT: style.marker("x", 6.5, _DARK, _DARK, 1.2),
}
_PUBLISHED = {False: style.marker("D", 6, "none", "black", 1.1), True: style.marker("D", 6, "none", GREY, 0.7)}
"""Keyed by whether the difference is quoted from memory."""


def forest_figure(forest: figures.Forest) -> tuple[Figure, str | None]:
    """One line per variant, the highest difference at the top; a sentence on what lies outside, None without one."""
    rows = figures.in_order(forest.rows)
    values = [value for row in rows for value in (row.nats, row.low, row.high, row.published_nats) if value is not None]
    limits = style.change_range(values, at_least=1.6 * forest.margin_nats)
    names = [style.wrapped(row.name, 30, 3) for row in rows]
    keys = _forest_keys(forest)
    line_height = 0.34 if max(name.count("\n") for name in names) < 2 else 0.46
    figure = Figure(figsize=(7.4, line_height * len(rows) + 0.16 * math.ceil(len(keys) / 2) + 1.0))
    axes = figure.add_subplot(ylim=(len(rows) - 0.4, -0.6))
    style.show_change(axes, "x", limits)
    axes.axvspan(-forest.margin_nats, forest.margin_nats, color=_BAND, linewidth=0, zorder=0.5)
    axes.axvline(0, color="black", linewidth=0.8, zorder=1)
    for y in range(1, len(rows), 2):
        axes.axhspan(y - 0.5, y + 0.5, color="#f5f5f5", linewidth=0, zorder=0)
    axes.set_yticks(range(len(rows)), names, fontsize=8.5)
    right = axes.twinx()
    right.set_ylim(axes.get_ylim())
    right.set_yticks(range(len(rows)), map(difference_in_words, rows), fontsize=8, linespacing=1.1)
    for side in (axes, right):
        side.tick_params(axis="y", length=0)
        side.spines["left"].set_visible(False)
    nats = axes.secondary_xaxis("top")
    nats.spines["top"].set_visible(False)
    nats.tick_params(labelsize=7, colors=GREY, length=2)
    nats.set_xlabel("nats per token", fontsize=7, color=GREY)
    outside = [text for y, row in enumerate(rows) for text in _draw_forest_row(axes, row, y, limits)]
    baseline = style.one_line(forest.baseline, 24)
    axes.set_xlabel(f"← lower      change of test perplexity against {baseline}      higher →", fontsize=9)
    figure.legend(handles=keys, loc="outside lower center", ncols=2, handlelength=1.6)
    return figure, f"Arrows lead out of the picture: to {listed(outside)}." if outside else None


def _draw_forest_row(axes: Axes, row: figures.ForestRow, y: float, limits: Limits) -> list[str]:
    """Draw one variant; returns a text for each part of it that lies outside the limits."""
    verdict = verdict_kind(row.verdict)
    colour = _DARK if verdict in ("not decided", _NO_VERDICT) else MARKERS[verdict]["markerfacecolor"]
    outside = []
    if row.published_nats is not None:
        x = np.clip(row.published_nats, *limits)
        axes.plot(x, y - 0.2, zorder=5, **_PUBLISHED[row.recalled])
        if style.arrow_out(axes, row.published_nats, y - 0.2, limits, GREY):
            outside.append(f"the published difference of {row.name} ({style.change_in_words(row.published_nats)})")
        y += 0.12  # the two must not hide each other
    if row.low is not None and row.high is not None:
        ends = np.clip([row.low, row.high], *limits)
        axes.plot(ends, [y, y], color=colour, linewidth=1.8, marker="|", markersize=6, markeredgewidth=1.4, zorder=3)
        ends_outside = [style.arrow_out(axes, end, y, limits, colour) for end in (row.low, row.high)]
        if any(ends_outside) and limits[0] <= row.nats <= limits[1]:
            outside.append(f"the interval of {row.name}")
    if style.arrow_out(axes, row.nats, y, limits, colour):
        outside.append(f"{row.name} ({style.change_in_words(row.nats)})")
    axes.plot(np.clip(row.nats, *limits), y, zorder=4, **MARKERS[verdict])
    return outside


def difference_in_words(row: figures.ForestRow) -> str:
    """The difference, its interval and the verdict, in two lines."""
    verdict = style.one_line(row.verdict, 30)
    if math.isnan(row.nats):
        return f"{NOTHING}\n{verdict}"
    if row.low is None or row.high is None:
        return f"{style.change_in_words(row.nats)}\n{verdict}"
    value, low, high = rounded_by_interval(*map(style.per_cent, (row.nats, row.low, row.high)))
    return f"{value}% [{low}, {high}]\n{verdict}"


def verdict_kind(verdict: str) -> str:
    """The key of `MARKERS` with which a verdict begins; anything else is no verdict."""
    return next((kind for kind in MARKERS if verdict.startswith(kind)), _NO_VERDICT)


def _forest_keys(forest: figures.Forest) -> list[Artist]:
    keys: list[Artist] = []
    for kind, shape in MARKERS.items():
        verdicts = [row.verdict for row in forest.rows if verdict_kind(row.verdict) == kind]
        if verdicts:
            label = style.one_line(verdicts[0], 34) if kind == "no effect" else kind
            keys.append(Line2D([], [], label=label, **shape))
    if any(row.low is not None for row in forest.rows):
        label = f"{forest.level} interval" + ", all that can get a verdict at once" * (len(forest.rows) > 1)
        keys.append(Line2D([], [], color=_DARK, linewidth=1.8, label=label))
    keys.append(Patch(color=_BAND, label=f"no more than ±{style.per_cent(forest.margin_nats):.2g}%"))
    for recalled, label in ((False, "published difference"), (True, "published difference, from memory")):
        if any(row.published_nats is not None and row.recalled == recalled for row in forest.rows):
            keys.append(Line2D([], [], label=label, **_PUBLISHED[recalled]))
    return keys


def frequency_figure(frequency: figures.Frequency) -> tuple[Figure, str | None]:
    """A panel for each variant, a bar for each class of words; sentences on what is not shown, None if all is."""
    rows = frequency.rows[: style.MOST_PANELS]
    limits = _limits(rows)
    labels = (
        f"← lower      change of test perplexity against {style.one_line(frequency.baseline, 24)}      higher →",
        "times in the training text\n(share of the test tokens)",
    )
    shares = ["<1%" if 0 < share < 0.005 else f"{share:.0%}" for share in frequency.shares]
    classes = [f"{label}  ({share})" for label, share in zip(frequency.labels, shares, strict=True)]
    names = [row.name for row in rows]
    figure, panels = style.panel_grid(names, _frequency_keys(rows), 0.3 + 0.15 * len(classes), labels)
    outside: list[str] = []
    for axes, row in zip(panels, rows, strict=True):
        axes.set_ylim(len(classes) - 0.4, -0.6)
        style.show_change(axes, "x", limits, 5)
        axes.set_yticks(range(len(classes)), classes)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.grid(axis="x", **style.GRID)
        beyond = [label for y, label in enumerate(frequency.labels) if _draw_bar(axes, row, y, limits)]
        if beyond:
            words = "all words" if len(beyond) == len(classes) else words_of(beyond)
            outside.append(f"{row.name} on {words}")
    return figure, _sentences(outside, len(frequency.rows))


def position_figure(position: figures.Position) -> tuple[Figure, str | None]:
    """A panel for each variant, a step for each piece of the test text; sentences as in `frequency_figure`."""
    rows = position.rows[: style.MOST_PANELS]
    limits = _limits(rows)
    change = f"change of test perplexity\nagainst {style.one_line(position.baseline, 24)}"
    labels = ("piece of the test text, from its beginning to its end", change)
    keys = [
        Line2D([], [], color=HELPS, linewidth=1.2, label="mean over seeds"),
        Patch(color=HELPS, alpha=0.2, linewidth=0, label="lowest to highest seed"),
        Line2D([], [], label="mean over pieces", **_MEAN),
    ]
    figure, panels = style.panel_grid([row.name for row in rows], keys, 1.2, labels)
    outside = []
    for axes, row in zip(panels, rows, strict=True):
        axes.set_xlim(0.5, len(row.nats) + 0.5)
        style.show_change(axes, "y", limits, 5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.grid(axis="y", **style.GRID)
        pieces = _draw_pieces(axes, row, limits)
        if pieces:
            outside.append(f"{counted(pieces, 'piece')} of {row.name}")
    return figure, _sentences(outside, len(position.rows))


def _limits(rows: Sequence[figures.DifferenceRow]) -> Limits:
    return style.change_range([value for row in rows for part in (row.nats, row.low, row.high) for value in part])


def _draw_bar(axes: Axes, row: figures.DifferenceRow, y: int, limits: Limits) -> bool:
    """Draw the bar of a class of words with the range of its seeds; whether it ends beyond the limits."""
    nats, low, high = row.nats[y], row.low[y], row.high[y]
    if math.isnan(nats):
        axes.text(0, y, f" {NOTHING}", fontsize=7, va="center", color=GREY)
        return False
    end = float(np.clip(nats, *limits))
    colour = HURTS if nats > 0 else HELPS
    axes.barh(y, end, height=0.72, color=colour, alpha=1.0 if low * high > 0 else _PALE, linewidth=0)
    outline = [withStroke(linewidth=2.2, foreground="white")]
    axes.plot(np.clip([low, high], *limits), [y, y], color="black", linewidth=1.0, path_effects=outline)
    return style.arrow_out(axes, nats, y, limits, colour)


def _draw_pieces(axes: Axes, row: figures.DifferenceRow, limits: Limits) -> int:
    """Draw a variant's steps, their band and their mean; the number of pieces that lie beyond the limits."""
    nats, low, high = (np.array(part, dtype=float) for part in (row.nats, row.low, row.high))
    edges = np.arange(len(nats) + 1) + 0.5
    axes.stairs(np.clip(high, *limits), edges, baseline=np.clip(low, *limits), fill=True, color=HELPS, alpha=0.2)
    axes.stairs(np.clip(nats, *limits), edges, baseline=None, color=HELPS, linewidth=1.2)
    if limits[0] <= nats.mean() <= limits[1]:
        axes.axhline(float(nats.mean()), **_MEAN)
    axes.axhline(0, color="black", linewidth=0.8)
    outside = np.flatnonzero((nats < limits[0]) | (nats > limits[1]))
    for k in outside[:: max(1, len(outside) // 4)]:
        style.draw_arrow(axes, (k + 1, np.clip(nats[k], *limits)), (k + 1, axes.get_ylim()[int(nats[k] > 0)]), HELPS)
    return len(outside)


def words_of(labels: Sequence[str]) -> str:
    """`words never seen and seen 1–9 times`."""
    seen = [label for label in labels if label != _NEVER]
    return f"words {listed(['never seen'] * (_NEVER in labels) + [f'seen {listed(seen)} times'] * bool(seen))}"


def _frequency_keys(rows: Sequence[figures.DifferenceRow]) -> list[Artist]:
    keys: list[Artist] = [Patch(color=HELPS, label="better"), Patch(color=HURTS, label="worse")]
    if all(math.isnan(value) for row in rows for value in row.low):
        return [*keys, Patch(facecolor=GREY, alpha=_PALE, linewidth=0, label="pale: one seed, noise unknown")]
    keys.append(Patch(facecolor=GREY, alpha=_PALE, linewidth=0, label="pale: seeds disagree on the sign"))
    return [*keys, Line2D([], [], color="black", linewidth=1.0, label="lowest to highest seed")]


def _sentences(outside: Sequence[str], variants: int) -> str | None:
    some = [*outside[:6], f"{len(outside) - 6} more"] if len(outside) > 7 else outside
    arrows = f"Arrows lead out of the picture: {listed(some)}." if outside else None
    return " ".join(filter(None, (arrows, style.note_without_panel(variants)))) or None
