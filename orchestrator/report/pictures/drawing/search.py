"""Searches: best so far by trial, each searched value, where trials were stopped, a Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator

from orchestrator.report.pictures.drawing import style
from orchestrator.report.pictures.drawing.heads import MARKERS
from orchestrator.report.pictures.figures import COLOURS, GREY
from orchestrator.report.pictures.search_figures import (
    Front,
    Rungs,
    SearchAxis,
    SearchCourse,
    SearchPoint,
    SearchPoints,
    Slices,
)
from orchestrator.words import counted

_TALLEST = 10.0
"""Trials with more than this many times the lowest perplexity stand at the top: most of a search's are poor."""
_SHAPES = "os^vDPX"
_WIDTH = 5.8
"""Inches; on a page of 400 pixels the letters can still be read."""
_Y = "validation perplexity (log scale)"


def course_figure(course: SearchCourse) -> tuple[Figure, str | None]:
    """A point for each trial, a line for the best so far in each search."""
    trials = course.trials
    figure = Figure(figsize=(_WIDTH, 3.3))
    axes = figure.subplots()
    top, sentence = _perplexity_axis(axes, trials.points)
    _points(axes, trials, top, [(point, point.number) for point in trials.points])
    styles = _styles(trials)
    searches = list(dict.fromkeys(point.search for point in trials.points))
    for search in searches:
        best, steps = math.inf, []
        of_search = [point for point in trials.points if point.search == search]
        for point in of_search:
            best = min(best, point.perplexity if point.complete else math.inf)
            steps.append((point.number, best))
        steps = [(number, best) for number, best in steps if best < math.inf]
        colour = "black" if len(searches) == 1 else str(styles[of_search[0].group]["markerfacecolor"])
        axes.step(*zip(*steps, strict=True), where="post", color=colour, linewidth=1.2) if steps else None
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("trial")
    axes.set_ylabel(_Y)
    _legend(figure, trials)
    return figure, sentence


def slices_figure(slices: Slices) -> tuple[Figure, str | None]:
    """A small panel for each searched value over its range; a ring marks the best of each search."""
    columns = min(len(slices.axes), 3)
    rows = math.ceil(len(slices.axes) / columns)
    figure = Figure(figsize=(_WIDTH + 0.4, 1.75 * rows + (0.5 if rows > 1 else 0.9)))
    best = _best(slices.trials.points)
    for place, searched in enumerate(slices.axes):
        axes = figure.add_subplot(rows, columns, 1 + place)
        top, _ = _perplexity_axis(axes, slices.trials.points)
        _across(axes, searched)
        having = [point for point in slices.trials.points if searched.path in point.values]
        values = [point.values[searched.path] for point in having]
        places = [searched.options.index(str(value)) if searched.options else float(value) for value in values]
        _points(axes, slices.trials, top, list(zip(having, places, strict=True)), size=3.5)
        for point, x in zip(having, places, strict=True):
            if point in best:
                axes.plot(x, min(point.perplexity, top), zorder=4, **style.marker("o", 8, "none", width=1.0))
        axes.set_title(style.one_line(searched.path, 30), loc="left", fontsize=7.5, pad=3)
        axes.tick_params(labelsize=7, labelleft=place % columns == 0)
    figure.supylabel(_Y, fontsize=8)
    _legend(figure, slices.trials)
    return figure, _perplexity_axis(Figure().subplots(), slices.trials.points)[1]


def rungs_figure(rungs: Rungs) -> tuple[Figure, str | None]:
    """A line for each trial, with a cross where it was stopped and a point where it was complete."""
    figure = Figure(figsize=(_WIDTH, 3.3))
    axes = figure.subplots()
    styles = _styles(rungs.trials)
    trained = [point for point in rungs.trials.points if point.curve]
    top, sentence = _perplexity_axis(axes, trained)
    for epoch in rungs.epochs:
        axes.axvline(epoch, color=GREY, linewidth=0.7, linestyle="dotted", zorder=1)
    for point in trained:
        colour = str(styles[point.group]["markerfacecolor"])
        epochs, perplexities = zip(*point.curve, strict=True)
        end = style.marker("x" if point.stopped else "o", 4.5, colour, colour, 1.1)
        axes.plot(epochs, [min(value, top) for value in perplexities], color=colour, linewidth=0.7, alpha=0.7)
        axes.plot(epochs[-1], min(perplexities[-1], top), zorder=3, **end) if point.stopped or point.complete else None
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel(_Y)
    _legend(figure, rungs.trials)
    return figure, sentence


