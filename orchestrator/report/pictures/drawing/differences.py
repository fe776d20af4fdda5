"""Where a variant differs from the baseline: on rare or on common words, and along the test text."""

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

from orchestrator.report.pictures.curves import Limits
from orchestrator.report.pictures.drawing import style
from orchestrator.report.pictures.figures import GREY, HELPS, HURTS, DifferenceRow, Frequency, Position
from orchestrator.words import NOTHING, counted, listed

_PALE = 0.4
_NEVER = "never"
_MEAN: style.Style = {"color": "#555555", "linestyle": "dashed", "linewidth": 1.2}


def frequency_figure(frequency: Frequency) -> tuple[Figure, str | None]:
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


def position_figure(position: Position) -> tuple[Figure, str | None]:
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


def _limits(rows: Sequence[DifferenceRow]) -> Limits:
    return style.change_range([value for row in rows for part in (row.nats, row.low, row.high) for value in part])


def _draw_bar(axes: Axes, row: DifferenceRow, y: int, limits: Limits) -> bool:
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


def _draw_pieces(axes: Axes, row: DifferenceRow, limits: Limits) -> int:
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


def _frequency_keys(rows: Sequence[DifferenceRow]) -> list[Artist]:
    keys: list[Artist] = [Patch(color=HELPS, label="better"), Patch(color=HURTS, label="worse")]
    if all(math.isnan(value) for row in rows for value in row.low):
        return [*keys, Patch(facecolor=GREY, alpha=_PALE, linewidth=0, label="pale: one seed, noise unknown")]
    keys.append(Patch(facecolor=GREY, alpha=_PALE, linewidth=0, label="pale: seeds disagree on the sign"))
    return [*keys, Line2D([], [], color="black", linewidth=1.0, label="lowest to highest seed")]


def _sentences(outside: Sequence[str], variants: int) -> str | None:
    some = [*outside[:6], f"{len(outside) - 6} more"] if len(outside) > 7 else outside
    arrows = f"Arrows lead out of the picture: {listed(some)}." if outside else None
    return " ".join(filter(None, (arrows, style.note_without_panel(variants)))) or None
