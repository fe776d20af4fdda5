"""Pictures are drawn in this process, and one that cannot be drawn costs the report that picture alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from lm.files import WriteError
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.differences import ForestRow, forest
from orchestrator.report.pictures.heads import heads
from tests.support import golden
from tests.support.pages import NoArtist, render

FOREST = [ForestRow("b", 0.1, 0.05, 0.15, "raises", None, False)], 0.005, "full", "95%"


class Tired(NoArtist):
    """Has no memory left for one kind of picture."""

    def draw(self, path: Path, figure: Callable[..., Figure], *shown: Any) -> None:
        if path.name == "overview.svg":
            raise MemoryError
        super().draw(path, figure, *shown)


def test_a_picture_that_cannot_be_drawn_is_missing_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pictures = Pictures(tmp_path)
    with caplog.at_level(logging.WARNING):
        pictures.draw("heads.svg", heads, [], "full")
        pictures.draw("forest.svg", forest, *FOREST)
    assert list(pictures.missing) == ["heads.svg"] and pictures.missing["heads.svg"].startswith("ValueError: ")
    assert [path.name for path in tmp_path.iterdir()] == ["forest.svg"]
    assert "heads.svg could not be drawn, the report is written without it: ValueError" in caplog.text


def test_a_font_that_is_gone_costs_the_picture_alone(tmp_path: Path) -> None:
    def draw(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/usr/share/fonts/gone.ttf")

    pictures = Pictures(tmp_path, draw)
    pictures.draw("forest.svg", forest, *FOREST)
    assert list(pictures.missing) == ["forest.svg"]


def test_the_page_says_which_picture_is_missing(tmp_path: Path) -> None:
    text = (golden.make(tmp_path, artist=Tired()) / "report.md").read_text(encoding="utf-8")
    assert "**overview.svg is missing**: it could not be drawn (MemoryError)." in text
    assert "(overview.svg)" not in text and "(variants.svg)" in text
    whole = (golden.FOLDER / "report.md").read_text(encoding="utf-8")
    assert render(text).tables == render(whole).tables


def test_a_picture_that_cannot_be_written_is_an_error_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="file"):
        Pictures(tmp_path / "file").draw("forest.svg", forest, *FOREST)
