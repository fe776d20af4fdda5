"""What the tests of pages look for is found: every page that a test writes goes through `misread`."""

from __future__ import annotations

import pytest

from tests.support.pages import misread

TABLE = "| a | b |\n| :-- | :-- |\n| 1 | 2 |\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"# t\n\nsaid\n\n{TABLE}\nsaid\n", []),
        (f"# t\n\n## s\n\n{TABLE}", []),
        (f"{TABLE}All trials: [all](all.csv).\n", ["a row of a table: All trials: [all](all.csv)."]),
        (f"said\n{TABLE}", []),
        ("said\n| 1 | 2 |\n", ["a paragraph: said"]),
        ("| a | b |\n\n| 1 | 2 |\n", ["a paragraph: | a | b |", "a paragraph: | 1 | 2 |"]),
        ("# t\n\n## s\n\n## r\n\nsaid\n", ["an empty section: s"]),
        ("# t\n\nsaid\n\n## s\n", ["an empty section: s"]),
        ("```\n| 1 | 2 |\n```\n", []),
    ],
)
def test_what_a_reader_of_markdown_takes_for_something_else_is_found(text: str, found: list[str]) -> None:
    assert misread(text) == found
