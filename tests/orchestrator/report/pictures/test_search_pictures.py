"""The pictures of searches: the best so far, whole ranges, crosses where trials were stopped, names on a front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from orchestrator.report.pictures import save
from orchestrator.report.pictures.heads import MARKERS
from orchestrator.report.pictures.search import (
    FrontPoint,
    SearchAxis,
    SearchPoint,
    course,
    front,
    rungs,
    slices,
)


def tried(number: int, perplexity: float, group: str = "softmax", *, complete: bool = True) -> SearchPoint:
    values: dict[str, float | str] = {"rate": 0.1 + number, "head": group}
    curve = [(1, 2 * perplexity), (2 + complete, perplexity)]
    return SearchPoint("best found", group, number, perplexity, complete, not complete, values, curve)


TRIALS = [tried(0, 120.0), tried(1, 60.0, complete=False), tried(2, 90.0, "ecoc"), tried(3, 95.0)]
AXES = [SearchAxis("rate", "log", ends=(0.01, 100.0)), SearchAxis("head", options=("softmax", "ecoc"))]


def test_the_line_of_the_best_so_far_leaves_out_what_was_stopped() -> None:
    figure = course(TRIALS)
    (line,) = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]  # type: ignore[arg-type]
    assert list(line.get_xdata()) == [0, 1, 2, 3]  # type: ignore[arg-type]
    assert list(line.get_ydata()) == [120.0, 120.0, 90.0, 90.0]  # type: ignore[arg-type]
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [line.get_ydata()[0] for line in hollow] == [60.0]  # type: ignore[index]


def test_heads_have_the_colours_that_they_have_in_every_picture() -> None:
    figure = course(TRIALS)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["softmax", "ecoc"]
    faces = [line.get_markerfacecolor() for line in legend.get_lines()]
    assert faces == [MARKERS[kind]["markerfacecolor"] for kind in ("softmax", "ecoc")]
    assert not course(TRIALS[:2]).legends, "all are alike"


def test_a_slice_shows_the_whole_range_and_rings_the_best() -> None:
    figure = slices(TRIALS, AXES)
    rate, head = figure.axes
    assert rate.get_xlim()[0] < 0.01 and rate.get_xlim()[1] > 100.0 and rate.get_xscale() == "log"
    assert [label.get_text() for label in head.get_xticklabels()] == ["softmax", "ecoc"]
    rings = [line for line in rate.lines if line.get_markerfacecolor() == "none"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in rings] == [(2.1, 90.0)]  # type: ignore[index]


def test_a_cross_stands_where_a_trial_was_stopped() -> None:
    figure = rungs(TRIALS, [2])
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in crosses] == [(2, 60.0)]  # type: ignore[index]
    dotted = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert [line.get_xdata()[0] for line in dotted] == [2]  # type: ignore[index]


def test_far_trials_stand_at_the_top() -> None:
    far = replace(TRIALS[3], number=4, perplexity=1e30)
    axes = course([*TRIALS, far]).axes[0]
    assert axes.get_ylim()[1] < 1000
    assert [line.get_ydata()[0] for line in axes.lines if line.get_xdata()[0] == 4] == [600.0]  # type: ignore[index]
    (arrow,) = axes.texts
    assert arrow.xyann == (4, 600.0) and arrow.xy[0] == 4 and arrow.xy[1] > 600, "where it lies"  # type: ignore[attr-defined]
    assert not course(TRIALS).axes[0].texts
    ends = replace(far, curve=((1, 1e30), (2, 1e30)))
    assert [text.xy[0] for text in rungs([*TRIALS, ends], [2]).axes[0].texts] == [2]  # type: ignore[attr-defined]


FRONT = [FrontPoint(0, 4e6, 80.0, "softmax"), FrontPoint(1, 9e5, 82.0, "adaptive"), FrontPoint(2, 3e6, 90.0, None)]


def test_a_front_is_numbered_and_its_names_stand_below() -> None:
    figure = front(FRONT, "decoder parameters", "validation perplexity")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["1  adaptive", "0  softmax"]
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["0", "1"]


def test_numbers_on_a_front_do_not_cover_each_other() -> None:
    near = [FrontPoint(k, 1e5 + 1000 * k, 100 - 0.1 * k, f"trial {k}") for k in range(8)]
    figure = front([*near, FrontPoint(9, 3e5, 130.0, None)], "parameters", "validation perplexity")
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert not any(box.overlaps(other) for k, box in enumerate(boxes) for other in boxes[:k])


def test_whole_numbers_have_no_tick_between_them() -> None:
    layers = [replace(trial, values={"layers": 1 + trial.number % 2}) for trial in TRIALS]
    (axes,) = slices(layers, [SearchAxis("layers", ends=(1, 3), whole=True)]).axes
    assert all(tick == int(tick) for tick in axes.get_xticks())


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (course, [TRIALS[:1]]),
        (course, [[tried(k, 80.0, f"_{k}$x$<b>" * 9) for k in range(30)]]),
        (course, [[tried(0, float("inf")), tried(1, 50.0)]]),
        (slices, [TRIALS, AXES * 10]),
        (slices, [[tried(0, 60.0, complete=False)], AXES[:1]]),
        (rungs, [[replace(TRIALS[0], curve=())], [2]]),
        (front, [FRONT[:1], "seconds", "parameters"]),
        (front, [[FrontPoint(k, 0.0, 1.0 + k, "x" * 200) for k in range(20)], "a", "b"]),
    ],
    ids=["one", "names", "infinite", "many panels", "none complete", "no curve", "lone front", "long front"],
)
def test_any_search_can_be_drawn_the_same_each_time(
    tmp_path: Path, figure: Callable[..., Figure], shown: list[object]
) -> None:
    for name in ("a", "b"):
        save(tmp_path / name, figure, *shown)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
