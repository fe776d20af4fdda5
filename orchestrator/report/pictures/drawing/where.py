"""Where a variant differs from the baseline: on rare or on common words, and along the test text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from orchestrator.report.pictures.colours import GREY, HELPS, HURTS
from orchestrator.report.pictures.drawing import change
from orchestrator.report.pictures.drawing.grid import MOST_PANELS, columns, grid
from orchestrator.report.pictures.drawing.look import MOST_TOLD, look, plain, save
from orchestrator.report.pictures.drawing.series import Line
from orchestrator.report.pictures.figures import FrequencyRow, PositionRow
from orchestrator.words import NOTHING, counted, listed

_PALE = 0.4
_NEVER = "never"
_MEAN = Line("#555555", (0, (4, 2)), 1.2)
Shown = tuple[float, float]


def draw_frequency(
    folder: Path, rows: Sequence[FrequencyRow], labels: Sequence[str], shares: Sequence[float], baseline: str
) -> str | None:
    """Write `frequency.svg`: a panel a variant in the order given, a bar a class of words.

    `labels` name the classes, the rarest first, and `shares` are theirs of the test tokens. Returns a sentence on what
    lies outside the picture, None where all is inside.
    """
    drawn = rows[:MOST_PANELS]
    shown = _range(drawn)
    cut: list[str] = []
    with look():
        labels_of_axes = (
            f"← lower      change of test perplexity against {plain(baseline, 24)}      higher →",
            "times in the training text\n(share of the test tokens)",
        )
        keys = _frequency_keys(drawn)
        figure, panels = grid([row.name for row in drawn], keys, 0.3 + 0.15 * len(labels), 1.65, labels_of_axes)
        for axes, row in zip(panels, drawn, strict=True):
            bars = list(enumerate(zip(row.nats, row.low, row.high, strict=True)))
            out = [k for k, bar in bars if _draw_bar(axes, float(k), bar, shown)]
            if out:
                words = "all words" if len(out) == len(bars) else _words([labels[k] for k in out])
                cut.append(f"{plain(row.name, MOST_TOLD)} on {words}")
            axes.axvline(0, color="black", linewidth=0.8)
            axes.grid(axis="x", color="#e3e3e3", linewidth=0.6)
            _frame(axes, shown, 5 if columns(len(drawn)) < 4 else 4)
            if axes in panels[:: columns(len(drawn))]:  # the names beside other panels would not be seen
                axes.set_yticks(range(len(labels)), _class_names(labels, shares), fontsize=7.5)
            else:
                axes.set_yticks([])
            axes.set_ylim(len(labels) - 0.4, -0.6)
        save(figure, folder, "frequency")
    return _sentence(cut, len(rows) - len(drawn))


def draw_position(folder: Path, rows: Sequence[PositionRow], baseline: str) -> str | None:
    """Write `position.svg`: a panel a variant in the order given, a step a piece of the test text.

    Returns a sentence on what lies outside the picture, None where all is inside.
    """
    drawn = rows[:MOST_PANELS]
    shown = _range(drawn)
    cut: list[str] = []
    with look():
        change_label = f"change of test perplexity\nagainst {plain(baseline, 24)}"
        labels = ("piece of the test text, from its beginning to its end", change_label)
        figure, panels = grid([row.name for row in drawn], _position_keys(drawn), 1.2, 0.95, labels)
        for axes, row in zip(panels, drawn, strict=True):
            out = _draw_blocks(axes, row, shown)
            if out:
                cut.append(f"{counted(out, 'piece')} of {plain(row.name, MOST_TOLD)}")
            room = 0.07 * (shown[1] - shown[0])
            axes.set_ylim(shown[0] - room, shown[1] + room)
            change.dress(axes.yaxis, shown, 5)
            axes.tick_params(labelsize=8)
            axes.grid(axis="y", color="#e3e3e3", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        save(figure, folder, "position")
    return _sentence(cut, len(rows) - len(drawn))


def _range(rows: Sequence[FrequencyRow] | Sequence[PositionRow]) -> Shown:
    return change.range_of([value for row in rows for part in (row.nats, row.low, row.high) for value in part])


def _frame(axes: Axes, shown: Shown, most_ticks: int) -> None:
    room = 0.07 * (shown[1] - shown[0])
    axes.set_xlim(shown[0] - room, shown[1] + room)
    change.dress(axes.xaxis, shown, most_ticks)
    axes.tick_params(axis="x", labelsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_bar(axes: Axes, height: float, bar: tuple[float, float, float], shown: Shown) -> bool:
    """Draw a bar with the range of its seeds; whether its end lies outside the picture."""
    nats, low, high = bar
    if math.isnan(nats):
        axes.text(0, height, f" {NOTHING}", fontsize=7, va="center", color=GREY)
        return False
    inside = min(max(nats, shown[0]), shown[1])
    colour = HURTS if nats > 0 else HELPS
    pale = _PALE if not low * high > 0 else 1.0
    axes.barh(height, inside, height=0.72, color=colour, alpha=pale, linewidth=0)
    if not math.isnan(low + high):
        ends = [min(max(end, shown[0]), shown[1]) for end in (low, high)]
        seen = [withStroke(linewidth=2.2, foreground="white")]
        axes.plot(ends, [height, height], color="black", linewidth=1.0, solid_capstyle="butt", path_effects=seen)
    out = inside != nats
    if out:
        edge = _edge(inside, shown)
        change.arrow(axes, (inside, height), (edge, height), colour)
    return out


def _edge(place: float, shown: Shown) -> float:
    """Where an arrow out of the picture ends that starts at this side of the range shown."""
    room = 0.07 * (shown[1] - shown[0])
    return shown[1] + room if place > 0 else shown[0] - room


def _draw_blocks(axes: Axes, row: PositionRow, shown: Shown) -> int:
    """Draw the steps of one variant, their band and their mean; how many pieces lie outside the picture."""
    nats, low, high = (np.array(part, dtype=float) for part in (row.nats, row.low, row.high))
    blocks = np.arange(1, len(nats) + 1)
    inside = np.clip(nats, *shown)
    edges = np.arange(len(nats) + 1) + 0.5
    axes.stairs(np.clip(high, *shown), edges, baseline=np.clip(low, *shown), fill=True, color=HELPS, alpha=0.2)
    axes.stairs(inside, edges, baseline=None, color=HELPS, linewidth=1.2)
    axes.set_xlim(0.5, len(nats) + 0.5)
    finite = nats[np.isfinite(nats)]
    if len(finite) and shown[0] <= (mean := float(finite.mean())) <= shown[1]:
        axes.axhline(mean, color=_MEAN.colour, linestyle=_MEAN.dash, linewidth=_MEAN.width)
    axes.axhline(0, color="black", linewidth=0.8)
    outside = np.flatnonzero((nats < shown[0]) | (nats > shown[1]))
    for k in outside[:: max(1, len(outside) // 4)]:
        change.arrow(axes, (blocks[k], inside[k]), (blocks[k], _edge(inside[k], shown)), HELPS)
    return len(outside)


def _words(labels: Sequence[str]) -> str:
    """`words never seen and seen 1–9 times`."""
    seen = [label for label in labels if label != _NEVER]
    told = ["never seen"] * (_NEVER in labels) + [f"seen {listed(seen)} times"] * bool(seen)
    return f"words {listed(told)}"


def _class_names(labels: Sequence[str], shares: Sequence[float]) -> list[str]:
    return [f"{plain(label, 16)}  ({_share(share)})" for label, share in zip(labels, shares, strict=True)]


def _share(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{100 * share:.0f}%"


def _frequency_keys(rows: Sequence[FrequencyRow]) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = [Patch(color=HELPS, label="better"), Patch(color=HURTS, label="worse")]
    several = any(not math.isnan(value) for row in rows for value in row.low)
    sure = "pale: seeds disagree on the sign" if several else "pale: one seed, noise unknown"
    keys.append(Patch(facecolor=GREY, alpha=_PALE, linewidth=0, label=sure))
    if several:
        keys.append(Line2D([], [], color="black", linewidth=1.0, label="lowest to highest seed"))
    return keys


def _position_keys(rows: Sequence[PositionRow]) -> list[Line2D | Patch]:
    mean = Line2D([], [], color=_MEAN.colour, linewidth=_MEAN.width, label="mean over pieces")
    mean.set_linestyle(_MEAN.dash)  # type: ignore[arg-type]
    keys: list[Line2D | Patch] = [Line2D([], [], color=HELPS, linewidth=1.2, label="mean over seeds"), mean]
    if any(not math.isnan(value) for row in rows for value in row.low):
        keys.insert(1, Patch(color=HELPS, alpha=0.2, linewidth=0, label="lowest to highest seed"))
    return keys


def _sentence(cut: Sequence[str], rest: int) -> str | None:
    sentences = []
    if cut:
        named = listed([*cut[:6], f"{len(cut) - 6} more"] if len(cut) > 7 else cut)
        sentences.append(f"Arrows lead out of the picture: {named}.")
    if rest:
        sentences.append(f"A picture has {MOST_PANELS} panels at most: {counted(rest, 'variant')} more without one.")
    return " ".join(sentences) or None
