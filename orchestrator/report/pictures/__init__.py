"""The pictures of a report: what each shows (`figures`), how it is drawn (`drawing`), and which could not be drawn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from lm.files import WriteError
from orchestrator.report.pictures.figures import Picture
from orchestrator.words import Markdown, escape

_log = logging.getLogger(__name__)

Draw = Callable[[Path, Picture], str | None]
"""Writes a picture into a folder, and returns what the page says of it, None if nothing."""


def draw_with_matplotlib(folder: Path, picture: Picture) -> str | None:
    """Imports matplotlib with the first picture; RuntimeError if it has no folder for its own files."""
    try:
        from orchestrator.report.pictures.drawing import draw
    except OSError as error:  # it needs a home or a temporary folder that it can write, the report does not
        raise RuntimeError(f"matplotlib cannot be imported: {error}") from error
    return draw(folder, picture)


class Pictures:
    """The pictures of one report; what the page says of each, by the template's cell, and why a file is missing."""

    def __init__(self, folder: Path, draw: Draw = draw_with_matplotlib) -> None:
        self._folder = folder
        self._draw = draw
        self.sentences: dict[str, str | None] = {}
        self.missing: dict[str, str] = {}

    def on_page(self, file: str, alt: Markdown) -> Markdown:
        """The picture as the page shows it, or why it is missing."""
        if file not in self.missing:
            return Markdown(f"![{alt}]({file})")
        return Markdown(f"**{file} is missing**: it could not be drawn ({escape(self.missing[file])}). {alt}.")

    def draw(self, cell: str, picture: Picture) -> None:
        """Draw a picture; any error but WriteError costs it alone: the page may stand for hours of training."""
        self.sentences[cell] = None
        try:
            self.sentences[cell] = self._draw(self._folder, picture)
        except WriteError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self.missing[picture.FILE] = why
            _log.warning("%s could not be drawn, the report is written without it: %s", picture.FILE, why)
            _log.debug("%s", picture.FILE, exc_info=True)
