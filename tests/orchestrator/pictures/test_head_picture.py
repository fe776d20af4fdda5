"""The picture of heads: bytes that repeat, odd values, and labels that can be told apart."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import get_args

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from lm.spec import Head
from orchestrator.report.pictures.drawing import draw_heads
from orchestrator.report.pictures.drawing.heads import MARKERS, MOST_NAMED, _heights
from orchestrator.report.pictures.drawing.labels import label_points
from orchestrator.report.pictures.figures import HeadPoint, Reach


def row(name: str, test: float, parameters: int = 10_000, seconds: float = 100.0, kind: str = "softmax") -> HeadPoint:
    times = Reach(seconds, 0.9 * seconds, 1.1 * seconds)
    return HeadPoint(name, kind, parameters, Reach(test, 0.98 * test, 1.03 * test), times)


HEADS = [
    row("softmax", 80.0, 4_010_000, 1000.0),
    row("adaptive", 82.0, 900_000, 640.0, "adaptive"),
    row("ecoc", 131.0, 80_200, 450.0, "ecoc"),
]


def test_the_same_heads_give_the_same_bytes_in_any_order_whatever_the_users_settings(tmp_path: Path) -> None:
    draw_heads(tmp_path / "a", HEADS, "softmax")
    with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0, "savefig.dpi": 30}):
        draw_heads(tmp_path / "b", HEADS[::-1], "softmax")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["heads.svg"]
    assert (tmp_path / "a" / "heads.svg").read_bytes() == (tmp_path / "b" / "heads.svg").read_bytes()
    assert "<dc:date>" not in (tmp_path / "a" / "heads.svg").read_text(encoding="utf-8")


def test_every_kind_of_head_has_a_shape_and_a_colour_of_its_own() -> None:
    kinds = [get_args(part.model_fields["kind"].annotation)[0] for part in get_args(get_args(Head)[0])]
    assert sorted(MARKERS) == sorted(kinds)
    assert all(len({marker[k] for marker in MARKERS.values()}) == len(kinds) for k in (0, 1))


@pytest.mark.parametrize(
    "rows",
    [
        [row("softmax", 80.0)],
        [row("softmax", 80.0, parameters=0), row("wide", 70.0, parameters=0)],
        [row("softmax", 80.0, parameters=0), row("wide", 70.0, parameters=3), row("wider", 70.0, parameters=10**9)],
        [row("softmax", 1.0), row("lost", 1e300, seconds=1e7)],
        [row("_hidden", 80.0), row("$\\frac$", 81.0), row("two\nlines", 82.0), row("<b>&" * 30, 83.0)],
        [row(f"head {k}", 80.0 + k / 100) for k in range(MOST_NAMED + 20)],
    ],
    ids=["one", "no parameters", "some parameters", "extremes", "names", "crowd"],
)
def test_any_heads_can_be_drawn(tmp_path: Path, rows: list[HeadPoint]) -> None:
    draw_heads(tmp_path, rows, "softmax")
    assert (tmp_path / "heads.svg").stat().st_size > 0


def test_a_few_heads_far_above_the_others_are_named_and_leave_them_their_room(tmp_path: Path) -> None:
    lost = row("lost", 3.1e7, kind="ecoc")
    assert draw_heads(tmp_path, HEADS, "softmax") is None
    assert draw_heads(tmp_path, [*HEADS, lost], "softmax") == (
        "Above the top of the picture, where arrows point: lost (3.10e+07)."
    )
    *others, high = _heights([*HEADS, lost])
    assert others == [row.test_perplexity for row in HEADS]
    assert 1.03 * 131 < high.mean < high.high < 2 * 131


def test_many_heads_far_above_the_others_keep_the_whole_range(tmp_path: Path) -> None:
    rows = [*HEADS[:2], *(row(f"lost {k}", 10.0 ** (4 + k), kind="ecoc") for k in range(2))]
    assert _heights(rows) == [row.test_perplexity for row in rows]
    assert draw_heads(tmp_path, rows, "softmax") is None


def labelled(points: list[tuple[float, float]], labels: list[str]) -> tuple[Axes, list[Annotation]]:
    figure = Figure(figsize=(6, 4))
    axes = figure.add_subplot()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 10)
    label_points(axes, labels, [(Reach(x, x, x), Reach(y, y - 0.1, y + 0.1)) for x, y in points])
    figure.draw_without_rendering()
    return axes, [text for text in axes.texts if isinstance(text, Annotation)]


def test_labels_cover_neither_each_other_nor_a_point_nor_the_edge() -> None:
    points = [(5.0, 5.0), (5.4, 5.0), (5.2, 5.5), (9.9, 9.9), (9.9, 0.1), (0.1, 5.0)]
    axes, texts = labelled(points, ["softmax", "adaptive softmax", "hierarchical", "corner", "other", "left"])
    # Without its line a label's own extent; the line may cross what it has to.
    boxes = [super(Annotation, text).get_window_extent() for text in texts]
    assert len(boxes) == len(points)
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)
    panel = axes.get_window_extent()
    for box in boxes:
        assert panel.x0 <= box.x0 and box.x1 <= panel.x1 and panel.y0 <= box.y0 and box.y1 <= panel.y1
        for point in points:
            assert not box.contains(*axes.transData.transform(point))


def test_a_label_that_stands_nearer_to_another_point_has_a_line_to_its_own() -> None:
    crowd = [(5 + 0.35 * math.cos(k), 5 + 0.5 * math.sin(k)) for k in range(12)]
    axes, texts = labelled([*crowd, (1.0, 1.0)], [f"name {k}" for k in range(13)])
    assert texts[-1].arrow_patch is None
    assert any(text.arrow_patch is not None for text in texts)
    for text, own in zip(texts, crowd, strict=False):
        box = super(Annotation, text).get_window_extent()
        middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
        far = math.dist(middle, axes.transData.transform(own))
        assert text.arrow_patch is not None or far < box.width / 2 + 40
