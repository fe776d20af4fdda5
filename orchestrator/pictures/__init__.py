"""The pictures of a report: what they show (`shown`), who has them drawn (`artist`), and how it is done (`drawing`)."""

from orchestrator.pictures.artist import Pictures, prepare
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
    "in_order",
    "prepare",
]
