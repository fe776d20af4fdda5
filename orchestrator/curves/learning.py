"""Learning curves: all variants in one picture, and a panel for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from lm.record import Evaluation, perplexity
from orchestrator.curves.look import COLOURS, GREY, figure_of, look, plain, save, ticks
from orchestrator.wording import listed, number

# A number of dash patterns coprime to the colours' keeps 36 variants distinct and the first ones readable in grey.
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


@dataclass(frozen=True)
class VariantCurves:
    """A variant's curves, one a seed; `baseline` marks the one that the others are seen against.

    Unless `complete`, seeds are missing or ended early, and the picture gives no figure for the variant.
    """

    name: str
    baseline: bool
    complete: bool
    seeds: tuple[tuple[Evaluation, ...], ...]


@dataclass(frozen=True)
class _Line:
    colour: str
    dash: object
    width: float


@dataclass(frozen=True)
class _Range:
    low: float
    high: float
    cut: int
    highest: float


def draw_overview(folder: Path, variants: Sequence[VariantCurves], published: float | None) -> str | None:
    """Write `overview.svg` and `overview.png`, all variants in one picture.

    `published` is a validation perplexity to draw as a line. Returns a sentence on points above the picture's
    top, None where there are none.
    """
    window = _window(variants, published)
    with look():
        figure = Figure(figsize=(9.6, 4.8), layout="constrained")
        axes = figure.add_subplot()
        ordered = sorted(variants, key=lambda variant: (variant.complete, _lowest_perplexity(variant)), reverse=True)
        lines = _lines(variants)
        for variant in sorted(variants, key=lambda variant: variant.baseline):
            _draw_variant(axes, variant, lines[variant.name])
        if published is not None:
            axes.axhline(published, color="black", linewidth=1.0, linestyle=(0, (1, 2)))
        _dress(axes, window)
        axes.set_xlabel("epoch")
        axes.set_ylabel("validation perplexity (log scale)")
        handles = [_handle(_label(variant), lines[variant.name]) for variant in ordered]
        title = "lowest point, mean over seeds"
        figure.legend(handles=handles, loc="outside right upper", title=title, alignment="left")
        axes.legend(handles=_keys(variants, published), loc="upper right", fontsize=8)
        save(figure, folder, "overview")
    return _cut_sentence(window, [variant.name for variant in variants if _is_above(variant, window)])


def draw_variants(folder: Path, variants: Sequence[VariantCurves]) -> None:
    """Write `variants.svg` and `variants.png`, a panel a variant with the baseline's mean behind it in grey."""
    window = _window(variants, None)
    lines = _lines(variants)
    columns = min(3, len(variants))
    rows = math.ceil(len(variants) / columns)
    baseline = next((variant for variant in variants if variant.baseline), None)
    with look():
        figure = Figure(figsize=(3.2 * columns, 2.2 * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, variant in zip(panels.flat, variants, strict=False):
            if baseline is not None and not variant.baseline:
                axes.plot(*_mean(baseline.seeds), color=GREY, linewidth=3.0, alpha=0.45, solid_capstyle="round")
            line = lines[variant.name]
            _draw_variant(axes, variant, _Line(line.colour, "-", 1.4))
            axes.set_title(plain(variant.name, 40), loc="left", fontsize=9, fontweight="bold")
            _dress(axes, window)
            if _is_above(variant, window):
                axes.text(0.5, 0.5, "above the picture", transform=axes.transAxes, ha="center", fontsize=8)
        for axes in panels.flat[len(variants) :]:
            axes.set_visible(False)
        # A column whose lowest panel is empty gets its epochs under the panel above.
        for axes in panels.flat[max(0, len(variants) - columns) : len(variants)]:
            axes.tick_params(labelbottom=True)
        figure.supxlabel("epoch", fontsize=9)
        figure.supylabel("validation perplexity (log scale)", fontsize=9)
        save(figure, folder, "variants")


def _window(variants: Sequence[VariantCurves], published: float | None) -> _Range:
    """The vertical range: what follows the first quarter of the epochs, and every lowest point, up to a ratio of 8.

    The first epochs of a language model lie in the thousands, and would flatten all that a reader wants to see.
    """
    curves = [seed for variant in variants for seed in variant.seeds]
    early = max(seed[-1].epoch for seed in curves) / 4
    settled = [point.valid_nats_per_token for seed in curves for point in seed if point.epoch > early]
    settled += [min(point.valid_nats_per_token for point in seed) for seed in curves]
    values = [point.valid_nats_per_token for seed in curves for point in seed]
    low = min([*values, *([math.log(published)] if published else [])])
    high = max(min(max(settled), low + math.log(8.0)), math.log(published) if published else low)
    margin = max(0.04 * (high - low), 0.005)
    low, high = low - margin, high + margin
    return _Range(math.exp(low), math.exp(high), sum(value > high for value in values), perplexity(max(values)))


def _is_above(variant: VariantCurves, window: _Range) -> bool:
    """Whether no point of the variant can be seen."""
    return all(point.valid_perplexity > window.high for seed in variant.seeds for point in seed)


def _cut_sentence(window: _Range, unseen: Sequence[str]) -> str | None:
    if window.cut == 0:
        return None
    points = "1 point lies" if window.cut == 1 else f"{window.cut} points lie"
    names = f"; among them all of {listed(unseen)}" if unseen else ""
    return (
        f"{points} above the top of the picture, {figure_of(window.high)} (highest {figure_of(window.highest)}){names}."
    )


def _draw_variant(axes: Axes, variant: VariantCurves, line: _Line) -> None:
    for seed in variant.seeds:
        epochs, perplexity = _points(seed)
        axes.plot(epochs, perplexity, color=line.colour, linewidth=0.6, alpha=0.55)
        for index, marker in _events(seed):
            axes.plot(
                epochs[index],
                perplexity[index],
                marker=marker,
                markersize=4.5,
                markerfacecolor="white",
                markeredgecolor=line.colour,
                markeredgewidth=1.0,
                zorder=4,
            )
    axes.plot(*_mean(variant.seeds), color=line.colour, linewidth=line.width, linestyle=line.dash, zorder=3)


def _points(seed: Sequence[Evaluation]) -> tuple[list[int], list[float]]:
    return [point.epoch for point in seed], [point.valid_perplexity for point in seed]


def _mean(seeds: Sequence[Sequence[Evaluation]]) -> tuple[list[int], list[float]]:
    """Mean perplexity over seeds, of the epochs that every seed has: an early end must not bend the mean."""
    curves = [dict(zip(*_points(seed), strict=True)) for seed in seeds]
    epochs = sorted(set.intersection(*(set(curve) for curve in curves)))
    return epochs, [float(np.mean([curve[epoch] for curve in curves])) for epoch in epochs]


def _events(seed: Sequence[Evaluation]) -> Iterator[tuple[int, str]]:
    """Where averaging began in training (circle), and the first epoch of every fine-tuning (diamond)."""
    averaging = next((k for k, point in enumerate(seed) if point.averaging), None)
    if averaging is not None and not seed[averaging].stage.startswith("finetune"):
        yield averaging, "o"
    for k in range(1, len(seed)):
        if seed[k].stage != seed[k - 1].stage:
            yield k, "D"


def _keys(variants: Sequence[VariantCurves], published: float | None) -> list[Line2D]:
    shapes = {marker for variant in variants for seed in variant.seeds for _, marker in _events(seed)}
    thin = any(len(variant.seeds) > 1 for variant in variants)
    keys = []
    if thin:
        keys.append(Line2D([], [], color=GREY, linewidth=2.2, label="mean over seeds"))
        keys.append(Line2D([], [], color=GREY, linewidth=0.6, label="one seed"))
    for marker, label in (("o", "averaging begins"), ("D", "fine-tuning begins")):
        if marker in shapes:
            shape = {"marker": marker, "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": GREY}
            keys.append(Line2D([], [], linestyle="none", label=label, **shape))  # type: ignore[arg-type]
    if published is not None:
        name = next((plain(variant.name, 24) for variant in variants if variant.baseline), "baseline")
        label = f"published, {name}: {published:g}"
        keys.append(Line2D([], [], color="black", linewidth=1.0, linestyle=(0, (1, 2)), label=label))
    return keys


def _handle(label: str, line: _Line) -> Line2D:
    return Line2D([], [], color=line.colour, linewidth=line.width, linestyle=line.dash, label=label)  # type: ignore[arg-type]


def _label(variant: VariantCurves) -> str:
    if not variant.complete:
        return f"{plain(variant.name, 32)} (not complete)"
    lowest = _lowest_perplexity(variant)
    return f"{number(lowest, 2 if lowest < 100 else 1)}  {plain(variant.name, 32)}"


def _lowest_perplexity(variant: VariantCurves) -> float:
    return float(np.mean([min(_points(seed)[1]) for seed in variant.seeds]))


def _lines(variants: Iterable[VariantCurves]) -> dict[str, _Line]:
    lines, others = {}, 0
    for variant in variants:
        if variant.baseline:
            lines[variant.name] = _Line("black", "-", 2.4)
        else:
            lines[variant.name] = _Line(COLOURS[others % 9], _DASHES[others % 4], 1.9)
            others += 1
    return lines


def _dress(axes: Axes, window: _Range) -> None:
    axes.set_yscale("log")
    axes.set_ylim(window.low, window.high)
    axes.yaxis.set_major_locator(FixedLocator(ticks(window.low, window.high)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
