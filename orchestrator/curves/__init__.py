"""The pictures of a report, as SVG and PNG; the only door to matplotlib."""

from orchestrator.curves.heads import draw_heads
from orchestrator.curves.learning import VariantCurves, draw_overview, draw_variants

__all__ = ["VariantCurves", "draw_heads", "draw_overview", "draw_variants"]
