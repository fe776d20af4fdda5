"""Learning curves: as numbers, all variants in one figure by epoch and by time, and a panel for each variant."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from orchestrator.analysis.outcomes import Curve, Outcomes, curve_of, is_adaptive
from orchestrator.report.markdown import MOST_PANELS
from orchestrator.report.pictures import style
from orchestrator.report.pictures.style import COLOURS, DASHES, GREY, Limits
from orchestrator.words import counted, number, significant

MOST_COLOURED = 8
"""The number of variants in colour, besides the baseline; of more, those with the lowest perplexity."""
_MOST_NATS = 600.0
"""A higher loss is drawn at this height: its exp would overflow."""
_PALE: style.Style = {"color": "#c4c4c4", "linewidth": 0.8, "zorder": 2}
_ITERATE: style.Style = {"linestyle": (0, (1, 1)), "linewidth": 0.9}
_BASELINE: style.Style = {"color": GREY, "linewidth": 3.0, "alpha": 0.45}


@dataclass(frozen=True)
class VariantCurves:
    """A variant's learning curves by seed.

    Unless `complete`, seeds are missing or ended early, and the figures give no number for the variant.
    """

    name: str
    baseline: bool
    complete: bool
    seeds: Mapping[int, Curve]

    @property
    def lowest(self) -> float:
        """The lowest perplexity of each seed, mean over seeds."""
        return float(np.mean([perplexities(seed).min() for seed in self.seeds.values()]))


@dataclass(frozen=True)
class Band:
    """Perplexities by epoch: of the mean loss over seeds, of the lowest and of the highest; seconds are the mean."""

    epoch: NDArray[np.int64]
    seconds: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def variant_curves(outcomes: Outcomes) -> list[VariantCurves]:
    """Every variant with a loss that is a number, in the order of the plan; a cache trains nothing, and has none."""
    variants = []
    for variant, group in outcomes.items():
        curves = {each.trial.seed: with_numbers(curve_of(each.curve)) for each in group if each.curve}
        seeds = {seed: curve for seed, curve in curves.items() if len(curve)}
        if seeds and not is_adaptive(group):
            complete = all(outcome.final for outcome in group)
            variants.append(VariantCurves(variant, variant == outcomes.baseline, complete, seeds))
    return variants


def with_numbers(seed: Curve) -> Curve:
    """The evaluations whose loss is a number."""
    return seed.at(~np.isnan(seed.valid_nats_per_token))


def iterate(seed: Curve) -> Curve:
    """The curve of the last iterates beside their averages; empty where there are none."""
    return with_numbers(dataclasses.replace(seed, valid_nats_per_token=seed.raw_valid_nats_per_token))


def band(seeds: Iterable[Curve]) -> Band:
    """Mean and range over seeds at epochs that all have (else the first seed's): an early end must not bend them."""
    seeds = list(seeds)
    epochs = reduce(np.intersect1d, (seed.epoch for seed in seeds))
    if not len(epochs):
        return band(seeds[:1])
    shared = [seed.at(np.isin(seed.epoch, epochs)) for seed in seeds]
    nats = np.minimum([seed.valid_nats_per_token for seed in shared], _MOST_NATS)
    seconds = np.mean([seed.seconds for seed in shared], axis=0)
    return Band(epochs, seconds, np.exp(nats.mean(axis=0)), np.exp(nats.min(axis=0)), np.exp(nats.max(axis=0)))


def perplexities(seed: Curve) -> NDArray[np.float64]:
    """The validation perplexity of every evaluation; one that overflows is as high as can be drawn."""
    return np.exp(np.minimum(seed.valid_nats_per_token, _MOST_NATS))


def last_epoch(variants: Sequence[VariantCurves]) -> int:
    """The last epoch of any seed."""
    return max(int(seed.epoch[-1]) for variant in variants for seed in variant.seeds.values())


def visible_range(variants: Sequence[VariantCurves], published: float | None) -> Limits:
    """The perplexities shown: what follows the first quarter of the epochs, and every lowest point, up to a ratio of 2.

    More if over half of the variants lay above. First epochs and ruined variants would flatten what a reader wants to
    see.
    """
    early = last_epoch(variants) / 4
    seeds = [(seed.epoch, seed.valid_nats_per_token) for variant in variants for seed in variant.seeds.values()]
    line = [math.log(published)] if published else []
    low = min([_MOST_NATS, *line, *(float(nats.min()) for _, nats in seeds)])
    settled = max(float(max(nats.min(), nats[epoch > early].max(initial=low))) for epoch, nats in seeds)
    median = float(np.quantile([math.log(variant.lowest) - low for variant in variants], 0.5, method="lower"))
    high = max([min(settled, low + max(math.log(2.0), median)), *line])
    margin = max(0.04 * (high - low), 0.005)
    return math.exp(low - margin), math.exp(high + margin)


def events(seed: Curve) -> Iterator[tuple[int, str]]:
    """At which epoch averaging began in training (circle), and fine-tuning (diamond)."""
    fine_tuning = np.char.startswith(seed.stage, "finetune")
    for places, shape in ((seed.averaging & ~fine_tuning, "o"), (fine_tuning, "D")):
        if places.any():
            yield int(seed.epoch[places.argmax()]), shape


def overview(
    variants: Sequence[VariantCurves], published: float | None, unigram: float | None = None, by_time: bool = True
) -> Figure:
    """All variants by epoch, and by time; `published` and `unigram` are validation perplexities to draw as lines."""
    limits = visible_range(variants, published)
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
        mean = band(variant.seeds.values())
        iterates = [raw for seed in variant.seeds.values() if len(raw := iterate(seed))]
        marks = [mark for seed in variant.seeds.values() for mark in events(seed)]
        look = styles.get(variant.name, _PALE)
        for axes, x in zip(panels, (mean.epoch, mean.seconds / size), strict=False):
            axes.plot(x, mean.mean, marker="." if len(x) == 1 else "", **look)
            if variant.name not in styles:
                continue
            if iterates:
                last = band(iterates)
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
    baseline_first = sorted(variants, key=lambda variant: not variant.baseline)
    drawn = baseline_first[:MOST_PANELS]
    limits = visible_range(drawn, None)
    baseline = next((band(variant.seeds.values()) for variant in drawn if variant.baseline), None)
    styles: dict[int, style.Style] = {
        seed: {"color": COLOURS[(k + 1) % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)], "linewidth": 1.2}
        for k, seed in enumerate(sorted({seed for variant in drawn for seed in variant.seeds}))
    }
    keys: list[Artist] = [Line2D([], [], label=f"seed {seed}", **look) for seed, look in [*styles.items()][:12]]
    if baseline is not None:
        keys.insert(0, Line2D([], [], label="baseline, mean over seeds", **_BASELINE))
    labels = ("epoch", "validation perplexity\n(log scale)")
    names = [variant.name for variant in baseline_first]
    figure, grid = style.panel_grid(names, keys + _event_keys(drawn), 1.45, labels)
    for axes, variant in zip(grid, drawn, strict=True):
        axes.set(yscale="log", ylim=limits, xlim=(0, 1.04 * last_epoch(drawn)))
        style.log_ticks(axes.yaxis, limits)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(axis="y", **style.GRID)
        if baseline is not None and not variant.baseline:
            axes.plot(baseline.epoch, baseline.mean, **_BASELINE)
        for key, seed in variant.seeds.items():
            y = perplexities(seed)
            axes.plot(seed.epoch, y, marker="." if len(seed) == 1 else "", **styles[key])
            if len(raw := iterate(seed)):
                axes.plot(raw.epoch, perplexities(raw), **styles[key] | _ITERATE)
            _mark(axes, seed.epoch, y, seed.epoch, events(seed), styles[key]["color"])
        if min(perplexities(seed).min() for seed in variant.seeds.values()) > limits[1]:
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
    marks: Iterable[tuple[int, str]],
    colour: str,
) -> None:
    """Mark events on a line at these epochs; none where it has ended: a mark off every line would say nothing."""
    for epoch, shape in marks:
        if (here := epochs == epoch).any():
            axes.plot(x[here], y[here], zorder=4, **style.marker(shape, 4.5, "white", colour, 1.0))


def _event_keys(variants: Sequence[VariantCurves]) -> list[Artist]:
    seeds = [seed for variant in variants for seed in variant.seeds.values()]
    shapes = {shape for seed in seeds for _, shape in events(seed)}
    labels = {"o": "averaging begins", "D": "fine-tuning begins"}
    lines: list[Artist] = [
        Line2D([], [], label=label, **style.marker(shape, 4.5, "white", GREY, 1.0))
        for shape, label in labels.items()
        if shape in shapes
    ]
    if any(len(iterate(seed)) for seed in seeds):
        lines.append(Line2D([], [], color=GREY, label="last iterate, not averaged", **_ITERATE))
    return lines


def _line_key(variant: VariantCurves, styles: Mapping[str, style.Style]) -> Line2D:
    lowest = significant(variant.lowest) if variant.complete else "not complete"
    name = style.wrapped(variant.name, 42, 2).replace("\n", "\n" + " " * 12)
    return Line2D([], [], label=f"{lowest}  {name}", **styles[variant.name])
