"""Pictures as SVG; the only door to matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lm.files import atomic
from orchestrator.report.pictures.drawing.differences import forest_figure, frequency_figure, position_figure
from orchestrator.report.pictures.drawing.heads import heads_figure
from orchestrator.report.pictures.drawing.learning import overview_figure, panels_figure
from orchestrator.report.pictures.drawing.lines import lines_figure
from orchestrator.report.pictures.drawing.search import course_figure, front_figure, rungs_figure, slices_figure
from orchestrator.report.pictures.drawing.style import report_style
from orchestrator.report.pictures.drawing.words import words_figure
from orchestrator.report.pictures.figures import (
    Forest,
    Frequency,
    Heads,
    Lines,
    Overview,
    Panels,
    Picture,
    Position,
    Words,
)
from orchestrator.report.pictures.search_figures import Front, Rungs, SearchCourse, Slices

_FIGURES: dict[type[Picture], Callable[[Any], tuple[Figure, str | None]]] = {
    Forest: forest_figure,
    Overview: overview_figure,
    Panels: panels_figure,
    Frequency: frequency_figure,
    Position: position_figure,
    Heads: heads_figure,
    Words: words_figure,
    Lines: lines_figure,
    SearchCourse: course_figure,
    Slices: slices_figure,
    Rungs: rungs_figure,
    Front: front_figure,
}


def draw(folder: Path, picture: Picture) -> str | None:
    """Write the picture into `folder`, the same bytes for the same values; returns `figure_of`'s sentences."""
    with report_style():
        figure, sentences = figure_of(picture)
        with atomic(folder / picture.FILE) as path:
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return sentences


def figure_of(picture: Picture) -> tuple[Figure, str | None]:
    """The picture as a figure, and what the page says of it: what lies outside or is left out, None if nothing."""
    return _FIGURES[type(picture)](picture)
