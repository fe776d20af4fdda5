"""Labels beside the points of a picture, so that none covers another where that can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from orchestrator.report.pictures.colours import GREY
from orchestrator.report.pictures.figures import Reach

_LABEL_SIZE = 8
_NEAR = 9.0
_Offset = tuple[float, float]
# Where a label may stand from its point, in points: right, left, above, below, then the corners; near ones first.
_OFFSETS: tuple[_Offset, ...] = tuple(
    (distance * across, distance * up)
    for distance in (_NEAR, 16.0, 26.0, 38.0)
    for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8), (-0.8, -0.8))
)


def label_points(axes: Axes, labels: Sequence[str], points: Sequence[tuple[Reach, Reach]]) -> None:
    """Write each label beside its point, where it covers least; a thin line leads to one that stands apart."""
    taken = [box for x, y in points for box in _drawn(axes, x, y)]
    centres = [_pixels(axes, x, y) for x, y in points]
    room = axes.get_window_extent()
    for label, (x, y), centre in zip(labels, points, centres, strict=True):
        probe = axes.text(x.mean, y.mean, label, fontsize=_LABEL_SIZE)
        size = probe.get_window_extent()
        probe.remove()
        boxes = {offset: _box(axes, centre, size, offset) for offset in _OFFSETS}
        apart = {offset: _apart(box, centre, centres) for offset, box in boxes.items()}

        def cost(offset: _Offset, boxes: dict[_Offset, Bbox] = boxes, apart: dict[_Offset, bool] = apart) -> float:
            outside = _common(boxes[offset], boxes[offset]) - _common(boxes[offset], room)
            covered = sum(_common(boxes[offset], other) for other in taken)
            return math.hypot(*offset) + 20.0 * apart[offset] + covered + 10.0 * outside

        offset = min(_OFFSETS, key=cost)
        taken.append(boxes[offset])
        leader = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            label,
            (x.mean, y.mean),
            offset,
            textcoords="offset points",
            ha=("center", "left", "right")[_sign(offset[0])],
            va=("center", "bottom", "top")[_sign(offset[1])],
            fontsize=_LABEL_SIZE,
            zorder=5,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            arrowprops=leader if apart[offset] or math.hypot(*offset) > 1.2 * _NEAR else None,
        )


def _drawn(axes: Axes, x: Reach, y: Reach) -> list[Bbox]:
    """What a point covers, in pixels: its marker and its two bars."""
    corners = axes.transData.transform([(x.mean, y.mean), (x.low, y.low), (x.high, y.high)])
    (middle, centre), (west, south), (east, north) = corners.tolist()
    half = 6.0 * _scale(axes)
    return [
        Bbox.from_extents(middle - half, centre - half, middle + half, centre + half),
        Bbox.from_extents(west, centre - 1, east, centre + 1),
        Bbox.from_extents(middle - 1, south, middle + 1, north),
    ]


def _box(axes: Axes, centre: tuple[float, float], size: Bbox, offset: _Offset) -> Bbox:
    """What a label of this size covers at an offset from its point, in pixels."""
    left = centre[0] + offset[0] * _scale(axes) + (_sign(offset[0]) - 1) / 2 * size.width
    bottom = centre[1] + offset[1] * _scale(axes) + (_sign(offset[1]) - 1) / 2 * size.height
    return Bbox.from_bounds(left, bottom, size.width, size.height)


def _apart(box: Bbox, own: tuple[float, float], centres: Sequence[tuple[float, float]]) -> bool:
    """Whether a label stands nearer to another point than to its own."""

    def away(point: tuple[float, float]) -> float:
        return math.hypot(
            max(box.x0 - point[0], 0.0, point[0] - box.x1), max(box.y0 - point[1], 0.0, point[1] - box.y1)
        )

    return any(away(other) < away(own) for other in centres)


def _common(box: Bbox, other: Bbox) -> float:
    both = Bbox.intersection(box, other)
    return 0.0 if both is None else float(both.width * both.height)


def _pixels(axes: Axes, x: Reach, y: Reach) -> tuple[float, float]:
    across, up = axes.transData.transform((x.mean, y.mean)).tolist()
    return across, up


def _scale(axes: Axes) -> float:
    """Pixels in a point, 1/72 inch."""
    return float(axes.get_figure(root=True).dpi) / 72  # type: ignore[union-attr]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
