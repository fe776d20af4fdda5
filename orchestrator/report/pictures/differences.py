"""How variants differ from the baseline: the forest plot, on rare words, along the test text, on single words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from orchestrator.analysis.effects import per_cent
from orchestrator.report.pictures import style
from orchestrator.report.pictures.style import COLOURS, GREY, HELPS, HURTS, PALE, Limits
from orchestrator.words import NOTHING, rounded_by_interval, signed

_MEAN: style.Style = {"color": "#555555", "linestyle": "dashed", "linewidth": 1.2}
_DARK = "#555555"
_BAND = "#dcdcdc"
_NO_VERDICT = "no verdict"
_FEW_TOKENS = 0.02
"""A class with a smaller share of the test tokens may lie beyond the range of the picture."""
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
_DISAGREE = Patch(facecolor=GREY, alpha=PALE, linewidth=0, label="pale: seeds disagree on the sign")


@dataclass(frozen=True)
class ForestRow:
    """A variant's difference to the baseline, nats per token, with a simultaneous interval if there is one.

    `verdict` is as the page says it; `published_nats` is None if the papers give none, `recalled` if it is from memory.
    """

    name: str
    nats: float
    low: float | None
    high: float | None
    verdict: str
    published_nats: float | None
    recalled: bool


@dataclass(frozen=True)
class DifferenceRow:
    """A variant's differences to the baseline, nats per token, by part of the text, and its lowest and highest seed."""

    name: str
    nats: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class WordBar:
    """A word, what is saved on it, nats, summed over its occurrences, and whether all seeds agree on the sign."""

    text: str
    nats: float
    certain: bool


def in_order(rows: Sequence[ForestRow]) -> list[ForestRow]:
    """From the highest difference to the lowest; rows without a difference last."""
    return sorted(rows, key=lambda row: (math.inf if math.isnan(row.nats) else -row.nats, row.name))


def forest(rows: Sequence[ForestRow], margin_nats: float, baseline: str, level: str) -> Figure:
    """One line per variant, from above; `level` is the intervals' confidence in words, `simultaneous 95%`."""
    values = [value for row in rows for value in (row.nats, row.low, row.high, row.published_nats) if value is not None]
    limits = style.change_range(values, at_least=1.6 * margin_nats)
    names = [style.wrapped(row.name, 30, 3) for row in rows]
    keys = _forest_keys(rows, margin_nats, level)
    line_height = 0.34 if max(name.count("\n") for name in names) < 2 else 0.46
    figure = Figure(figsize=(7.4, line_height * len(rows) + 0.16 * math.ceil(len(keys) / 2) + 1.0))
    axes = figure.add_subplot(ylim=(len(rows) - 0.4, -0.6))
    style.show_change(axes, "x", limits)
    axes.axvspan(-margin_nats, margin_nats, color=_BAND, linewidth=0, zorder=0.5)
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
    for y, row in enumerate(rows):
        _draw_forest_row(axes, row, y, limits)
    axes.set_xlabel(_change_label(baseline), fontsize=9)
    figure.legend(handles=keys, loc="outside lower center", ncols=2, handlelength=1.6)
    return figure


def _draw_forest_row(axes: Axes, row: ForestRow, y: float, limits: Limits) -> None:
    """Draw one variant; what lies beyond the limits stands at them, with an arrow."""
    verdict = verdict_kind(row.verdict)
    colour = _DARK if verdict in ("not decided", _NO_VERDICT) else MARKERS[verdict]["markerfacecolor"]
    if row.published_nats is not None:
        axes.plot(np.clip(row.published_nats, *limits), y - 0.2, zorder=5, **_PUBLISHED[row.recalled])
        style.arrow_out(axes, row.published_nats, y - 0.2, limits, GREY)
        y += 0.12  # the two must not hide each other
    ends = [row.nats]
    if row.low is not None and row.high is not None:
        ends = [row.low, row.high, row.nats]
        shown = np.clip([row.low, row.high], *limits)
        axes.plot(shown, [y, y], color=colour, linewidth=1.8, marker="|", markersize=6, markeredgewidth=1.4, zorder=3)
    for end in ends:
        style.arrow_out(axes, end, y, limits, colour)
    axes.plot(np.clip(row.nats, *limits), y, zorder=4, **MARKERS[verdict])


def difference_in_words(row: ForestRow) -> str:
    """The difference, its interval and the verdict, in two lines."""
    verdict = style.one_line(row.verdict, 30)
    if math.isnan(row.nats):
        return f"{NOTHING}\n{verdict}"
    if row.low is None or row.high is None:
        return f"{signed(per_cent(row.nats), 1)}%\n{verdict}"
    value, low, high = rounded_by_interval(*map(per_cent, (row.nats, row.low, row.high)))
    ends = f"[{low}, {high}]".replace("above ", ">").replace("below ", "<")
    return f"{value}% {ends}\n{verdict}"


def verdict_kind(verdict: str) -> str:
    """The key of `MARKERS` with which a verdict begins; anything else is no verdict."""
    return next((kind for kind in MARKERS if verdict.startswith(kind)), _NO_VERDICT)


