"""Pictures of differences: the forest, by frequency of words, by position; what is cut off is said, bytes repeat."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes

from orchestrator.analysis.token_losses import CLASSES as LABELS
from orchestrator.report.pictures.colours import HELPS, HURTS
from orchestrator.report.pictures.drawing import (
    change,
    draw_forest,
    draw_frequency,
    draw_position,
    forest,
    grid,
    look,
    where,
)
from orchestrator.report.pictures.figures import ForestRow, FrequencyRow, PositionRow

MARGIN = 0.005
SHARES = (0.002, 0.05, 0.17, 0.24, 0.27, 0.268)
NAN = math.nan
HOSTILE = (
    "_hidden",
    "$\\frac$",
    "two\nlines",
    "<script>&",
    "a|b `c`",
    "long " * 60,
    "漢字 \u202e\x1b[31m",
    "",
    "‱" * 60,
)


def row(name: str, nats: float, half: float | None = 0.01, verdict: str = "not decided") -> ForestRow:
    ends = (None, None) if half is None else (nats - half, nats + half)
    return ForestRow(name, nats, *ends, verdict, None, False)


def words(name: str, *nats: float, half: float = 0.01) -> FrequencyRow:
    return FrequencyRow(name, nats, [value - half for value in nats], [value + half for value in nats])


def blocks(name: str, *nats: float, half: float = 0.01) -> PositionRow:
    return PositionRow(name, nats, [value - half for value in nats], [value + half for value in nats])


def draw_all(folder: Path, names: Sequence[str], nats: Sequence[float], half: float = 0.01) -> list[str | None]:
    """All three pictures of variants with these names, whose differences are these in every class and block."""
    pairs = list(zip(names, nats, strict=True))
    return [
        draw_forest(folder, [row(name, value, half) for name, value in pairs], MARGIN, names[0], "95%"),
        draw_frequency(
            folder, [words(name, *[value] * 6, half=half) for name, value in pairs], LABELS, SHARES, names[0]
        ),
        draw_position(folder, [blocks(name, *[value] * 32, half=half) for name, value in pairs], names[0]),
    ]


def test_the_same_rows_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0} if folder == "b" else {}):
            draw_all(tmp_path / folder, ["one", "two"], [0.1, -0.1])
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["forest.svg", "frequency.svg", "position.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert b"<dc:date>" not in (tmp_path / "a" / name).read_bytes()


def test_the_order_of_the_rows_does_not_change_the_forest(tmp_path: Path) -> None:
    rows = [row("a", 0.1), row("b", -0.1), row("lost", NAN, None), row("same", 0.1)]
    for folder, shuffled in (("a", rows), ("b", rows[::-1])):
        draw_forest(tmp_path / folder, shuffled, MARGIN, "full", "95%")
    assert (tmp_path / "a/forest.svg").read_bytes() == (tmp_path / "b/forest.svg").read_bytes()
    assert [each.name for each in forest.in_order(rows)] == ["a", "same", "b", "lost"]


@pytest.mark.parametrize("count", [1, 25])
def test_one_variant_and_many_can_be_drawn(tmp_path: Path, count: int) -> None:
    said = draw_all(
        tmp_path, [f"variant {k} {'with a long name ' * 5}" for k in range(count)], [0.001 * k for k in range(count)]
    )
    assert said[0] is None
    rest = None if count == 1 else "A picture has 24 panels at most: 1 variant more without one."
    assert said[1:] == [rest, rest]


def test_names_are_literal_text(tmp_path: Path) -> None:
    draw_all(tmp_path, HOSTILE, [0.01] * len(HOSTILE))
    for name in ("forest", "frequency", "position"):
        assert "<script" not in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")


def test_a_name_is_cut_to_a_few_short_printable_lines() -> None:
    for name in HOSTILE:
        lines = look.wrapped(name, 20, 2).split("\n")
        assert len(lines) <= 2
        assert all(len(line) <= 21 and line.strip("\u200b").isprintable() for line in lines)
    assert look.wrapped("word " * 30, 20, 3).endswith("…")
    assert look.wrapped("word " * 30, 20, 3).count("\n") == 2
    assert look.wrapped("no variable sequence lengths", 20, 2) == "no variable sequence\nlengths"


def test_what_a_factorial_takes_away_is_told_apart_in_every_picture(tmp_path: Path) -> None:
    parts = ("weight-dropping", "locked dropout", "embedding dropout", "AR/TAR")
    away = [some for n in (1, 2, 3, 4) for some in itertools.combinations(parts, n)]
    names = [" + ".join(f"no {part}" for part in some) for some in away]
    told: list[str] = []

    def wrapped(name: str, width: int, most: int) -> str:
        told.append(look.wrapped(name, width, most))
        return told[-1]

    with mock.patch.object(forest, "wrapped", wrapped), mock.patch.object(grid, "wrapped", wrapped):
        draw_all(tmp_path, names, [0.01] * len(names))
    assert len(told) == 3 * len(names)
    assert not any("…" in label for label in [*told, look.wrapped(names[-1], 42, 2)])


@pytest.mark.parametrize("value", [0.0, NAN, math.inf, -math.inf, 800.0])
def test_any_figures_can_be_drawn(tmp_path: Path, value: float) -> None:
    said = draw_all(tmp_path, ["full", "b"], [value, value], half=0.0)
    outside = math.isinf(value)
    assert [text is not None for text in said] == [outside] * 3
    draw_all(tmp_path, ["full", "b"], [0.01, value], half=NAN)


def test_a_few_huge_effects_are_cut_off_and_said(tmp_path: Path) -> None:
    rows = [row(f"v{k}", 0.01 * k) for k in range(-4, 5)]
    wide = ForestRow("wide", 0.0, -3.0, 3.0, "not decided", None, False)
    printed = dataclasses.replace(row("printed", 0.02), published_nats=-2.0, recalled=True)
    said = draw_forest(tmp_path, [*rows, row("ruin", 5.0, 0.1, "hurts"), wide, printed], MARGIN, "full", "95%")
    assert said == (
        "Arrows lead out of the picture: to ruin (+14,741%), the published difference of printed (−86.5%) and "
        "the interval of wide."
    )
    bars = [words(f"v{k}", *[0.01 * k] * 6) for k in range(-4, 5)]
    part = words("part", 3.0, 0.0, 0.0, 0.0, 0.0, -2.0)
    assert draw_frequency(tmp_path, [*bars, words("ruin", *[5.0] * 6), part], LABELS, SHARES, "full") == (
        "Arrows lead out of the picture: ruin on all words and part on words never seen and seen 10,000+ times."
    )
    steps = [blocks(f"v{k}", *[0.01 * k] * 32) for k in range(-4, 5)]
    assert draw_position(tmp_path, [*steps, blocks("part", *[0.0] * 31, 9.0)], "full") == (
        "Arrows lead out of the picture: 1 piece of part."
    )


def test_classes_of_words_read_right_in_a_sentence() -> None:
    assert where._words(LABELS[:1]) == "words never seen"
    assert [where._words([label]) for label in LABELS[1:]] == [f"words seen {label} times" for label in LABELS[1:]]
    assert where._words(LABELS[1:3]) == "words seen 1–9 and 10–99 times"
    assert where._words(LABELS[:3]) == "words never seen and seen 1–9 and 10–99 times"


def test_the_range_leaves_out_far_outliers_alone() -> None:
    assert change.range_of([0.1, -0.2, NAN, math.inf]) == (-0.2, 0.1)
    assert change.range_of([0.02] * 8 + [4.0], at_least=0.008) == (-0.008, 0.02)
    assert change.range_of([0.001] * 8 + [0.04]) == (-0.01, 0.04)  # small, but no effect is flattened by it
    assert change.range_of([0.1] * 8 + [0.29]) == (-0.01, 0.29)
    assert change.range_of([0.1] * 8 + [0.31]) == (-0.01, 0.1)
    assert change.range_of([0.1] * 8 + [0.25, 0.37]) == (-0.01, 0.37)  # just beyond what is shown
    assert change.range_of([NAN]) == (-0.01, 0.01)


@pytest.mark.parametrize(("low", "high"), [(-0.01, 0.01), (-0.2, 0.3), (-0.01, 0.9), (-3.0, 5.0), (-0.0087, 0.02)])
def test_ticks_are_round_and_hold_zero(low: float, high: float) -> None:
    marks = change.ticks(low, high, 6)
    assert 0.0 in marks
    assert 2 <= len(marks) <= 8
    assert all(low <= mark <= high for mark in marks)
    assert [change._short(change.per_cent(mark)) for mark in marks] == [
        change._short(round(change.per_cent(mark), 2)) for mark in marks
    ]


@pytest.mark.parametrize("most", [4, 5, 7])
def test_ticks_are_on_every_side_with_room_and_not_crowded(most: int) -> None:
    ends = [0.0, *np.geomspace(1e-3, 100.0, 60).tolist()]
    for low, high in ((-low, high) for low in ends for high in ends if low + high > 0):
        marks = change.ticks(low, high, most)
        whole = high - low
        assert 0.0 in marks and low <= marks[0] and marks[-1] <= high, (low, high, marks)
        assert min(np.diff(marks), default=1.0) >= whole / 12, (low, high, marks)
        assert marks[0] < 0 or -low < whole / 5, (low, high, marks)
        assert marks[-1] > 0 or high < whole / 5, (low, high, marks)


def test_figures_are_rounded_by_their_interval() -> None:
    assert forest._figures(ForestRow("a", 0.113, 0.095, 0.131, "hurts", None, False)) == "+12.0% [+10.0, +14.0]\nhurts"
    assert forest._figures(row("a", 0.02, None, "one seed")) == "+2.02%\none seed"
    assert forest._figures(row("a", NAN, None, "all failed")) == "–\nall failed"
    # An end above zero does not read as zero, and a huge difference has no false digits.
    close = ForestRow("a", math.log(1.02), math.log(1.0004), math.log(1.04), "hurts", None, False)
    assert forest._figures(close) == "+2.0% [+0.04, +4.0]\nhurts"
    assert forest._figures(ForestRow("a", 5.2, 4.8, 5.6, "hurts", None, False)).startswith("+18000% [+12100, +26900]")
    lopsided = ForestRow("a", math.log(19.01), math.log(0.97), math.log(372.33), "not decided", None, False)
    assert forest._figures(lopsided) == "+2000% [−3.0, +37000]\nnot decided"


def test_every_verdict_has_a_shape_of_its_own() -> None:
    shapes = [marker for marker, _, _ in forest._MARKS.values()]
    assert len(set(shapes)) == len(shapes)
    said = {
        "hurts": "hurts",
        "helps": "helps",
        "no effect larger than 0.5%": "no effect",
        "not decided (6 more seeds)": "not decided",
        "one seed": "no verdict",
    }
    assert {verdict: forest._kind(verdict) for verdict in said} == said


def test_bars_are_solid_only_where_the_seeds_agree(tmp_path: Path) -> None:
    some = FrequencyRow("a", (0.1, -0.1, 0.1, 0.1), (0.05, -0.2, -0.05, NAN), (0.2, -0.05, 0.2, NAN))
    with mock.patch.object(Axes, "barh", autospec=True, side_effect=Axes.barh) as barh:
        draw_frequency(tmp_path, [some], LABELS[:4], SHARES[:4], "full")
    drawn = [(call.kwargs["color"], call.kwargs["alpha"] == 1.0) for call in barh.call_args_list]
    assert drawn == [(HURTS, True), (HELPS, True), (HURTS, False), (HURTS, False)]
