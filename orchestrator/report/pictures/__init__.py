"""The pictures of a report: functions from what one shows to matplotlib's figure, which is saved here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from matplotlib.figure import Figure

from lm.files import WriteError, atomic
from orchestrator.report.pictures.style import report_style
from orchestrator.words import Markdown, escape

P = ParamSpec("P")
_log = logging.getLogger(__name__)


def save(path: Path, figure: Callable[P, Figure], *shown: P.args, **named: P.kwargs) -> None:
    """Write a figure of these values as SVG, the same bytes for the same values."""
    with report_style():
        drawn = figure(*shown, **named)
        with atomic(path) as part:
            drawn.savefig(part, format="svg", metadata={"Date": None, "Creator": None})


class Pictures:
    """The pictures of one report, and why one is missing, by its file."""

    def __init__(self, folder: Path, save: Callable[..., None] = save) -> None:
        self._folder = folder
        self._save: Callable[..., Any] = save
        self.missing: dict[str, str] = {}

    def on_page(self, file: str, alt: Markdown) -> Markdown:
        """The picture as the page shows it, or why it is missing."""
        if file not in self.missing:
            return Markdown(f"![{alt}]({file})")
        return Markdown(f"**{file} is missing**: it could not be drawn ({escape(self.missing[file])}). {alt}.")

    def draw(self, file: str, figure: Callable[P, Figure], *shown: P.args, **named: P.kwargs) -> None:
        """Draw a picture; any error but WriteError costs it alone: the page may stand for hours of training."""
        try:
            self._save(self._folder / file, figure, *shown, **named)
        except WriteError:
            raise
        except Exception as error:
            self.missing[file] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            _log.warning("%s could not be drawn, the report is written without it: %s", file, self.missing[file])
            _log.debug("%s", file, exc_info=True)