def _forest_keys(rows: Sequence[ForestRow], margin_nats: float, level: str) -> list[Artist]:
    keys: list[Artist] = []
    for kind, shape in MARKERS.items():
        if verdicts := [row.verdict for row in rows if verdict_kind(row.verdict) == kind]:
            label = style.one_line(verdicts[0], 34) if kind == "no effect" else kind
            keys.append(Line2D([], [], label=label, **shape))
    if any(row.low is not None for row in rows):
        keys.append(Line2D([], [], color=_DARK, linewidth=1.8, label=f"{level} interval"))
    keys.append(Patch(color=_BAND, label=f"no more than ±{per_cent(margin_nats):.2g}%"))
    for recalled, label in ((False, "published difference"), (True, "published difference, from memory")):
        if any(row.published_nats is not None and row.recalled == recalled for row in rows):
            keys.append(Line2D([], [], label=label, **_PUBLISHED[recalled]))
    return keys


def frequency(rows: Sequence[DifferenceRow], labels: Sequence[str], shares: Sequence[float], baseline: str) -> Figure:
    """By how often training has the word: classes, the rarest first, with their shares of the tokens; a panel each.

    A class with few tokens does not set the range: its arrow leads out.
    """
    frequent = [k for k, share in enumerate(shares) if share >= _FEW_TOKENS] or [*range(len(shares))]
    limits = style.change_range(part[k] for row in rows for part in (row.nats, row.low, row.high) for k in frequent)
    texts = ["<1%" if 0 < share < 0.005 else f"{share:.0%}" for share in shares]
    classes = [f"{label}  ({share})" for label, share in zip(labels, texts, strict=True)]
    keys: list[Artist] = [Patch(color=HELPS, label="better"), Patch(color=HURTS, label="worse")]
    if all(math.isnan(value) for row in rows for value in row.low):
        keys.append(Patch(facecolor=GREY, alpha=PALE, linewidth=0, label="pale: one seed, noise unknown"))
    else:
        keys += [_DISAGREE, Line2D([], [], color="black", linewidth=1.0, label="lowest to highest seed")]
    across = _change_label(baseline), "times in the training text\n(share of the test tokens)"
    figure, panels = style.panel_grid([row.name for row in rows], keys, 0.3 + 0.15 * len(classes), across)
    outline = [withStroke(linewidth=2.2, foreground="white")]
    for axes, row in zip(panels, rows, strict=False):
        style.show_change(axes, "x", limits, 5)
        style.bar_panel(axes, classes)
        for y, (nats, low, high) in enumerate(zip(row.nats, row.low, row.high, strict=True)):
            colour, alpha = HURTS if nats > 0 else HELPS, 1.0 if low * high > 0 else PALE
            axes.barh(y, np.clip(nats, *limits), height=0.72, color=colour, alpha=alpha, linewidth=0)
            axes.plot(np.clip([low, high], *limits), [y, y], color="black", linewidth=1.0, path_effects=outline)
            style.arrow_out(axes, nats, y, limits, colour)
    return figure


def position(rows: Sequence[DifferenceRow], baseline: str) -> Figure:
    """In consecutive pieces of the test text: a panel for each variant, a step for each piece."""
    limits = style.change_range(nats for row in rows for part in (row.nats, row.low, row.high) for nats in part)
    change = f"change of test perplexity\nagainst {style.one_line(baseline, 24)}"
    keys = [
        Line2D([], [], color=HELPS, linewidth=1.2, label="mean over seeds"),
        Patch(color=HELPS, alpha=0.2, linewidth=0, label="lowest to highest seed"),
        Line2D([], [], label="mean over pieces", **_MEAN),
    ]
    labels = ("piece of the test text, from its beginning to its end", change)
    figure, panels = style.panel_grid([row.name for row in rows], keys, 1.2, labels)
    for axes, row in zip(panels, rows, strict=False):
        axes.set_xlim(0.5, len(row.nats) + 0.5)
        style.show_change(axes, "y", limits, 5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.grid(axis="y", **style.GRID)
        nats, low, high = np.clip([row.nats, row.low, row.high], *limits)
        edges = np.arange(len(nats) + 1) + 0.5
        axes.stairs(high, edges, baseline=low, fill=True, color=HELPS, alpha=0.2)
        axes.stairs(nats, edges, baseline=None, color=HELPS, linewidth=1.2)
        if limits[0] <= np.mean(row.nats) <= limits[1]:
            axes.axhline(float(np.mean(row.nats)), **_MEAN)
        axes.axhline(0, color="black", linewidth=0.8)
        for k in map(int, np.flatnonzero(np.abs(nats - row.nats) > 0)):
            style.draw_arrow(axes, (k + 1, nats[k]), (k + 1, axes.get_ylim()[int(nats[k] > 0)]), HELPS)
    return figure


def words(panels: Mapping[str, Sequence[WordBar]]) -> Figure:
    """Words on which most is saved and lost, a panel for each title, the largest gain at the top."""
    keys: list[Artist] = [Patch(color=HELPS, label="gained"), Patch(color=HURTS, label="lost")]
    if not all(bar.certain for bars in panels.values() for bar in bars):
        keys.append(_DISAGREE)
    height = 0.3 + 0.15 * max(map(len, panels.values()))
    figure, grid = style.panel_grid([*panels], keys, height, ("nats saved on all occurrences of the word", ""))
    for axes, bars in zip(grid, panels.values(), strict=False):
        style.bar_panel(axes, [style.one_line(bar.text, 24) for bar in bars])
        axes.tick_params(labelleft=True, labelbottom=True)
        for y, bar in enumerate(bars):
            colour, alpha = HELPS if bar.nats > 0 else HURTS, 1.0 if bar.certain else PALE
            axes.barh(y, bar.nats, height=0.72, color=colour, alpha=alpha, linewidth=0)
    return figure


def _change_label(baseline: str) -> str:
    return f"← lower      change of test perplexity against {style.one_line(baseline, 24)}      higher →"
