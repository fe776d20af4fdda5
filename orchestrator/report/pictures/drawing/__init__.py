"""Pictures as SVG; the only door to matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lm.files import atomic
from orchestrator.report.pictures.drawing.differences import frequency_figure, position_figure
from orchestrator.report.pictures.drawing.forest import forest_figure
from orchestrator.report.pictures.drawing.heads import heads_figure
from orchestrator.report.pictures.drawing.learning import overview_figure, panels_figure
from orchestrator.report.pictures.drawing.style import report_style
from orchestrator.report.pictures.figures import Forest, Frequency, Heads, Overview, Panels, Picture, Position


def draw(folder: Path, picture: Picture) -> str | None:
    """Write the picture into `folder`, the same bytes for the same values; returns `figure_of`'s sentences."""
    with report_style():
        figure, sentences = figure_of(picture)
        with atomic(folder / picture.FILE) as path:
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return sentences


def figure_of(picture: Picture) -> tuple[Figure, str | None]:
    """The picture as a figure, and what the page says of it: what lies outside or is left out, None if nothing."""
    match picture:
        case Forest():
            return forest_figure(picture)
        case Overview():
            return overview_figure(picture)
        case Panels():
            return panels_figure(picture)
        case Frequency():
            return frequency_figure(picture)
        case Position():
            return position_figure(picture)
        case Heads():
            return heads_figure(picture)
