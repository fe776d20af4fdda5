"""Learning curves of all variants in one picture: by epoch and by seconds of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from orchestrator.report.pictures.colours import GREY, looks
from orchestrator.report.pictures.drawing.look import legend_height, look, place, plain, save, ticks, width_of, wrapped
from orchestrator.report.pictures.drawing.series import (
    Across,
    Line,
    Window,
    band,
    cut_sentence,
    drawable,
    events,
    is_above,
    lowest_perplexity,
    points,
    window,
)
from orchestrator.report.pictures.figures import VariantCurves
from orchestrator.words import listed, number

MOST_COLOURED = 8
"""So many variants beside the baseline are told apart; of more, those that differ most from it."""
_FEW = 4
"""Up to so many variants are drawn with every seed, not with the band alone."""
_PALE = "#c4c4c4"
_DOTS = (0, (1, 2))
_LETTERS = "ABCDEFGH"
_APART = 0.042
"""The height of a letter, as a share of the panel's."""


def draw_overview(
    folder: Path, variants: Sequence[VariantCurves], published: float | None, unigram: float | None = None
) -> str | None:
    """Write `overview.svg`, all variants in one picture, by epoch and by seconds.

    `published` and `unigram` are validation perplexities to draw as lines, the second one only within the range of the
    curves. Returns sentences on points above the picture's top, on variants drawn in grey, and on those without a
    point; None where there are none. ValueError where nothing can be drawn.
    """
    seen = drawable(variants)
    shown = window(seen, published)
    levels = _levels(seen, shown, published, unigram)
    ordered = sorted(seen, key=lowest_perplexity, reverse=True)
    lines = _lines(variants, ordered, _told_apart(ordered, shown))
    size, unit = _unit(max(seed.seconds[-1] for variant in seen for seed in variant.seeds))
    with look():
        keys, handles = [*_keys(ordered), *levels.values()], _handles(ordered, lines)
        above, below = 0.1 + legend_height(keys, 5), 0.5 + legend_height(handles, 2, title=True)
        figure = Figure(figsize=(8.6, 2.9 + above + below))
        left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.06})
        place(figure, 0.36 + width_of([f"{tick:g}" for tick in ticks(shown.low, shown.high)], 9), 0.12, above, below)
        _draw_panel(left, ordered, lines, "epoch")
        _draw_panel(right, ordered, lines, "seconds")
        for axes in (left, right):
            for level, key in levels.items():
                axes.axhline(level, color=key.get_color(), linewidth=1.0, linestyle=_DOTS)
            dress(axes, shown)
            axes.set_xlim(0, 1.08 * axes.dataLim.x1)
            _letter_ends(axes, ordered, lines, shown, "epoch" if axes is left else "seconds")
        left.set_xlabel("epoch")
        right.set_xlabel(f"{unit} of training")
        right.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds / size:,.6g}"))
        right.xaxis.set_major_locator(
            FixedLocator([size * tick for tick in MaxNLocator(6).tick_values(0, right.get_xlim()[1] / size)])
        )
        left.set_ylabel("validation perplexity (log scale)")
        if keys:
            figure.legend(handles=keys, loc="upper center", ncols=5, fontsize=8, borderaxespad=0.2)
        title = "lowest point, mean over seeds"
        how = {"ncols": 2, "fontsize": 8, "handlelength": 3, "borderaxespad": 0.2}
        figure.legend(handles=handles, loc="lower center", title=title, **how)
        save(figure, folder, "overview")
    sentences = [cut_sentence(shown, [variant.name for variant in seen if is_above(variant, shown)])]
    if len(lines) < len(ordered):
        middle = "the baseline's" if any(variant.baseline for variant in ordered) else "the middle variant's"
        sentences.append(
            f"In colour are the {MOST_COLOURED} variants whose lowest points differ most from {middle}; the "
            f"other {len(ordered) - len(lines)} are grey."
        )
    if lost := [variant.name for variant in variants if variant.name not in {one.name for one in seen}]:
        told = listed(lost) if len(lost) <= MOST_COLOURED else f"{len(lost)} variants"
        sentences.append(f"Without a loss that is a number, and so not drawn: {told}.")
    return " ".join(sentence for sentence in sentences if sentence) or None


