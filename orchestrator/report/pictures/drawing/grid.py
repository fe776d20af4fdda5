"""Small multiples: a panel a variant, to be drawn on axes of the same limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from orchestrator.report.pictures.drawing.look import wrapped

MOST_PANELS = 24
_WIDTH, _RIGHT, _BELOW, _BETWEEN = 8.6, 0.12, 0.55, 0.16
_LINE = 0.14
"""The height of a line of small letters; all sizes in inches."""
_MOST_LINES = 4
"""Of a title: what a factorial takes away is long, and names that are cut may be the same."""


def columns(count: int) -> int:
    """So many panels stand side by side."""
    return min(count, 3 if count <= 12 else 4)


def grid(
    names: Sequence[str], keys: Sequence[Line2D | Patch], height: float, left: float, labels: tuple[str, str]
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel a name, at least one, under its title; a legend above, labels below and beside them all.

    `height` of a panel, and room to the `left` of them: inches. Laid out by hand, since matplotlib's own layout takes
    seconds for dozens of panels.
    """
    across = columns(len(names))
    rows = math.ceil(len(names) / across)
    titles = [wrapped(name, 24 if across > 3 else 32, _MOST_LINES) for name in names]
    width = _WIDTH if across > 2 else _WIDTH * 2 / 3
    gap = _LINE * max(title.count("\n") + 1 for title in titles) + 0.1
    beside = 6 if across > 2 else 3
    above = gap + 0.2 * math.ceil(len(keys) / beside) + 0.05
    between = gap + (0.2 if len(names) % across else 0.0)
    tall = above + rows * height + (rows - 1) * between + _BELOW
    panel = (width - left - _RIGHT - (across - 1) * _BETWEEN) / across
    figure = Figure(figsize=(width, tall))
    places = {"left": left / width, "right": 1 - _RIGHT / width, "top": 1 - above / tall, "bottom": _BELOW / tall}
    gaps = {"wspace": _BETWEEN / panel, "hspace": between / height}
    room = figure.add_gridspec(rows, across, **places, **gaps)
    panels = []
    for k, title in enumerate(titles):
        # No shared axes: of dozens matplotlib asks each for the limits of all, again and again.
        axes = figure.add_subplot(room[divmod(k, across)])
        # At a stated height: to find one, matplotlib draws every tick's label once more.
        axes.set_title(title, loc="left", fontsize=8, fontweight="bold", pad=3, y=1.0)
        # A column whose lowest place is empty gets its numbers under the panel above.
        axes.tick_params(labelleft=k % across == 0, labelbottom=k + across >= len(names))
        panels.append(axes)
    figure.legend(handles=keys, loc="upper center", ncols=beside, fontsize=8, borderaxespad=0.2)
    figure.supxlabel(labels[0], fontsize=9, y=0.06 / tall)
    figure.supylabel(labels[1], fontsize=8, x=0.06 / width)
    return figure, panels
