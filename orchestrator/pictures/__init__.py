"""The pictures of a report: what they show (`shown`), when they are drawn (`artist`), and how (`drawing`)."""

from orchestrator.pictures.artist import Draw, Pictures, draw_with_matplotlib
from orchestrator.pictures.shown import (
    Forest,
    ForestRow,
    Frequency,
    FrequencyRow,
    HeadPoint,
    Heads,
    Overview,
    Panels,
    Position,
    PositionRow,
    Reach,
    VariantCurves,
    in_order,
)

__all__ = [
    "Draw",
    "Forest",
    "ForestRow",
    "Frequency",
    "FrequencyRow",
    "HeadPoint",
    "Heads",
    "Overview",
    "Panels",
    "Pictures",
    "Position",
    "PositionRow",
    "Reach",
    "VariantCurves",
    "draw_with_matplotlib",
    "in_order",
]
