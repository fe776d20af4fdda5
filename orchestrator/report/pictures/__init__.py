"""The pictures of a report: what they show (`figures`), when they are drawn (`renderer`), and how (`drawing`)."""

from orchestrator.report.pictures.figures import (
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
from orchestrator.report.pictures.renderer import Draw, Pictures, draw_with_matplotlib

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
