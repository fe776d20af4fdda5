"""Colours and dashes: the same variant looks the same in every picture of a page."""

from __future__ import annotations

from matplotlib.lines import Line2D

from orchestrator.report.pictures.colours import COLOURS, DASHES, MOST_APART, looks


def test_no_two_of_36_share_both_colour_and_dash() -> None:
    found = looks(f"v{k}" for k in range(MOST_APART + 1))
    assert len(set(list(found.values())[:-1])) == MOST_APART == 36
    assert found["v36"] == found["v0"] == (COLOURS[0], DASHES[0])
    assert found["v13"] == (COLOURS[4], DASHES[1])


def test_every_dash_is_one_to_matplotlib_and_to_bokeh() -> None:
    for dash in DASHES:
        Line2D([], [], linestyle=dash.matplotlib)  # type: ignore[arg-type]
    assert [dash.bokeh for dash in DASHES] == ["solid", "dashed", "dotted", "dotdash"]
