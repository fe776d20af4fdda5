"""Learning curves: all variants in one figure, by epoch and by time of training, and a panel for each variant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from orchestrator.report.pictures import curves
from orchestrator.report.pictures.drawing import style
from orchestrator.report.pictures.figures import COLOURS, DASHES, GREY, Overview, Panels, VariantCurves, line_styles
from orchestrator.words import counted, listed, number, significant

MOST_COLOURED = 8
"""The number of variants in colour, besides the baseline; of more, those with the lowest perplexity."""
_PALE: style.Style = {"color": "#c4c4c4", "linewidth": 0.8, "zorder": 2}
_ITERATE: style.Style = {"linestyle": (0, (1, 1)), "linewidth": 0.9}
_BASELINE: style.Style = {"color": GREY, "linewidth": 3.0, "alpha": 0.45}


def overview_figure(overview: Overview) -> tuple[Figure, str | None]:
    """All variants by epoch and by time; what is above, grey or lacks points in words. ValueError without a loss."""
    variants = curves.without_nan(overview.variants)
    limits = curves.visible_range(variants, overview.published)
    ranked = sorted(variants, key=curves.lowest_perplexity, reverse=True)
    styles = _styles(overview.variants, ranked)
    longest = max(seed.seconds[-1] for variant in variants for seed in variant.seeds)
    size, unit = (3600.0, "hours") if longest >= 3 * 3600 else (60.0, "minutes") if longest >= 180 else (1.0, "seconds")
    mean_key = Line2D([], [], color=GREY, linewidth=2.2, label="mean over seeds")
    keys = [mean_key, Patch(color=GREY, alpha=0.3, linewidth=0, label="lowest to highest seed"), *_event_keys(variants)]
    lines = [_line_key(variant, styles) for variant in ranked if variant.name in styles]
    if len(lines) < len(ranked):
        lines.append(Line2D([], [], label=counted(len(ranked) - len(lines), "other variant"), **_PALE))
    figure = Figure(figsize=(8.6, 4.0 + 0.16 * math.ceil(len(lines) / 2)))
    left, right = figure.subplots(1, 2, sharey=True, subplot_kw={"yscale": "log", "ylim": limits})
    for variant in sorted(ranked, key=lambda each: (each.name in styles, each.baseline)):
        line_style = styles.get(variant.name, _PALE)
        mean = curves.band(variant.seeds)
        marks = [(epoch, shape, mean.at(epoch)) for epoch, shape in _events(variant) if line_style is not _PALE]
        for axes, x in ((left, mean.epoch), (right, mean.seconds / size)):
            axes.plot(x, mean.mean, marker="." if len(x) == 1 else "", **line_style)
            if line_style is not _PALE and (iterates := curves.of_iterates(variant.seeds)):
                raw = curves.band(iterates)
                axes.plot(raw.epoch if axes is left else raw.seconds / size, raw.mean, **line_style | _ITERATE)
            if len(variant.seeds) > 1 and line_style is not _PALE:
                axes.fill_between(x, mean.low, mean.high, color=line_style["color"], alpha=0.16, linewidth=0)
            for epoch, shape, place in marks:
                if place is not None:  # a mark off every line would say nothing
                    _draw_event(axes, epoch if axes is left else place[0] / size, place[1], shape, line_style["color"])
    for level, colour, label in _levels(overview, limits):
        for axes in (left, right):
            line = axes.axhline(level, color=colour, linewidth=1.0, linestyle="dotted", label=label)
        keys.append(line)
    for axes, label in ((left, "epoch"), (right, f"{unit} of training")):
        axes.set(xlim=(0, 1.04 * axes.dataLim.x1), xlabel=label)
        axes.grid(axis="y", **style.GRID)
    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    left.set_ylabel("validation perplexity (log scale)")
    style.log_ticks(left.yaxis, limits)
    figure.legend(handles=keys, loc="outside upper center", ncols=5)
    title = "lowest point, mean over seeds"
    figure.legend(handles=lines, loc="outside lower center", ncols=2, handlelength=3, title=title)
    return figure, _sentences(overview, ranked, styles, limits)


def panels_figure(panels: Panels) -> tuple[Figure, str | None]:
    """A panel for each variant, with the baseline's mean in broad grey; a sentence on variants that have no panel."""
    variants = curves.without_nan(panels.variants)
    drawn = sorted(variants, key=lambda variant: not variant.baseline)[: style.MOST_PANELS]
    limits = curves.visible_range(drawn, None)
    baseline = next((curves.band(variant.seeds) for variant in drawn if variant.baseline), None)
    seeds = sorted({seed for variant in drawn for seed in variant.seed_numbers})
    styles: dict[int, style.Style] = {
        seed: {"color": COLOURS[(k + 1) % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)], "linewidth": 1.2}
        for k, seed in enumerate(seeds)
    }
    keys: list[Artist] = [Line2D([], [], label=f"seed {seed}", **styles[seed]) for seed in seeds[:12]]
    if baseline is not None:
        keys.insert(0, Line2D([], [], label="baseline, mean over seeds", **_BASELINE))
    last = max(seed.epoch[-1] for variant in drawn for seed in variant.seeds)
    labels = ("epoch", "validation perplexity\n(log scale)")
    figure, grid = style.panel_grid([variant.name for variant in drawn], keys + _event_keys(drawn), 1.45, labels)
    for axes, variant in zip(grid, drawn, strict=True):
        axes.set(yscale="log", ylim=limits, xlim=(0, 1.04 * last))
        style.log_ticks(axes.yaxis, limits)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(axis="y", **style.GRID)
        if baseline is not None and not variant.baseline:
            axes.plot(baseline.epoch, baseline.mean, **_BASELINE)
        for seed_number, seed in zip(variant.seed_numbers, variant.seeds, strict=True):
            y = curves.perplexities(seed)
            axes.plot(seed.epoch, y, marker="." if len(seed) == 1 else "", **styles[seed_number])
            for raw in curves.of_iterates([seed]):
                axes.plot(raw.epoch, curves.perplexities(raw), **styles[seed_number] | _ITERATE)
            for place, shape in curves.events(seed, variant.turns):
                _draw_event(axes, seed.epoch[place], y[place], shape, styles[seed_number]["color"])
        if curves.is_above(variant, limits[1]):
            axes.text(0.5, 0.5, "above the picture", transform=axes.transAxes, ha="center", fontsize=8)
    return figure, style.note_without_panel(len(variants))


