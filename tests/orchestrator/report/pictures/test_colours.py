"""Colours and dashes: the same variant looks the same in every picture of a page."""

from __future__ import annotations

from bokeh.models import MultiLine
from matplotlib.lines import Line2D

from orchestrator.report.pictures.style import COLOURS, DASHES, line_styles


def test_no_two_of_36_share_both_colour_and_dash() -> None:
    styles = line_styles([f"v{k}" for k in range(37)], None)
    assert len(set(list(styles.values())[:-1])) == 36
    assert styles["v36"] == styles["v0"] == (COLOURS[0], DASHES[0])
    assert styles["v13"] == (COLOURS[4], DASHES[1])


def test_the_baseline_is_black_and_leaves_the_others_their_styles() -> None:
    styles = line_styles(["a", "full", "b"], "full")
    assert styles == {"full": ("#000000", "solid")} | line_styles(["a", "b"], None)


def test_every_dash_is_one_to_matplotlib_and_to_bokeh() -> None:
    for dash in DASHES:
        Line2D([], [], linestyle=dash)  # type: ignore[arg-type]
        MultiLine(line_dash=dash)
