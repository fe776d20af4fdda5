"""Searches: best so far by trial, each searched value, where trials were stopped, a Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from orchestrator.report.pictures import style
from orchestrator.report.pictures.heads import MARKERS
from orchestrator.report.pictures.style import COLOURS, GREY

_WIDTH = 5.8
"""Inches; on a page of 400 pixels the letters can still be read."""
_Y = "validation perplexity (log scale)"


@dataclass(frozen=True)
class SearchPoint:
    """A trial of a search with its best validation perplexity; `values` by path, of choices the option's name.

    Trials of a `group` have a colour: a variant, or the kind of a head. `curve` has the epochs with the best perplexity
    until each. Unless `complete`, it was stopped or is under way.
    """

    search: str
    group: str
    number: int
    perplexity: float
    complete: bool
    stopped: bool
    values: Mapping[str, float | str]
    curve: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class SearchAxis:
    """A searched value: the `options` of a choice, or the `ends` of a number's range, of `whole` numbers or any."""

    path: str
    scale: Literal["linear", "log"] = "linear"
    options: Sequence[str] = ()
    ends: tuple[float, float] = (0.0, 1.0)
    whole: bool = False


@dataclass(frozen=True)
class FrontPoint:
    """A complete trial with its two objectives, `y` the first; `name` says what it is if it is on the front."""

    number: int
    x: float
    y: float
    name: str | None


def course(trials: Sequence[SearchPoint]) -> Figure:
    """A point for each trial, a line for the best complete one so far in each search."""
    figure, axes, top = _axes_of_perplexity(trials, trials, "trial")
    _points(axes, trials, top, [(point, point.number) for point in trials])
    searches = {point.search: [each for each in trials if each.search == point.search] for point in trials}
    for points in searches.values():
        best = np.minimum.accumulate([point.perplexity if point.complete else math.inf for point in points])
        colour = "black" if len(searches) == 1 else str(_markers(trials)[points[0].group]["markerfacecolor"])
        known = np.isfinite(best)
        numbers = np.array([point.number for point in points])[known]
        axes.step(numbers, best[known], where="post", color=colour, linewidth=1.2)
    return figure


def slices(trials: Sequence[SearchPoint], axes_shown: Sequence[SearchAxis]) -> Figure:
    """A small panel for each searched value over its range; a ring marks the best of each search."""
    columns = min(len(axes_shown), 3)
    rows = math.ceil(len(axes_shown) / columns)
    figure = Figure(figsize=(_WIDTH + 0.4, 1.75 * rows + (0.5 if rows > 1 else 0.9) + _long_legend(trials)))
    complete = sorted((point for point in trials if point.complete), key=lambda point: -point.perplexity)
    best = [*{point.search: point for point in complete}.values()]
    for place, searched in enumerate(axes_shown):
        axes = figure.add_subplot(rows, columns, 1 + place)
        top = style.perplexity_axis(axes, [point.perplexity for point in trials])
        _across(axes, searched)
        values = [(point, point.values[searched.path]) for point in trials if searched.path in point.values]
        places = [(p, searched.options.index(str(v)) if searched.options else float(v)) for p, v in values]
        _points(axes, trials, top, places, size=3.5)
        for point, x in places:
            if point in best:
                axes.plot(x, min(point.perplexity, top), zorder=4, **style.marker("o", 8, "none", width=1.0))
        axes.set_title(style.one_line(searched.path, 30), loc="left", fontsize=7.5, pad=3)
        axes.tick_params(labelsize=7, labelleft=place % columns == 0)
    figure.supylabel(_Y, fontsize=8)
    _legend(figure, trials)
    return figure


def rungs(trials: Sequence[SearchPoint], epochs: Sequence[int]) -> Figure:
    """A line for each trial, with a cross where it was stopped, at one of these epochs, and a point where complete."""
    trained = [point for point in trials if point.curve]
    figure, axes, top = _axes_of_perplexity(trials, trained, "epoch")
    for epoch in epochs:
        axes.axvline(epoch, color=GREY, linewidth=0.7, linestyle="dotted", zorder=1)
    for point in trained:
        colour = str(_markers(trials)[point.group]["markerfacecolor"])
        x, y = zip(*((epoch, min(perplexity, top)) for epoch, perplexity in point.curve), strict=True)
        axes.plot(x, y, color=colour, linewidth=0.7, alpha=0.7)
        if point.stopped or point.complete:
            end = style.marker("x" if point.stopped else "o", 4.5, colour, colour, 1.1)
            axes.plot(x[-1], y[-1], zorder=3, **end)
        if point.curve[-1][1] > top:
            _draw_beyond(axes, x[-1], top, colour)
    return figure


