"""Learning curves that can be hovered; the only module of the project that talks to Bokeh.

Bokeh rather than Plotly: its script is 1.3 MB a page instead of 4.8 MB (Bokeh 3.9, Plotly 7.1), and both are well kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
from bokeh.core.properties import field
from bokeh.embed import json_item
from bokeh.models import CDSView, ColumnDataSource, HoverTool, IndexFilter, MultiLine, NumeralTickFormatter, Range1d
from bokeh.plotting import figure
from bokeh.resources import Resources
from numpy.typing import NDArray

from orchestrator.analysis.curve import curve_of
from orchestrator.analysis.outcomes import Outcome, is_adaptive
from orchestrator.report.pictures.colours import DASHES, GREY, MOST_APART, looks
from orchestrator.words import counted

MOST_TRIALS = 120
"""Of more trials only their variants' means are drawn."""
MOST_POINTS = 60_000
"""Of more points only every second, third, ... epoch of a line is drawn, and its last."""
_BORDERS = {"solid": "solid", "dashed": "dashed", "dotted": "dotted", "dotdash": "dashed"}
_REACH = 10  # pixels
_MOST_TOLD = 12
_LOST_NATS = 70.0  # such a loss is not drawn, and its perplexity hardly fits a single-precision number


@dataclass(frozen=True)
class Listed:
    """A variant in the list beside the curves, with the places of its lines among all, to be shown or not."""

    lines: list[int]
    name: str
    colour: str
    border: str


@dataclass(frozen=True)
class Hovered:
    """What the page needs: the curves as JSON that is safe inside `<script>`, the list, and what was left out."""

    json: str
    listed: list[Listed]
    note: str
    library: str


@dataclass(frozen=True)
class _Line:
    variant: str
    seed: str
    epochs: NDArray[np.int32]
    perplexities: NDArray[np.float64]
    width: float


