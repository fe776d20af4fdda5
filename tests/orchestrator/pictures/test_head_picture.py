"""The picture of heads: bytes that repeat, odd values, and a legend of its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import matplotlib as mpl
import pytest
from matplotlib.text import Annotation

from lm.spec import Head
from orchestrator.report.pictures.drawing import draw, figure_of
from orchestrator.report.pictures.drawing.heads import MARKERS, perplexity_range
from orchestrator.report.pictures.figures import HeadPoint, Heads, SeedRange


def row(name: str, test: float, parameters: int = 10_000, seconds: float = 100.0, kind: str = "softmax") -> HeadPoint:
    times = SeedRange(seconds, 0.9 * seconds, 1.1 * seconds)
    return HeadPoint(name, kind, parameters, SeedRange(test, 0.98 * test, 1.03 * test), times)


HEADS = [
    row("softmax", 80.0, 4_010_000, 1000.0),
    row("adaptive", 82.0, 900_000, 640.0, "adaptive"),
    row("ecoc", 131.0, 80_200, 450.0, "ecoc"),
]


def test_the_same_heads_give_the_same_bytes_in_any_order_whatever_the_users_settings(tmp_path: Path) -> None:
    draw(tmp_path / "a", Heads(HEADS, "softmax"))
    with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0, "savefig.dpi": 30}):
        draw(tmp_path / "b", Heads(HEADS[::-1], "softmax"))
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["heads.svg"]
    assert (tmp_path / "a" / "heads.svg").read_bytes() == (tmp_path / "b" / "heads.svg").read_bytes()
    assert "<dc:date>" not in (tmp_path / "a" / "heads.svg").read_text(encoding="utf-8")


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
    draw(tmp_path, Heads(rows, "softmax"))
    assert (tmp_path / "heads.svg").stat().st_size > 0


def test_a_few_heads_far_above_the_others_are_named_and_leave_them_their_room() -> None:
    ruined = row("ruined", 3.1e7, kind="ecoc")
    assert figure_of(Heads(HEADS, "softmax"))[1] is None
    figure, sentence = figure_of(Heads([*HEADS, ruined], "softmax"))
    assert sentence == "Above the top of the picture, where arrows point: ruined (31,000,000)."
    top = figure.axes[0].get_ylim()[1]
    assert perplexity_range([*HEADS, ruined]) == pytest.approx((0.98 * 80, 1.03 * 131))
    assert 1.03 * 131 < top < 2 * 131
    for axes in figure.axes:
        arrows = [text.xy[1] for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]
        assert arrows == [top]


def test_many_heads_far_above_the_others_keep_the_whole_range() -> None:
    rows = [*HEADS[:2], *(row(f"ruined {k}", 10.0 ** (4 + k), kind="ecoc") for k in range(2))]
    assert perplexity_range(rows) == pytest.approx((0.98 * 80, 1.03e5))
    assert figure_of(Heads(rows, "softmax"))[1] is None


def test_points_are_numbered_by_perplexity_and_named_in_the_legend() -> None:
    figure, _ = figure_of(Heads(HEADS[::-1], "adaptive"))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["1  softmax", "2  adaptive", "baseline", "3  ecoc"]
    for axes, places in zip(figure.axes, ((4_010_000, 900_000, 80_200), (1000.0, 640.0, 450.0)), strict=True):
        numbers = {text.get_text(): text.xy for text in axes.texts if isinstance(text, Annotation)}
        assert numbers == {str(k): xy for k, xy in enumerate(zip(places, (80.0, 82.0, 131.0), strict=True), 1)}
        (ring,) = (line for line in axes.lines if line.get_markersize() == 12)
        assert ring.get_ydata()[0] == 82.0
