"""The pictures of a report, as SVG and PNG; the only door to matplotlib."""

from orchestrator.curves.forest import ForestRow, draw_forest, in_order
from orchestrator.curves.heads import draw_heads
from orchestrator.curves.learning import draw_overview
from orchestrator.curves.panels import draw_variants
from orchestrator.curves.series import VariantCurves
from orchestrator.curves.where import FrequencyRow, PositionRow, draw_frequency, draw_position

__all__ = [
    "ForestRow",
    "FrequencyRow",
    "PositionRow",
    "VariantCurves",
    "draw_forest",
    "draw_frequency",
    "draw_heads",
    "draw_overview",
    "draw_position",
    "draw_variants",
    "in_order",
]
