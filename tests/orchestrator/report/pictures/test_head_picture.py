"""The picture of heads: bytes that repeat, odd values, and a legend of its numbers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import get_args

import matplotlib as mpl
import pytest
from matplotlib.text import Annotation

from lm.spec import Head
from orchestrator.report.pictures import save
from orchestrator.report.pictures.heads import MARKERS, HeadPoint, SeedRange, heads


def row(name: str, test: float, parameters: int = 10_000, seconds: float = 100.0, kind: str = "softmax") -> HeadPoint:
    times = SeedRange(seconds, 0.9 * seconds, 1.1 * seconds)
    return HeadPoint(name, kind, parameters, SeedRange(test, 0.98 * test, 1.03 * test), times)


HEADS = [
    row("softmax", 80.0, 4_010_000, 1000.0),
    row("adaptive", 82.0, 900_000, 640.0, "adaptive"),
    row("ecoc", 131.0, 80_200, 450.0, "ecoc"),
]


def test_the_same_heads_give_the_same_bytes_in_any_order_whatever_the_users_settings(tmp_path: Path) -> None:
    save(tmp_path / "a.svg", heads, HEADS, "softmax")
    with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0, "savefig.dpi": 30}):
        save(tmp_path / "b.svg", heads, HEADS[::-1], "softmax")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "<dc:date>" not in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_every_kind_of_head_has_a_shape_and_a_colour_of_its_own() -> None:
    kinds = [get_args(part.model_fields["kind"].annotation)[0] for part in get_args(get_args(Head)[0])]
    assert sorted(MARKERS) == sorted(kinds)
    assert all(len({style[k] for style in MARKERS.values()}) == len(kinds) for k in ("marker", "markerfacecolor"))


@pytest.mark.parametrize(
    "rows",
    [
        [row("softmax", 80.0)],
        [row("softmax", 80.0, parameters=0), row("wide", 70.0, parameters=0)],
        [row("softmax", 80.0, parameters=0), row("wide", 70.0, parameters=3), row("wider", 70.0, parameters=10**9)],
        [row("softmax", 1.0), row("ruined", 1e280, seconds=1e7)],
        [row("_hidden", 80.0), row("$\\frac$", 81.0), row("two\nlines", 82.0), row("<b>&" * 30, 83.0)],
        [row(f"head {k}", 80.0 + k / 100) for k in range(30)],
    ],
    ids=["one", "no parameters", "some parameters", "extremes", "names", "crowd"],
)
def test_any_heads_can_be_drawn(tmp_path: Path, rows: list[HeadPoint]) -> None:
    save(tmp_path / "heads.svg", heads, rows, "softmax")
    assert (tmp_path / "heads.svg").stat().st_size > 0


def test_a_few_heads_far_above_the_others_stand_at_the_top_and_leave_them_their_room() -> None:
    figure = heads([*HEADS, row("ruined", 3.1e7, kind="ecoc")], "softmax")
    assert "4  ruined (31,000,000)" in [text.get_text() for text in figure.legends[0].get_texts()]
    top = figure.axes[0].get_ylim()[1]
    assert 10 * 0.98 * 80 < top < 20 * 80
    for axes in figure.axes:
        arrows = [text.xy[1] for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]
        assert arrows == [top]


def test_points_are_numbered_by_perplexity_and_named_in_the_legend() -> None:
    figure = heads(HEADS[::-1], "adaptive")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["1  softmax", "2  adaptive", "baseline", "3  ecoc"]
    for axes, places in zip(figure.axes, ((4_010_000, 900_000, 80_200), (1000.0, 640.0, 450.0)), strict=True):
        numbers = {text.get_text(): text.xy for text in axes.texts if isinstance(text, Annotation)}
        assert numbers == {str(k): xy for k, xy in enumerate(zip(places, (80.0, 82.0, 131.0), strict=True), 1)}
        (ring,) = (line for line in axes.lines if line.get_markersize() == 12)
        assert ring.get_ydata()[0] == 82.0


def test_numbers_of_heads_that_lie_together_do_not_cover_each_other() -> None:
    figure = heads([row(f"head {k}", 80.0 + k / 10) for k in range(6)], "head 0")
    for axes in figure.axes:
        boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
        assert len(boxes) == 6
        assert all(lower.y1 <= upper.y0 + 1 for lower, upper in pairwise(boxes))