def dress(axes: Axes, shown: Window) -> None:
    """The vertical scale and the grid of every panel of learning curves."""
    axes.set_yscale("log")
    axes.set_ylim(shown.low, shown.high)
    axes.yaxis.set_major_locator(FixedLocator(ticks(shown.low, shown.high)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_event(axes: Axes, across: float, height: float, marker: str, colour: str) -> None:
    """A hollow mark on a curve, in its colour."""
    shape = {"markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": colour, "markeredgewidth": 1.0}
    axes.plot(across, height, marker=marker, zorder=4, **shape)  # type: ignore[arg-type]


def event_keys(variants: Sequence[VariantCurves]) -> list[Line2D]:
    """The legend of the events that the variants have."""
    shapes = {marker for variant in variants for seed in variant.seeds for _, marker in events(seed, variant.turns)}
    shape = {"linestyle": "none", "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": GREY}
    kinds = (("o", "averaging begins"), ("P", "other values begin"), ("D", "fine-tuning begins"))
    return [Line2D([], [], marker=m, label=label, **shape) for m, label in kinds if m in shapes]  # type: ignore[arg-type]


def _told_apart(ordered: Sequence[VariantCurves], shown: Window) -> set[str]:
    """The baseline, and the variants that differ most from it, those first that can be seen."""
    baseline = next((variant for variant in ordered if variant.baseline), ordered[len(ordered) // 2])
    middle = math.log(lowest_perplexity(baseline))
    others = [variant for variant in ordered if not variant.baseline]
    others.sort(key=lambda each: (is_above(each, shown), -abs(math.log(lowest_perplexity(each)) - middle)))
    return {variant.name for variant in others[:MOST_COLOURED]} | {v.name for v in ordered if v.baseline}


def _lines(planned: Sequence[VariantCurves], ordered: Sequence[VariantCurves], told_apart: set[str]) -> dict[str, Line]:
    """The lines of the variants told apart, in the order given; each looks as its place in the plan says."""
    lines = {variant.name: Line("black", "-", 2.4) for variant in ordered if variant.baseline}
    look_of = looks(variant.name for variant in planned if not variant.baseline)
    for variant in ordered:
        if variant.name in told_apart and not variant.baseline:
            colour, dash = look_of[variant.name]
            lines[variant.name] = Line(colour, dash.matplotlib, 1.7)
    return lines


def _draw_panel(axes: Axes, ordered: Sequence[VariantCurves], lines: Mapping[str, Line], across: Across) -> None:
    for variant in sorted(ordered, key=lambda each: (each.name in lines, each.baseline)):
        one = lines.get(variant.name, Line(_PALE, "-", 0.8))
        middle = band(variant.seeds)
        if middle is not None:
            places = middle.across(across)
            style = {"marker": "." if len(places) == 1 else "", "linestyle": one.dash, "linewidth": one.width}
            axes.plot(places, middle.mean, color=one.colour, zorder=3 if variant.name in lines else 2, **style)  # type: ignore[arg-type]
        if variant.name not in lines:
            continue
        if middle is not None and len(variant.seeds) > 1:
            axes.fill_between(places, middle.low, middle.high, color=one.colour, alpha=0.16, linewidth=0)
        each_seed = middle is None or (len(variant.seeds) > 1 and len(ordered) <= _FEW)
        for seed in variant.seeds:
            own = points(seed, across)
            if each_seed:
                axes.plot(*own, color=one.colour, linewidth=0.6, alpha=0.55)
            for k, marker in events(seed, variant.turns):
                place = middle.at(seed.epoch[k], across) if middle is not None else None
                if place is None and each_seed:
                    place = own[0][k], own[1][k]
                if place is not None:  # a mark off every line would say nothing
                    draw_event(axes, place[0], place[1], marker, one.colour)


def _letter_ends(
    axes: Axes, ordered: Sequence[VariantCurves], lines: Mapping[str, Line], shown: Window, across: Across
) -> None:
    """Write each line's letter at its end, or beside it with a thin line to it where two would cover each other."""
    end, low, high = axes.get_xlim()[1], math.log(shown.low), math.log(shown.high)
    names, places = [], []
    for variant in ordered:
        if variant.name not in lines or variant.baseline:
            continue
        middle = band(variant.seeds)
        if middle is not None and middle.mean[-1] <= shown.high:
            names.append(variant.name)
            places.append((float(middle.across(across)[-1]) / end, (math.log(middle.mean[-1]) - low) / (high - low)))
    for name, (x, y), height in zip(names, places, _spread(places), strict=True):
        colour = lines[name].colour
        moved = abs(height - y) > 0.01
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate(
            _letter(name, lines),
            (x, y),
            (x + (0.035 if moved else 0.012), height),
            xycoords="axes fraction",
            color=colour,
            fontsize=8,
            fontweight="bold",
            va="center",
            arrowprops=leader if moved else None,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )


def _spread(places: Sequence[tuple[float, float]]) -> list[float]:
    """Heights near the given ones at which letters do not cover each other; all in shares of the panel."""
    heights = [y for _, y in places]
    upward = sorted(range(len(places)), key=lambda k: places[k][1])
    for order, side, edge in ((upward, 1, 0.02), (upward[::-1], -1, 0.98)):
        for rank, k in enumerate(order):
            near = [heights[other] for other in order[:rank] if abs(places[other][0] - places[k][0]) < 0.04]
            bounds = [height + side * _APART for height in near] + [edge]
            heights[k] = max(heights[k], *bounds) if side > 0 else min(heights[k], *bounds)
    return heights


def _letter(name: str, lines: Mapping[str, Line]) -> str:
    return _LETTERS[[other for other, one in lines.items() if one.colour != "black"].index(name)]


def _levels(
    variants: Sequence[VariantCurves], shown: Window, published: float | None, unigram: float | None
) -> dict[float, Line2D]:
    """Perplexities to draw as lines, with their keys."""
    found = {}
    if published is not None:
        name = next((plain(variant.name, 24) for variant in variants if variant.baseline), "baseline")
        label = f"published, {name}: {published:g}"
        found[published] = Line2D([], [], color="black", linewidth=1.0, linestyle=_DOTS, label=label)
    if unigram is not None and shown.low < unigram < shown.high:
        label = f"unigram model: {number(unigram)}"
        found[unigram] = Line2D([], [], color=GREY, linewidth=1.0, linestyle=_DOTS, label=label)
    return found


def _keys(variants: Sequence[VariantCurves]) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    if any(len(variant.seeds) > 1 for variant in variants):
        keys.append(Line2D([], [], color=GREY, linewidth=2.2, label="mean over seeds"))
        keys.append(Patch(color=GREY, alpha=0.3, linewidth=0, label="lowest to highest seed"))
    return keys + event_keys(variants)


def _handles(ordered: Sequence[VariantCurves], lines: Mapping[str, Line]) -> list[Line2D]:
    handles = [_handle(variant, lines) for variant in ordered if variant.name in lines]
    if len(lines) < len(ordered):
        label = f"{len(ordered) - len(lines)} other variants"
        handles.append(Line2D([], [], color=_PALE, linewidth=0.8, label=label))
    return handles


def _handle(variant: VariantCurves, lines: Mapping[str, Line]) -> Line2D:
    one = lines[variant.name]
    figures = "" if variant.baseline else f"{_letter(variant.name, lines)}  "
    lowest = lowest_perplexity(variant)
    figures += f"{number(lowest, 2 if lowest < 100 else 1)}  " if variant.complete else "not complete  "
    label = figures + wrapped(variant.name, 42, 2).replace("\n", "\n" + " " * 16)
    return Line2D([], [], color=one.colour, linewidth=one.width, linestyle=one.dash, label=label)  # type: ignore[arg-type]


def _unit(seconds: float) -> tuple[float, str]:
    """The unit that a reader would use for so many seconds, and its length."""
    return (3600.0, "hours") if seconds >= 3 * 3600 else (60.0, "minutes") if seconds >= 180 else (1.0, "seconds")
