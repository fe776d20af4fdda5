"""Pages, tables and what pictures show, of made-up records of five designs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frozen.pages import DESIGNS, FOLDER, texts
from tests.frozen.still import steady


@pytest.mark.parametrize("design", DESIGNS)
def test_a_report_is_as_it_was(design: str, tmp_path: Path) -> None:
    """If a page was changed on purpose: `python -m tests.frozen.make pages`, and read the difference."""
    found = texts(design, tmp_path)
    expected = {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / design).iterdir()}
    assert found.keys() == expected.keys()
    for name, text in found.items():
        assert steady(text) == steady(expected[name]), name
