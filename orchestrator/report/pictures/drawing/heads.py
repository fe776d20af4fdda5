"""Heads compared: test perplexity against the size of the decoder and the time of training."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import EngFormatter, MaxNLocator

from orchestrator.report.pictures.curves import Limits
from orchestrator.report.pictures.drawing import style
from orchestrator.report.pictures.figures import COLOURS, GREY, HeadPoint, Heads, SeedRange
from orchestrator.words import listed, significant

# A shape and a colour for each kind of head, the same in every report; the shapes alone tell them apart in grey.
MARKERS = {
    "softmax": style.marker("o", 7.5, COLOURS[1]),
    "mixture": style.marker("s", 7.5, COLOURS[0]),
    "adaptive": style.marker("^", 7.5, COLOURS[2]),
    "hierarchical": style.marker("v", 7.5, COLOURS[5]),
    "differentiated": style.marker("D", 7.5, COLOURS[6]),
    "sampled": style.marker("P", 7.5, COLOURS[7]),
    "ecoc": style.marker("X", 7.5, COLOURS[4]),
}
_TALLEST = 8.0
"""If a few perplexities are more than this many times the lowest, their points stand at the top of the panels."""
_RING = style.marker("o", 12, "none")
_NUMBER: style.Style = {
    "textcoords": "offset points",
    "fontsize": 8,
    "zorder": 5,
    "path_effects": [withStroke(linewidth=1.5, foreground="white")],
}


def heads_figure(heads: Heads) -> tuple[Figure, str | None]:
    """Two panels with a numbered point for each variant and bars over its seeds; a sentence on those above."""
    ranked = sorted(heads.points, key=lambda point: (point.test_perplexity.mean, point.name))
    low, high = perplexity_range(ranked)
    margin = min(max((high / low) ** 0.1, 1.01), 10.0)
    above = [point for point in ranked if point.test_perplexity.mean > high]
    heights = [SeedRange(*[high * margin] * 3) if point in above else point.test_perplexity for point in ranked]
    top = high * (margin**2 if above else margin)
    figure = Figure(figsize=(10.4, max(4.4, 0.6 + 0.2 * len(ranked))))
    left, right = figure.subplots(1, 2, sharey=True, subplot_kw={"yscale": "log", "ylim": (low / margin, top)})
    parameters = [SeedRange(*[point.decoder_parameters] * 3) for point in ranked]
    for axes, places, offset in (
        (left, parameters, (9, -3)),  # beside upright bars, numbers are read best to the right
        (right, [point.train_seconds for point in ranked], (5, 4)),
    ):
        _scale_across(axes, places)
        axes.grid(**style.GRID)
        for number, (point, x, y) in enumerate(zip(ranked, places, heights, strict=True), 1):
            colour = MARKERS[point.kind]["markerfacecolor"]
            for ends in (([x.mean] * 2, [y.low, y.high]), ([x.low, x.high], [y.mean] * 2)):
                axes.plot(*ends, color=colour, linewidth=1.3, zorder=2)
            label = f"{number}  {style.one_line(point.name, 30)}"
            axes.plot(x.mean, y.mean, zorder=3, label=label, **MARKERS[point.kind])
            axes.annotate(str(number), (x.mean, y.mean), offset, **_NUMBER)
            if point in above:
                style.draw_arrow(axes, (x.mean, y.mean), (x.mean, top), colour)
            if point.name == heads.baseline:
                axes.plot(x.mean, y.mean, label="baseline", **_RING)
                axes.axhline(y.mean, color=GREY, linewidth=0.8, linestyle="dashed", zorder=1)
    style.log_ticks(left.yaxis, (low, high))
    left.xaxis.set_major_formatter(EngFormatter(sep=""))
    right.xaxis.set_major_formatter("{x:,.10g}")
    left.set_xlabel("parameters of the decoder itself")
    right.set_xlabel("seconds of training")
    left.set_ylabel("test perplexity (log scale)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    names = listed([f"{point.name} ({significant(point.test_perplexity.mean)})" for point in above])
    return figure, f"Above the top of the picture, where arrows point: {names}." if above else None


def perplexity_range(points: Sequence[HeadPoint]) -> Limits:
    """The range of perplexity shown: from the lowest seed to the highest, without a few heads far above the others."""
    highest = _TALLEST * min(point.test_perplexity.mean for point in points)
    near = [point.test_perplexity for point in points if point.test_perplexity.mean <= highest]
    if len(near) < 2 / 3 * len(points):
        near = [point.test_perplexity for point in points]
    return min(seeds.low for seeds in near), max(seeds.high for seeds in near)


def _scale_across(axes: Axes, places: Sequence[SeedRange]) -> None:
    """The horizontal scale: a logarithm if it spans more than a decade, with room for a decoder without parameters."""
    low, high = min(place.low for place in places), max(place.high for place in places)
    least = min((place.low for place in places if place.low > 0), default=1.0)
    axes.margins(x=0.12)
    if high <= 10 * least:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=style.ROUND_STEPS))
    elif low > 0:
        axes.set_xscale("log")
        style.log_ticks(axes.xaxis, (least, high))
    else:
        axes.set_xscale("symlog", linthresh=least)
