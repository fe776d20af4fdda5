"""Learning curves: all variants in one figure, by epoch and by time of training, and a panel for each variant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from orchestrator.report.pictures import curves, style
from orchestrator.report.pictures.curves import VariantCurves
from orchestrator.report.pictures.style import COLOURS, DASHES, GREY
from orchestrator.words import counted, number, significant

MOST_COLOURED = 8
"""The number of variants in colour, besides the baseline; of more, those with the lowest perplexity."""
_PALE: style.Style = {"color": "#c4c4c4", "linewidth": 0.8, "zorder": 2}
_ITERATE: style.Style = {"linestyle": (0, (1, 1)), "linewidth": 0.9}
_BASELINE: style.Style = {"color": GREY, "linewidth": 3.0, "alpha": 0.45}


def overview(
    variants: Sequence[VariantCurves], published: float | None, unigram: float | None = None, by_time: bool = True
) -> Figure:
    """All variants by epoch, and by time; `published` and `unigram` are validation perplexities to draw as lines."""
    limits = curves.visible_range(variants, published)
    ranked = sorted(variants, key=lambda variant: variant.lowest, reverse=True)
    styles = _styles(variants, ranked)
    longest = max(seed.seconds[-1] for variant in variants for seed in variant.seeds.values())
    size, unit = (3600.0, "hours") if longest >= 3 * 3600 else (60.0, "minutes") if longest >= 180 else (1.0, "seconds")
    mean_key = Line2D([], [], color=GREY, linewidth=2.2, label="mean over seeds")
    keys = [mean_key, Patch(color=GREY, alpha=0.3, linewidth=0, label="lowest to highest seed"), *_event_keys(variants)]
    lines = [_line_key(variant, styles) for variant in ranked if variant.name in styles]
    if len(lines) < len(ranked):
        lines.append(Line2D([], [], label=counted(len(ranked) - len(lines), "other variant"), **_PALE))
    figure = Figure(figsize=(8.6, 4.0 + 0.16 * math.ceil(len(lines) / 2)))
    look_of_all = {"yscale": "log", "ylim": limits}
    panels: list[Axes] = list(figure.subplots(1, 1 + by_time, sharey=True, squeeze=False, subplot_kw=look_of_all)[0])
    left = panels[0]
    for variant in sorted(ranked, key=lambda each: (each.name in styles, each.baseline)):
        mean = curves.band(variant.seeds.values())
        iterates = [raw for seed in variant.seeds.values() if len(raw := curves.iterate(seed))]
        marks = [mark for seed in variant.seeds.values() for mark in curves.events(seed)]
        look = styles.get(variant.name, _PALE)
        for axes, x in zip(panels, (mean.epoch, mean.seconds / size), strict=False):
            axes.plot(x, mean.mean, marker="." if len(x) == 1 else "", **look)
            if variant.name not in styles:
                continue
            if iterates:
                last = curves.band(iterates)
                axes.plot(last.epoch if axes is left else last.seconds / size, last.mean, **look | _ITERATE)
            if len(variant.seeds) > 1:
                axes.fill_between(x, mean.low, mean.high, color=look["color"], alpha=0.16, linewidth=0)
            _mark(axes, x, mean.mean, mean.epoch, marks, look["color"])
    names = [style.one_line(variant.name, 24) for variant in variants if variant.baseline] or ["baseline"]
    levels = [] if published is None else [(published, "#000000", f"published, {names[0]}: {published:g}")]
    if unigram is not None and limits[0] < unigram < limits[1]:
        levels.append((unigram, GREY, f"unigram model: {number(unigram)}"))
    for level, colour, label in levels:
        for axes in panels:
            line = axes.axhline(level, color=colour, linewidth=1.0, linestyle="dotted", label=label)
        keys.append(line)
    for axes, label in zip(panels, ("epoch", f"{unit} of training"), strict=False):
        axes.set(xlim=(0, 1.04 * axes.dataLim.x1), xlabel=label)
        axes.grid(axis="y", **style.GRID)
    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    left.set_ylabel("validation perplexity (log scale)")
    style.log_ticks(left.yaxis, limits)
    figure.legend(handles=keys, loc="outside upper center", ncols=5)
    title = "mean of each seed's lowest"
    figure.legend(handles=lines, loc="outside lower center", ncols=2, handlelength=3, title=title)
    return figure


def panels(variants: Sequence[VariantCurves]) -> Figure:
    """A panel for each variant, with the baseline's mean in broad grey."""
    drawn = sorted(variants, key=lambda variant: not variant.baseline)[: style.MOST_PANELS]
    limits = curves.visible_range(drawn, None)
    baseline = next((curves.band(variant.seeds.values()) for variant in drawn if variant.baseline), None)
    styles: dict[int, style.Style] = {
        seed: {"color": COLOURS[(k + 1) % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)], "linewidth": 1.2}
        for k, seed in enumerate(sorted({seed for variant in drawn for seed in variant.seeds}))
    }
    keys: list[Artist] = [Line2D([], [], label=f"seed {seed}", **look) for seed, look in [*styles.items()][:12]]
    if baseline is not None:
        keys.insert(0, Line2D([], [], label="baseline, mean over seeds", **_BASELINE))
    labels = ("epoch", "validation perplexity\n(log scale)")
    names = [variant.name for variant in sorted(variants, key=lambda variant: not variant.baseline)]
    figure, grid = style.panel_grid(names, keys + _event_keys(drawn), 1.45, labels)
    for axes, variant in zip(grid, drawn, strict=True):
        axes.set(yscale="log", ylim=limits, xlim=(0, 1.04 * curves.last_epoch(drawn)))
        style.log_ticks(axes.yaxis, limits)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(axis="y", **style.GRID)
        if baseline is not None and not variant.baseline:
            axes.plot(baseline.epoch, baseline.mean, **_BASELINE)
        for key, seed in variant.seeds.items():
            y = curves.perplexities(seed)
            axes.plot(seed.epoch, y, marker="." if len(seed) == 1 else "", **styles[key])
            if len(raw := curves.iterate(seed)):
                axes.plot(raw.epoch, curves.perplexities(raw), **styles[key] | _ITERATE)
            _mark(axes, seed.epoch, y, seed.epoch, curves.events(seed), styles[key]["color"])
        if min(curves.perplexities(seed).min() for seed in variant.seeds.values()) > limits[1]:
            axes.text(0.5, 0.5, "above the picture", transform=axes.transAxes, ha="center", fontsize=8)
    return figure