def front_figure(front: Front) -> tuple[Figure, str | None]:
    """Every complete trial, those on the front joined by a line and numbered, their names below."""
    named = sorted((point for point in front.points if point.name is not None), key=lambda point: point.x)
    figure = Figure(figsize=(_WIDTH, 3.4 + 0.17 * len(named)))
    axes = figure.subplots()
    axes.grid(**style.GRID)
    rest = [(point.x, point.y) for point in front.points if point.name is None]
    axes.plot([x for x, _ in rest], [y for _, y in rest], **style.marker("o", 4, "white", GREY))
    axes.step([point.x for point in named], [point.y for point in named], where="post", color=COLOURS[1], linewidth=0.9)
    for point in named:
        label = f"{point.number}  {style.one_line(point.name or '', 70)}"
        axes.plot(point.x, point.y, zorder=3, label=label, **style.marker("o", 6, COLOURS[1]))
        axes.annotate(str(point.number), (point.x, point.y), (5, 4), textcoords="offset points", fontsize=8, zorder=5)
    for axis, values in ((axes.xaxis, [p.x for p in front.points]), (axes.yaxis, [p.y for p in front.points])):
        _any_scale(axes, axis, values)
    axes.margins(0.12)
    axes.set_xlabel(front.x_label)
    axes.set_ylabel(front.y_label)
    figure.legend(loc="outside lower left", ncols=1, handlelength=1.0)
    return figure, None


def _any_scale(axes: Axes, axis: Axis, values: Sequence[float]) -> None:
    """A log scale if the values span more than a factor of five; numbers in thousands and millions."""
    low, high = min(values), max(values)
    if low > 0 and high > 5 * low:
        (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        style.log_ticks(axis, (low, high))
    else:
        axis.set_major_locator(MaxNLocator(6, steps=style.ROUND_STEPS))
    axis.set_major_formatter(EngFormatter(sep=""))


def _perplexity_axis(axes: Axes, points: Sequence[SearchPoint]) -> tuple[float, str | None]:
    """A log scale from the best to the worst, but far ones; the height of those, and what the page says of them."""
    values = [point.perplexity for point in points]
    low = min(values, default=1.0)
    top = min(max(values, default=2.0), _TALLEST * low)
    axes.set_yscale("log")
    margin = max((top / low) ** 0.08, 1.01)
    axes.set_ylim(low / margin, top * margin)
    style.log_ticks(axes.yaxis, (low / margin, top * margin))
    axes.grid(**style.GRID)
    above = sum(value > top for value in values)
    stands = "stands" if above == 1 else "stand"
    return top, f"{counted(above, 'trial')} above {top:,.0f} {stands} at the top." if above else None


def _best(points: Sequence[SearchPoint]) -> list[SearchPoint]:
    """The best complete trial of each search."""
    complete = sorted((point for point in points if point.complete), key=lambda point: -point.perplexity)
    return list({point.search: point for point in complete}.values())


def _across(axes: Axes, searched: SearchAxis) -> None:
    """The whole range that was searched, or every option."""
    if searched.options:
        names = [style.one_line(option, 12) for option in searched.options]
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.5, len(names) - 0.5)
        return
    (low, high), log = searched.ends, searched.scale == "log"
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=style.ROUND_STEPS))
    margin = (high / low) ** 0.04 if log else 0.04 * (high - low)
    axes.set_xlim((low / margin, high * margin) if log else (low - margin, high + margin))


def _points(
    axes: Axes, trials: SearchPoints, top: float, places: Sequence[tuple[SearchPoint, float]], size: float = 4.5
) -> None:
    """A point a trial, hollow unless it is complete, no higher than the top."""
    styles = _styles(trials)
    for point, x in places:
        colour, shape = (str(styles[point.group][key]) for key in ("markerfacecolor", "marker"))
        how = style.marker(shape, size, colour if point.complete else "white", colour, 0.9)
        axes.plot(x, min(point.perplexity, top), zorder=3 if point.complete else 2, **how)


def _styles(trials: SearchPoints) -> dict[str, style.Style]:
    """A marker for each group; heads have the same in every picture."""
    if trials.heads:
        return {group: MARKERS[group] for group in trials.groups}
    shapes = [(COLOURS[(k + 1) % len(COLOURS)], _SHAPES[k % len(_SHAPES)]) for k in range(len(trials.groups))]
    return {group: style.marker(shape, 6, colour) for group, (colour, shape) in zip(trials.groups, shapes, strict=True)}


def _legend(figure: Figure, trials: SearchPoints) -> None:
    """What colours stand for, if there are several."""
    keys: list[Artist] = [
        Line2D([], [], label=style.one_line(group, 30), **how) for group, how in _styles(trials).items()
    ]
    if len(keys) > 1:
        figure.legend(handles=keys, loc="outside upper center", ncols=min(len(keys), 3), columnspacing=1.0)
