"""The pictures of searches: the best so far, whole ranges, crosses where trials were stopped, names on a front."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.report.pictures.drawing import draw, figure_of
from orchestrator.report.pictures.drawing.heads import MARKERS
from orchestrator.report.pictures.figures import Picture
from orchestrator.report.pictures.search_figures import (
    Front,
    FrontPoint,
    Rungs,
    SearchAxis,
    SearchCourse,
    SearchPoint,
    SearchPoints,
    Slices,
)


def tried(number: int, perplexity: float, group: str = "softmax", *, complete: bool = True) -> SearchPoint:
    values: dict[str, float | str] = {"rate": 0.1 + number, "head": group}
    curve = [(1, 2 * perplexity), (2 + complete, perplexity)]
    return SearchPoint("best found", group, number, perplexity, complete, not complete, values, curve)


TRIALS = [tried(0, 120.0), tried(1, 60.0, complete=False), tried(2, 90.0, "ecoc"), tried(3, 95.0)]
AXES = [SearchAxis("rate", "log", ends=(0.01, 100.0)), SearchAxis("head", options=("softmax", "ecoc"))]


def test_the_line_of_the_best_so_far_leaves_out_what_was_stopped() -> None:
    figure, sentence = figure_of(SearchCourse(SearchPoints(TRIALS, heads=True)))
    (line,) = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]  # type: ignore[arg-type]
    assert list(line.get_xdata()) == [0, 1, 2, 3]  # type: ignore[arg-type]
    assert list(line.get_ydata()) == [120.0, 120.0, 90.0, 90.0]  # type: ignore[arg-type]
    assert sentence is None
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [line.get_ydata()[0] for line in hollow] == [60.0]  # type: ignore[index]


def test_heads_have_the_colours_that_they_have_in_every_picture() -> None:
    figure, _ = figure_of(SearchCourse(SearchPoints(TRIALS, heads=True)))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["softmax", "ecoc"]
    faces = [line.get_markerfacecolor() for line in legend.get_lines()]
    assert faces == [MARKERS[kind]["markerfacecolor"] for kind in ("softmax", "ecoc")]
    assert not figure_of(SearchCourse(SearchPoints(TRIALS[:2], heads=False)))[0].legends, "all are alike"


def test_a_slice_shows_the_whole_range_and_rings_the_best() -> None:
    figure, _ = figure_of(Slices(SearchPoints(TRIALS, heads=True), AXES))
    rate, head = figure.axes
    assert rate.get_xlim()[0] < 0.01 and rate.get_xlim()[1] > 100.0 and rate.get_xscale() == "log"
    assert [label.get_text() for label in head.get_xticklabels()] == ["softmax", "ecoc"]
    rings = [line for line in rate.lines if line.get_markerfacecolor() == "none"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in rings] == [(2.1, 90.0)]  # type: ignore[index]


def test_a_cross_stands_where_a_trial_was_stopped() -> None:
    figure, _ = figure_of(Rungs(SearchPoints(TRIALS, heads=True), [2]))
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in crosses] == [(2, 60.0)]  # type: ignore[index]
    dotted = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert [line.get_xdata()[0] for line in dotted] == [2]  # type: ignore[index]


def test_far_trials_stand_at_the_top_and_are_counted() -> None:
    far = replace(TRIALS[3], number=4, perplexity=1e30)
    figure, sentence = figure_of(SearchCourse(SearchPoints([*TRIALS, far], heads=True)))
    assert sentence == "1 trial above 600 stands at the top."
    assert figure.axes[0].get_ylim()[1] < 1000


FRONT = [FrontPoint(0, 4e6, 80.0, "softmax"), FrontPoint(1, 9e5, 82.0, "adaptive"), FrontPoint(2, 3e6, 90.0, None)]


def test_a_front_is_numbered_and_its_names_stand_below() -> None:
    figure, _ = figure_of(Front(FRONT, "decoder parameters", "validation perplexity"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["1  adaptive", "0  softmax"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "0"]


@pytest.mark.parametrize(
    "picture",
    [
        SearchCourse(SearchPoints(TRIALS[:1], heads=True)),
        SearchCourse(SearchPoints([tried(k, 80.0, f"_{k}$x$<b>" * 9) for k in range(30)], heads=False)),
        SearchCourse(SearchPoints([tried(0, float("inf")), tried(1, 50.0)], heads=False)),
        Slices(SearchPoints(TRIALS, heads=True), AXES * 10),
        Slices(SearchPoints([tried(0, 60.0, complete=False)], heads=False), AXES[:1]),
        Rungs(SearchPoints([replace(TRIALS[0], curve=())], heads=True), [2]),
        Front(FRONT[:1], "seconds", "parameters"),
        Front([FrontPoint(k, 0.0, 1.0 + k, "x" * 200) for k in range(20)], "a", "b"),
    ],
    ids=["one", "names", "infinite", "many panels", "none complete", "no curve", "lone front", "long front"],
)
def test_any_search_can_be_drawn_the_same_each_time(tmp_path: Path, picture: Picture) -> None:
    for folder in ("a", "b"):
        draw(tmp_path / folder, picture)
    assert (tmp_path / "a" / picture.FILE).read_bytes() == (tmp_path / "b" / picture.FILE).read_bytes()