def _styles(planned: Sequence[VariantCurves], ranked: Sequence[VariantCurves]) -> dict[str, style.Style]:
    """How the lines in colour are drawn: of the baseline, and of the others with the lowest perplexity."""
    baseline = next((variant.name for variant in ranked if variant.baseline), None)
    lowest = [variant.name for variant in ranked if not variant.baseline][-MOST_COLOURED:]
    looks = line_styles([variant.name for variant in planned], baseline)
    return {
        name: {"color": colour, "linestyle": dash, "linewidth": 2.4 if name == baseline else 1.7, "zorder": 3}
        for name, (colour, dash) in looks.items()
        if name in lowest or name == baseline
    }


def _sentences(
    overview: Overview, drawn: Sequence[VariantCurves], styles: Mapping[str, style.Style], limits: curves.Limits
) -> str | None:
    sentences = [curves.note_above(drawn, limits[1])]
    if len(styles) < len(drawn):
        rest = counted(len(drawn) - len(styles), "other")
        sentences.append(f"In colour are the {MOST_COLOURED} variants with the lowest perplexity; in grey: {rest}.")
    names = {variant.name for variant in drawn}
    if missing := [variant.name for variant in overview.variants if variant.name not in names]:
        without = listed(missing) if len(missing) <= MOST_COLOURED else f"{len(missing)} variants"
        sentences.append(f"Not drawn, because no loss is a number: {without}.")
    return " ".join(filter(None, sentences)) or None


def _levels(overview: Overview, limits: curves.Limits) -> Iterator[tuple[float, str, str]]:
    """The published perplexity and the unigram model's, with the colours and labels of their lines."""
    if overview.published is not None:
        names = [style.one_line(variant.name, 24) for variant in overview.variants if variant.baseline]
        yield overview.published, "#000000", f"published, {(names or ['baseline'])[0]}: {overview.published:g}"
    if overview.unigram is not None and limits[0] < overview.unigram < limits[1]:
        yield overview.unigram, GREY, f"unigram model: {number(overview.unigram)}"


def _events(variant: VariantCurves) -> Iterator[tuple[int, str]]:
    for seed in variant.seeds:
        yield from ((int(seed.epoch[place]), shape) for place, shape in curves.events(seed, variant.turns))


def _draw_event(axes: Axes, x: float, y: float, shape: str, colour: str) -> None:
    axes.plot(x, y, zorder=4, **style.marker(shape, 4.5, "white", colour, 1.0))


def _event_keys(variants: Sequence[VariantCurves]) -> list[Artist]:
    shapes = {shape for variant in variants for _, shape in _events(variant)}
    labels = {"o": "averaging begins", "P": "other values begin", "D": "fine-tuning begins"}
    keys = {shape: style.marker(shape, 4.5, "white", GREY, 1.0) for shape in labels if shape in shapes}
    lines: list[Artist] = [Line2D([], [], label=labels[shape], **key) for shape, key in keys.items()]
    if any(curves.of_iterates(variant.seeds) for variant in variants):
        lines.append(Line2D([], [], color=GREY, label="last iterate, not averaged", **_ITERATE))
    return lines


def _line_key(variant: VariantCurves, styles: Mapping[str, style.Style]) -> Line2D:
    lowest = significant(curves.lowest_perplexity(variant)) if variant.complete else "not complete"
    name = style.wrapped(variant.name, 42, 2).replace("\n", "\n" + " " * 12)
    return Line2D([], [], label=f"{lowest}  {name}", **styles[variant.name])
