"""Learning curves that can be hovered; the only module of the project that talks to Bokeh.

Bokeh rather than Plotly: its script is 1.3 MB a page instead of 4.8 MB (Bokeh 3.9, Plotly 7.1), and both are well kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.core.properties import field
from bokeh.embed import json_item
from bokeh.models import CDSView, ColumnDataSource, HoverTool, IndexFilter, MultiLine, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.pictures import curves
from orchestrator.report.pictures.curves import VariantCurves
from orchestrator.report.pictures.style import line_styles

_HIT_WIDTH = 10  # pixels
_MOST_IN_TOOLTIP = 12


@dataclass(frozen=True)
class Key:
    """A variant in the list below the curves; `lines` are the places of its lines, which the reader can hide."""

    lines: list[int]
    name: str
    colour: str
    border: str


@dataclass(frozen=True)
class HoverCurves:
    """What the page needs: the curves as JSON that is safe inside `<script>`, and their keys."""

    json: str
    keys: list[Key]


def hover_curves(outcomes: Outcomes) -> HoverCurves | None:
    """The validation perplexity of every seed and of the mean over seeds, by epoch; None if there is no curve."""
    variants = curves.variant_curves(outcomes)
    if not variants:
        return None
    plot = _empty_plot(variants)
    keys = _draw(plot, variants, line_styles([variant.name for variant in variants], outcomes.baseline))
    return HoverCurves(_json(plot).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"), keys)


def _empty_plot(variants: Sequence[VariantCurves]) -> figure:
    low, high = curves.visible_range(variants, None)
    # No tool is active by itself: a finger on a phone scrolls the page, until it asks for more.
    plot = figure(
        height=440,
        sizing_mode="stretch_width",
        y_axis_type="log",
        x_range=Range1d(start=0, end=curves.last_epoch(variants)),
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
    return plot


def _draw(plot: figure, variants: Sequence[VariantCurves], styles: Mapping[str, tuple[str, str]]) -> list[Key]:
    """Draw a line for each seed, and a broader one for the mean over seeds or for a single seed."""
    columns = ("variant", "seed", "xs", "ys", "width", "colour", "dash")
    lines: list[tuple[Any, ...]] = []
    keys = []
    for variant in variants:
        colour, dash = styles[variant.name]
        seeds = variant.seeds.items()
        seed_lines = [(f"seed {number}", seed.epoch, curves.perplexities(seed), 0.8) for number, seed in seeds]
        mean = curves.band(variant.seeds.values())
        label = f"mean of {len(seed_lines)} seeds" if len(seed_lines) > 1 else seed_lines.pop()[0]
        seed_lines.append((label, mean.epoch, mean.mean, 2.2))
        for number, seed in seeds:
            if len(raw := curves.iterate(seed)):
                seed_lines.append((f"seed {number}, last iterate", raw.epoch, curves.perplexities(raw), 0.4))
        name, first = " ".join(variant.name.split()), len(lines)
        lines += [(name, label, x.astype("int32"), y, width, colour, dash) for label, x, y, width in seed_lines]
        border = "dashed" if dash == "dashdot" else dash
        keys.append(Key(list(range(first, len(lines))), variant.name, colour, border))
    source = ColumnDataSource(dict(zip(columns, zip(*lines, strict=True), strict=True)))
    view = CDSView(filter=IndexFilter(indices=list(range(len(lines))), name="shown"))
    visible = MultiLine(xs="xs", ys="ys", line_color="colour", line_dash=field("dash"), line_width="width")
    plot.add_glyph(source, visible, view=view)
    # Bokeh finds a line under the pointer within half its width: a broad invisible one is easier to hit.
    broad = MultiLine(xs="xs", ys="ys", line_alpha=0.0, line_width=_HIT_WIDTH)
    hovered = MultiLine(xs="xs", ys="ys", line_color="colour", line_width=3.5)
    near = plot.add_glyph(source, broad, hover_glyph=hovered, view=view)
    tooltip = "<div>@variant, @seed, epoch $snap_x{0}: $snap_y{0,0.00}</div>"
    plot.add_tools(HoverTool(tooltips=tooltip, renderers=[near], limit=_MOST_IN_TOOLTIP, line_policy="nearest"))
    return keys


def _json(plot: figure) -> str:
    """The plot with models numbered as they appear: Bokeh numbers all that a process has made before it, too."""
    numbers: dict[str, str] = {}

    def renumbered(node: dict[str, Any]) -> dict[str, Any]:
        ids = {key: numbers.setdefault(node[key], f"m{len(numbers)}") for key in ("id", "root_id") if key in node}
        return node | ids

    item = json.loads(json.dumps(json_item(plot)), object_hook=renumbered)
    return json.dumps(item, separators=(",", ":"))
