"""Learning curves a panel a variant, with every trial's own curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from orchestrator.report.pictures.colours import COLOURS, DASHES, GREY
from orchestrator.report.pictures.drawing.grid import MOST_PANELS, grid
from orchestrator.report.pictures.drawing.learning import draw_event, dress, event_keys
from orchestrator.report.pictures.drawing.look import look, save
from orchestrator.report.pictures.drawing.series import (
    Band,
    Line,
    Window,
    band,
    drawable,
    events,
    is_above,
    points,
    window,
)
from orchestrator.report.pictures.figures import VariantCurves
from orchestrator.words import counted

_MOST_POINTS = 30_000
"""So many points in all make a picture of about a megabyte."""


def draw_variants(folder: Path, variants: Sequence[VariantCurves]) -> str | None:
    """Write `variants.svg`, a panel a variant with the baseline's mean behind it in grey.

    Returns sentences on variants that have no panel and on epochs that are left out to keep the file small, None where
    all is drawn. ValueError where nothing can be drawn.
    """
    every = drawable(variants)
    baseline = next((variant for variant in every if variant.baseline), None)
    seen = sorted(every, key=lambda variant: not variant.baseline)[:MOST_PANELS]
    shown = window(seen, None)
    behind = band(baseline.seeds) if baseline is not None else None
    step = math.ceil(sum(len(seed) for variant in seen for seed in variant.seeds) / _MOST_POINTS)
    numbers = sorted({number for variant in seen for number in variant.seed_numbers})
    last = max(seed.epoch[-1] for variant in seen for seed in variant.seeds)
    with look():
        keys = _keys(seen, numbers, behind is not None)
        labels = ("epoch", "validation perplexity\n(log scale)")
        figure, panels = grid([variant.name for variant in seen], keys, 1.45, 0.9, labels)
        for axes, variant in zip(panels, seen, strict=True):
            _draw_panel(axes, variant, None if variant.baseline else behind, numbers, step)
            dress(axes, shown)
            axes.set_xlim(0, 1.04 * last)
            _say_above(axes, variant, shown)
        save(figure, folder, "variants")
    sentences = []
    if len(every) > len(seen):
        rest = counted(len(every) - len(seen), "variant")
        sentences.append(f"A picture has {MOST_PANELS} panels at most: {rest} more without one.")
    if step > 1:
        sentences.append(f"Of the epochs one in {step} is drawn.")
    return " ".join(sentences) or None


def _draw_panel(axes: Axes, variant: VariantCurves, behind: Band | None, numbers: Sequence[int], step: int) -> None:
    if behind is not None:
        axes.plot(behind.epoch, behind.mean, color=GREY, linewidth=3.0, alpha=0.45, solid_capstyle="round")
    for k, seed in enumerate(variant.seeds):
        one = _line(numbers.index(variant.seed_numbers[k]) if variant.seed_numbers else k)
        places, heights = points(seed, "epoch")
        marker = "." if len(seed) == 1 else ""
        kept = sorted({*range(0, len(seed), step), len(seed) - 1})
        axes.plot(places[kept], heights[kept], color=one.colour, linestyle=one.dash, linewidth=one.width, marker=marker)
        for where, shape in events(seed, variant.turns):
            draw_event(axes, places[where], heights[where], shape, one.colour)


def _line(seed: int) -> Line:
    return Line(COLOURS[(seed + 1) % len(COLOURS)], DASHES[seed % len(DASHES)].matplotlib, 1.2)


def _say_above(axes: Axes, variant: VariantCurves, shown: Window) -> None:
    if is_above(variant, shown):
        axes.text(0.5, 0.5, "above the picture", transform=axes.transAxes, ha="center", fontsize=8)


def _keys(variants: Sequence[VariantCurves], numbers: Sequence[int], behind: bool) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    if behind:
        keys.append(Line2D([], [], color=GREY, linewidth=3.0, alpha=0.45, label="baseline, mean over seeds"))
    for k, seed in enumerate(numbers[:12]):
        one = _line(k)
        keys.append(Line2D([], [], color=one.colour, linestyle=one.dash, linewidth=one.width, label=f"seed {seed}"))  # type: ignore[arg-type]
    return keys + event_keys(variants)
