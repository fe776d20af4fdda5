"""Pictures as SVG; the only door to matplotlib."""

from __future__ import annotations

from pathlib import Path

from orchestrator.report.pictures.drawing.forest import draw_forest
from orchestrator.report.pictures.drawing.heads import draw_heads
from orchestrator.report.pictures.drawing.learning import draw_overview
from orchestrator.report.pictures.drawing.panels import draw_variants
from orchestrator.report.pictures.drawing.where import draw_frequency, draw_position
from orchestrator.report.pictures.figures import Forest, Frequency, Heads, Overview, Panels, Picture, Position


def draw(folder: Path, picture: Picture) -> str | None:
    """Write the picture into `folder`; what the page is to say of it, such as what lies outside, None where nothing."""
    match picture:
        case Forest(rows, margin_nats, baseline, level):
            return draw_forest(folder, rows, margin_nats, baseline, level)
        case Overview(variants, published, unigram):
            return draw_overview(folder, variants, published, unigram)
        case Panels(variants):
            return draw_variants(folder, variants)
        case Frequency(rows, labels, shares, baseline):
            return draw_frequency(folder, rows, labels, shares, baseline)
        case Position(rows, baseline):
            return draw_position(folder, rows, baseline)
        case Heads(points, baseline):
            return draw_heads(folder, points, baseline)