def _styles(planned: Sequence[VariantCurves], ranked: Sequence[VariantCurves]) -> dict[str, style.Style]:
    """How the lines in colour are drawn: of the baseline, and of the others with the lowest perplexity."""
    baseline = next((variant.name for variant in ranked if variant.baseline), None)
    lowest = [variant.name for variant in ranked if not variant.baseline][-MOST_COLOURED:]
    looks = style.line_styles([variant.name for variant in planned], baseline)
    return {
        name: {"color": colour, "linestyle": dash, "linewidth": 2.4 if name == baseline else 1.7, "zorder": 3}
        for name, (colour, dash) in looks.items()
        if name in lowest or name == baseline
    }


def _mark(
    axes: Axes,
    x: NDArray[np.generic],
    y: NDArray[np.float64],
    epochs: NDArray[np.int64],
    events: Iterable[tuple[int, str]],
    colour: str,
) -> None:
    """Mark events on a line at these epochs; none where it has ended: a mark off every line would say nothing."""
    for epoch, shape in events:
        if (here := epochs == epoch).any():
            axes.plot(x[here], y[here], zorder=4, **style.marker(shape, 4.5, "white", colour, 1.0))


def _event_keys(variants: Sequence[VariantCurves]) -> list[Artist]:
    seeds = [seed for variant in variants for seed in variant.seeds.values()]
    shapes = {shape for seed in seeds for _, shape in curves.events(seed)}
    labels = {"o": "averaging begins", "D": "fine-tuning begins"}
    lines: list[Artist] = [
        Line2D([], [], label=label, **style.marker(shape, 4.5, "white", GREY, 1.0))
        for shape, label in labels.items()
        if shape in shapes
    ]
    if any(len(curves.iterate(seed)) for seed in seeds):
        lines.append(Line2D([], [], color=GREY, label="last iterate, not averaged", **_ITERATE))
    return lines


def _line_key(variant: VariantCurves, styles: Mapping[str, style.Style]) -> Line2D:
    lowest = significant(variant.lowest) if variant.complete else "not complete"
    name = style.wrapped(variant.name, 42, 2).replace("\n", "\n" + " " * 12)
    return Line2D([], [], label=f"{lowest}  {name}", **styles[variant.name])
