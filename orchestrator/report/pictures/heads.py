"""Heads compared: test perplexity against the size of the decoder and the time of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.report.pictures import style
from orchestrator.report.pictures.style import COLOURS, GREY
from orchestrator.words import significant

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


@dataclass(frozen=True)
class SeedRange:
    """A measure's mean over the complete seeds, its lowest and its highest seed."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class HeadPoint:
    """A variant with the kind of its head; `decoder_parameters` leaves a shared embedding out.

    `train_seconds` is None in all points if their times do not compare.
    """

    name: str
    kind: str
    decoder_parameters: int
    test_perplexity: SeedRange
    train_seconds: SeedRange | None


def heads(points: Sequence[HeadPoint], baseline: str) -> Figure:
    """A panel by parameters and one by time, if given: numbered points, bars over seeds, arrows to those far above."""
    times = [seconds for point in points if (seconds := point.train_seconds)]
    ranked = sorted(points, key=lambda point: (point.test_perplexity.mean, point.name))
    figure = Figure(figsize=(10.4, max(4.4, 0.6 + 0.2 * len(ranked))))
    panels: list[Axes] = list(figure.subplots(1, 1 + bool(times), sharey=True, squeeze=False)[0])
    left = panels[0]
    seeds = [seed for point in ranked for seed in (point.test_perplexity.low, point.test_perplexity.high)]
    top = max(style.perplexity_axis(axes, seeds) for axes in panels)
    places = {axes: list[tuple[float, float]]() for axes in panels}
    for number, point in enumerate(ranked, 1):
        test, marker, colour = point.test_perplexity, MARKERS[point.kind], MARKERS[point.kind]["markerfacecolor"]
        parameters, y = SeedRange(*[point.decoder_parameters] * 3), min(test.mean, top)
        above = f" ({significant(test.mean)})" if test.mean > top else ""
        for axes, across in zip(panels, filter(None, (parameters, point.train_seconds)), strict=True):
            axes.plot([across.mean] * 2, [min(test.low, top), min(test.high, top)], color=colour, linewidth=1.3)
            axes.plot([across.low, across.high], [y, y], color=colour, linewidth=1.3)
            label = f"{number}  {style.wrapped(point.name, 30, 3)}{above}"
            axes.plot(across.mean, y, zorder=3, label=label, **marker)
            places[axes].append((across.mean, y))
            if above:
                style.draw_arrow(axes, (across.mean, y), (across.mean, axes.get_ylim()[1]), colour)
            if point.name == baseline:
                axes.plot(across.mean, y, label="baseline", **style.marker("o", 12, "none"))
                axes.axhline(y, color=GREY, linewidth=0.8, linestyle="dashed", zorder=1)
    style.any_scale(left, left.xaxis, [point.decoder_parameters for point in ranked])
    for axes in panels[1:]:
        style.any_scale(axes, axes.xaxis, [end for seconds in times for end in (seconds.low, seconds.high)])
    for axes, label in zip(panels, ("parameters of the decoder itself", "seconds of training"), strict=False):
        axes.margins(x=0.12)
        axes.set_xlabel(label)
    left.set_ylabel("test perplexity (log scale)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    figure.draw_without_rendering()  # where the points lie is known once all has its place
    # Beside upright bars, numbers are read best to the right.
    for axes, offset in zip(panels, ((9, -3), (5, 4)), strict=False):
        style.number_places(axes, dict(enumerate(places[axes], 1)), offset)
    return figure