def front(points: Sequence[FrontPoint], x_label: str, y_label: str) -> Figure:
    """Two objectives, small at their best: those on the front joined by a line and numbered, their names below."""
    named = sorted((point for point in points if point.name is not None), key=lambda point: point.x)
    figure = Figure(figsize=(_WIDTH, 3.4 + 0.17 * len(named)))
    axes = figure.subplots()
    axes.grid(**style.GRID)
    rest = [(point.x, point.y) for point in points if point.name is None]
    axes.plot([x for x, _ in rest], [y for _, y in rest], **style.marker("o", 4, "white", GREY))
    axes.step([point.x for point in named], [point.y for point in named], where="post", color=COLOURS[1], linewidth=0.9)
    for point in named:
        label = f"{point.number}  {style.one_line(point.name or '', 70)}"
        axes.plot(point.x, point.y, zorder=3, label=label, **style.marker("o", 6, COLOURS[1]))
    style.any_scale(axes, axes.xaxis, [point.x for point in points])
    style.any_scale(axes, axes.yaxis, [point.y for point in points])
    axes.margins(0.12)
    axes.set(xlabel=x_label, ylabel=y_label)
    figure.legend(loc="outside lower left", ncols=1, handlelength=1.0)
    figure.draw_without_rendering()  # where the points lie is known once all has its place
    style.number_places(axes, {point.number: (point.x, point.y) for point in named}, (5, 4))
    return figure


def _axes_of_perplexity(
    trials: Sequence[SearchPoint], shown: Sequence[SearchPoint], x_label: str
) -> tuple[Figure, Axes, float]:
    """A figure with the legend of the trials, axes over whole numbers, the perplexity at which far ones stand."""
    figure = Figure(figsize=(_WIDTH, 3.3 + _long_legend(trials)))
    axes = figure.subplots()
    top = style.perplexity_axis(axes, [point.perplexity for point in shown])
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set(xlabel=x_label, ylabel=_Y)
    _legend(figure, trials)
    return figure, axes, top


def _across(axes: Axes, searched: SearchAxis) -> None:
    """The whole range that was searched, or every option."""
    if searched.options:
        names = [style.one_line(option, 12) for option in searched.options]
        rotation = 30 if len(names) <= 8 else 60 if len(names) <= 14 else 90
        axes.set_xticks(range(len(names)), names, rotation=rotation, ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.5, len(names) - 0.5)
        return
    (low, high), log = searched.ends, searched.scale == "log"
    if log:
        axes.set_xscale("log")
        style.log_ticks(axes.xaxis, (low, high))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=style.ROUND_STEPS, integer=searched.whole))
    margin = (high / low) ** 0.04 if log else 0.04 * (high - low)
    axes.set_xlim((low / margin, high * margin) if log else (low - margin, high + margin))


def _points(
    axes: Axes,
    trials: Sequence[SearchPoint],
    top: float,
    places: Sequence[tuple[SearchPoint, float]],
    size: float = 4.5,
) -> None:
    """A point a trial, hollow unless it is complete, no higher than the top."""
    markers = _markers(trials)
    for point, x in places:
        colour, shape = (str(markers[point.group][key]) for key in ("markerfacecolor", "marker"))
        how = style.marker(shape, size, colour if point.complete else "white", colour, 0.9)
        axes.plot(x, min(point.perplexity, top), zorder=3 if point.complete else 2, **how)
        if point.perplexity > top:
            _draw_beyond(axes, x, top, colour)


def _draw_beyond(axes: Axes, x: float, top: float, colour: str) -> None:
    """An arrow from a point at the top, whose perplexity is higher."""
    style.draw_arrow(axes, (x, top), (x, axes.get_ylim()[1]), colour)


def _markers(trials: Sequence[SearchPoint]) -> dict[str, style.Style]:
    """A marker for each group, in the order of the trials; heads have the same in every picture."""
    groups = list(dict.fromkeys(point.group for point in trials))
    if set(groups) <= MARKERS.keys():
        return {group: MARKERS[group] for group in groups}
    colours = [COLOURS[(k + 1) % len(COLOURS)] for k in range(len(groups))]
    return {group: style.marker(style.SHAPES[k % len(style.SHAPES)], 6, colours[k]) for k, group in enumerate(groups)}


def _long_legend(trials: Sequence[SearchPoint]) -> float:
    """Inches that a legend of more than two rows takes beyond them."""
    return 0.17 * max(0, math.ceil(len(_markers(trials)) / 3) - 2)


def _legend(figure: Figure, trials: Sequence[SearchPoint]) -> None:
    """What colours stand for, if there are several."""
    keys = [Line2D([], [], label=style.one_line(group, 30), **how) for group, how in _markers(trials).items()]
    if len(keys) > 1:
        figure.legend(handles=keys, loc="outside upper center", ncols=min(len(keys), 3), columnspacing=1.0)
