"""The pictures of a report, as SVG and PNG; the only door to matplotlib."""

from orchestrator.report.curves.forest import ForestRow, draw_forest, in_order
from orchestrator.report.curves.heads import draw_heads
from orchestrator.report.curves.learning import draw_overview
from orchestrator.report.curves.panels import draw_variants
from orchestrator.report.curves.series import VariantCurves
from orchestrator.report.curves.where import FrequencyRow, PositionRow, draw_frequency, draw_position

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
