"""Pictures are drawn in this process, and one that cannot be drawn costs the report that picture alone."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from lm.files import WriteError
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import Forest, ForestRow, Heads, Picture
from tests.support import golden
from tests.support.pages import NoArtist, render

FOREST = Forest([ForestRow("b", 0.1, 0.05, 0.15, "raises", None, False)], 0.005, "full", "95%")


class Tired(NoArtist):
    """Has no memory left for one kind of picture."""

    def draw(self, folder: Path, picture: Picture) -> str | None:
        if picture.FILE == "overview.svg":
            raise MemoryError
        return super().draw(folder, picture)


def test_a_picture_that_cannot_be_drawn_is_missing_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pictures = Pictures(tmp_path)
    with caplog.at_level(logging.WARNING):
        pictures.draw("heads", Heads([], "full"))
        pictures.draw("forest", FOREST)
    assert pictures.sentences == {"heads": None, "forest": None}
    assert list(pictures.missing) == ["heads.svg"] and pictures.missing["heads.svg"].startswith("ValueError: ")
    assert [path.name for path in tmp_path.iterdir()] == ["forest.svg"]
    assert "heads.svg could not be drawn, the report is written without it: ValueError" in caplog.text


def test_a_font_that_is_gone_costs_the_picture_alone(tmp_path: Path) -> None:
    def draw(folder: Path, picture: Picture) -> str | None:
        raise FileNotFoundError(2, "No such file or directory", "/usr/share/fonts/gone.ttf")

    pictures = Pictures(tmp_path, draw)
    pictures.draw("forest", FOREST)
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
        Pictures(tmp_path / "file").draw("forest", FOREST)


def test_matplotlib_is_imported_with_the_first_picture_and_needs_no_folder(tmp_path: Path) -> None:
    """It cannot be had where it finds no folder to write into: then the report is written without pictures."""
    code = (
        "import sys, tempfile; from pathlib import Path; from orchestrator.report.pictures import Pictures; "
        "from tests.orchestrator.pictures.test_artist import FOREST; assert 'matplotlib' not in sys.modules; "
        "tempfile.tempdir = '/dev/null/none'; pictures = Pictures(Path(sys.argv[1])); pictures.draw('', FOREST); "
        "print(pictures.missing)"
    )
    nowhere = {"HOME": "/dev/null", "MPLCONFIGDIR": "/dev/null/none", "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=nowhere, capture_output=True, text=True, check=True
    )
    assert "'forest.svg': 'RuntimeError: matplotlib cannot be imported: " in ended.stdout
    assert list(tmp_path.iterdir()) == []