def hovered_curves(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> Hovered | None:
    """The learning curves of all trials, validation perplexity by epoch; None where nothing can be drawn.

    A variant that adapts to the text it is scored on is left out, as in the pictures.
    """
    groups = {name: group for name, group in outcomes.items() if not is_adaptive(group)}
    groups = {name: kept for name, group in groups.items() if (kept := tuple(o for o in group if o.curve))}
    if not groups:
        return None
    means_only = sum(map(len, groups.values())) > MOST_TRIALS
    lines = {name: _lines(name, group, means_only) for name, group in groups.items()}
    step = -(-sum(line.epochs.size for found in lines.values() for line in found) // MOST_POINTS)
    lines = {name: [_thinned(line, step) for line in found] for name, found in lines.items()}
    plot = _figure([line for found in lines.values() for line in found])
    listed = _draw(plot, lines, baseline)
    item = _with_fixed_ids(json_item(plot))
    text = json.dumps(item, separators=(",", ":"), ensure_ascii=True)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Hovered(safe, listed, _note(means_only, step, len(groups)), _library())


@cache
def _library() -> str:
    """Bokeh's own script, whole."""
    return str(Resources(mode="inline", components=["bokeh"]).js_raw[0])


def _lines(variant: str, group: Sequence[Outcome], means_only: bool) -> list[_Line]:
    curves = [_points(outcome) for outcome in group]
    single = len(curves) == 1
    lines = []
    if single or not means_only:
        for outcome, (epochs, values) in zip(group, curves, strict=True):
            lines.append(_Line(variant, f"seed {outcome.trial.seed}", epochs, values, 2.2 if single else 0.8))
    if not single:
        # The epochs that every seed has: an early end must not bend the mean.
        shared = reduce(np.intersect1d, (epochs for epochs, _ in curves))
        # Of losses, as in the pictures: a mean of perplexities would lean to the worse seed.
        mean = np.exp(np.mean([np.log(values[np.isin(epochs, shared)]) for epochs, values in curves], axis=0))
        if shared.size:
            lines.append(_Line(variant, f"mean of {len(curves)} seeds", shared, mean, 2.2))
    return lines


def _points(outcome: Outcome) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Epochs and validation perplexities, not a number where a loss was lost."""
    curve = curve_of(outcome.curve)
    nats = curve.valid_nats_per_token
    return curve.epoch.astype(np.int32), np.exp(np.where(nats < _LOST_NATS, nats, np.nan))


def _thinned(line: _Line, step: int) -> _Line:
    if step == 1:
        return line
    kept = np.union1d(np.arange(step - 1, line.epochs.size, step), [line.epochs.size - 1])
    return _Line(line.variant, line.seed, line.epochs[kept], line.perplexities[kept], line.width)


def _figure(lines: Sequence[_Line]) -> figure:
    low, high = _window(lines)
    last = max(int(line.epochs[-1]) for line in lines)
    # No tool is active by itself: a finger on a phone scrolls the page, until it asks for more.
    plot = figure(
        height=440,
        sizing_mode="stretch_width",
        y_axis_type="log",
        x_range=Range1d(start=0, end=last + max(1, last // 50)),
        y_range=Range1d(start=low, end=high),
        x_axis_label="epoch",
        y_axis_label="validation perplexity (log scale)",
        tools="pan,box_zoom,wheel_zoom,reset",
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
    )
    plot.toolbar.logo = None
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    plot.outline_line_color = None
    plot.xgrid.visible = False
    return plot


def _draw(plot: figure, lines: Mapping[str, Sequence[_Line]], baseline: str) -> list[Listed]:
    """Draw all lines; the variants to list, none where they are too many to be told apart."""
    apart = len(lines) <= MOST_APART
    look_of = looks(name for name in lines if name != baseline) if apart else {}
    other = ("#000000" if apart else GREY, DASHES[0])
    drawn = [line for found in lines.values() for line in found]
    source = ColumnDataSource(
        {
            "xs": [line.epochs for line in drawn],
            "ys": [line.perplexities.astype(np.float32) for line in drawn],
            "variant": [" ".join(line.variant.split()) for line in drawn],
            "seed": [line.seed for line in drawn],
            "width": [line.width for line in drawn],
            "colour": [look_of.get(line.variant, other)[0] for line in drawn],
            "dash": [look_of.get(line.variant, other)[1].bokeh for line in drawn],
        }
    )
    view = CDSView(filter=IndexFilter(indices=list(range(len(drawn))), name="shown"))
    seen = MultiLine(xs="xs", ys="ys", line_color="colour", line_dash=field("dash"), line_width="width")
    plot.add_glyph(source, seen, view=view)
    # Bokeh finds a line under the pointer within half its width: a broad one that is not seen is easier to hit.
    broad = MultiLine(xs="xs", ys="ys", line_alpha=0.0, line_width=_REACH)
    hovered = MultiLine(xs="xs", ys="ys", line_color="colour", line_width=3.5)
    near = plot.add_glyph(source, broad, hover_glyph=hovered, view=view)
    told = "<div>@variant, @seed, epoch $snap_x{0}: $snap_y{0,0.00}</div>"
    plot.add_tools(HoverTool(tooltips=told, renderers=[near], limit=_MOST_TOLD, line_policy="nearest"))
    if not apart:
        return []
    listed = []
    for name in lines:
        colour, dash = look_of.get(name, other)
        own = [k for k, line in enumerate(drawn) if line.variant == name]
        listed.append(Listed(own, name, colour, _BORDERS[dash.bokeh]))
    return listed


def _window(lines: Sequence[_Line]) -> tuple[float, float]:
    """What follows the first quarter of the epochs, up to eight times the lowest point; the rest is scrolled to.

    The first epochs of a language model lie in the thousands, and would flatten all that a reader wants to see.
    """
    early = max(int(line.epochs[-1]) for line in lines) / 4
    values = np.concatenate([line.perplexities for line in lines])
    if not np.isfinite(values).any():
        return 1.0, 10.0
    settled = np.concatenate([line.perplexities[line.epochs > early] for line in lines])
    low = float(np.nanmin(values))
    high = min(float(np.nanmax(settled)) if np.isfinite(settled).any() else 8 * low, 8 * low)
    margin = max((high / low) ** 0.04, 1.005)
    return low / margin, high * margin


def _note(means_only: bool, step: int, variants: int) -> str:
    parts = ["Hover, or tap, for variant, seed, epoch and perplexity."]
    if means_only:
        parts.append(f"These are more than {MOST_TRIALS} trials, so that only the means over seeds are drawn.")
    if step > 1:
        parts.append(f"One epoch in {step} is drawn; curves.parquet has all of them.")
    if variants > MOST_APART:
        parts.append(f"{counted(variants, 'variant')} are too many for colours.")
    return " ".join(parts)


def _with_fixed_ids(item: Any) -> Any:
    """The same item with models numbered as they appear: Bokeh numbers all that a process has made so far."""
    numbers: dict[str, str] = {}

    def renamed(node: Any) -> Any:
        if isinstance(node, list):
            return [renamed(part) for part in node]
        if not isinstance(node, dict):
            return node
        return {
            key: numbers.setdefault(value, f"m{len(numbers)}") if key in ("id", "root_id") else renamed(value)
            for key, value in node.items()
        }

    return renamed(item)
