"""Pictures of differences: the forest, by frequency, by position; arrows to what is cut off; same bytes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from orchestrator.analysis.outcomes import CLASSES as LABELS
from orchestrator.report.pictures import save
from orchestrator.report.pictures.differences import (
    MARKERS,
    DifferenceRow,
    ForestRow,
    difference_in_words,
    forest,
    frequency,
    in_order,
    position,
    verdict_kind,
)
from orchestrator.report.pictures.style import GREY, HELPS, HURTS, change_range, change_ticks, show_change, wrapped

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


def forest_of(rows: Sequence[ForestRow], baseline: str = "full") -> Figure:
    return forest(rows, MARGIN, baseline, "simultaneous 95%")


def frequency_of(rows: Sequence[DifferenceRow], baseline: str = "full", classes: int = 6) -> Figure:
    return frequency(rows, LABELS[:classes], SHARES[:classes], baseline)


def parts(name: str, *nats: float, half: float = 0.01) -> DifferenceRow:
    return DifferenceRow(name, nats, [value - half for value in nats], [value + half for value in nats])


def all_of(names: Sequence[str], nats: Sequence[float], half: float = 0.01) -> dict[str, Figure]:
    """All three pictures of variants with these names, whose differences are these in every class and piece."""
    pairs = list(zip(names, nats, strict=True))
    return {
        "forest": forest_of([row(name, value, half) for name, value in pairs], names[0]),
        "frequency": frequency_of([parts(name, *[value] * 6, half=half) for name, value in pairs], names[0]),
        "position": position([parts(name, *[value] * 32, half=half) for name, value in pairs], names[0]),
    }


def draw_all(folder: Path, names: Sequence[str], nats: Sequence[float], half: float = 0.01) -> dict[str, Figure]:
    for name in ("forest", "frequency", "position"):
        save(folder / f"{name}.svg", lambda name=name: all_of(names, nats, half)[name])
    return all_of(names, nats, half)


def arrows(figure: Figure) -> list[tuple[float, float]]:
    """Where arrows end."""
    return [text.xy for axes in figure.axes for text in axes.texts if isinstance(text, Annotation)]


def test_the_same_rows_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0} if folder == "b" else {}):
            draw_all(tmp_path / folder, ["one", "two"], [0.1, -0.1])
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["forest.svg", "frequency.svg", "position.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert b"<dc:date>" not in (tmp_path / "a" / name).read_bytes()


def test_the_forest_goes_from_the_highest_difference_to_the_lowest() -> None:
    rows = [row("a", 0.1), row("b", -0.1), row("failed", NAN, None), row("same", 0.1)]
    assert in_order(rows) == in_order(rows[::-1])
    assert [each.name for each in in_order(rows)] == ["a", "same", "b", "failed"]


def test_a_class_with_few_tokens_does_not_set_the_range_and_an_arrow_leads_out() -> None:
    figure = frequency_of([parts("a", 0.15, 0.05, 0.05, -0.05, 0.05, 0.05)])
    assert figure.axes[0].get_xlim()[1] < 0.1 and len(arrows(figure)) == 1
    assert not arrows(frequency_of([parts("a", 0.05, 0.15, 0.05, -0.05, 0.05, 0.05)]))


@pytest.mark.parametrize("count", [1, 25])
def test_one_variant_and_many_can_be_drawn(tmp_path: Path, count: int) -> None:
    names = [f"variant {k} {'with a long name ' * 5}" for k in range(count)]
    figures = draw_all(tmp_path, names, [0.001 * k for k in range(count)])
    assert len(figures["forest"].axes[0].get_yticks()) == count
    for name in ("frequency", "position"):
        assert len(figures[name].axes) == min(count, 24)
        assert figures[name].get_supxlabel().endswith("\n1 variant more without a panel") == (count == 25)


def test_whatever_the_names_the_pictures_are_drawn(tmp_path: Path) -> None:
    draw_all(tmp_path, HOSTILE, [0.01] * len(HOSTILE))


def test_a_name_is_cut_to_a_few_short_printable_lines() -> None:
    for name in HOSTILE:
        lines = wrapped(name, 20, 2).split("\n")
        assert len(lines) <= 2
        assert all(len(line) <= 21 and line.strip("\u200b").isprintable() for line in lines)
    assert wrapped("word " * 30, 20, 3).endswith("…")
    assert wrapped("word " * 30, 20, 3).count("\n") == 2
    assert wrapped("no variable sequence lengths", 20, 2) == "no variable sequence\nlengths"


def test_what_a_factorial_takes_away_is_told_apart_in_every_picture() -> None:
    part_names = ("weight-dropping", "locked dropout", "embedding dropout", "AR/TAR")
    away = [some for n in (1, 2, 3, 4) for some in itertools.combinations(part_names, n)]
    names = [" + ".join(f"no {part}" for part in some) for some in away]
    lines, *grids = all_of(names, [0.01] * len(names)).values()
    written = [
        [label.get_text() for label in lines.axes[0].get_yticklabels()],
        *([axes.get_title(loc="left") for axes in grid.axes] for grid in grids),
    ]
    for labels in written:
        assert sorted(" ".join(label.split()) for label in labels) == sorted(names), "whole, with no ellipsis"


@pytest.mark.parametrize("value", [0.0, NAN, math.inf, -math.inf, 800.0])
def test_any_figures_can_be_drawn(tmp_path: Path, value: float) -> None:
    figures = draw_all(tmp_path, ["full", "b"], [value, value], half=0.0)
    assert [bool(arrows(figure)) for figure in figures.values()] == [math.isinf(value)] * 3
    draw_all(tmp_path, ["full", "b"], [0.01, value], half=NAN)


def test_a_few_huge_effects_are_cut_off_and_arrows_lead_to_them() -> None:
    rows = [row(f"v{k}", 0.01 * k) for k in range(-4, 5)]
    wide = ForestRow("wide", 0.0, -3.0, 3.0, "not decided", None, False)
    printed = dataclasses.replace(row("printed", 0.02), published_nats=-2.0, recalled=True)
    figure = forest_of([*rows, row("ruin", 5.0, 0.1, "raises"), wide, printed])
    low, high = figure.axes[0].get_xlim()
    assert arrows(figure) == [(high, 9)] * 3 + [(low, 10), (high, 10), (low, 10.8)], "at both edges, in their rows"
    bars = [parts(f"v{k}", *[0.01 * k] * 6) for k in range(-4, 5)]
    some = parts("some", 3.0, 0.0, 0.0, 0.0, 0.0, -2.0)
    figure = frequency_of([*bars, parts("ruin", *[5.0] * 6), some])
    low, high = figure.axes[0].get_xlim()
    assert arrows(figure) == [*((high, y) for y in range(6)), (high, 0), (low, 5)]
    steps = [parts(f"v{k}", *[0.01 * k] * 32) for k in range(-4, 5)]
    figure = position([*steps, parts("some", *[0.0] * 31, 9.0)], "full")
    assert arrows(figure) == [(32, figure.axes[0].get_ylim()[1])]


def test_the_range_leaves_out_far_outliers_alone() -> None:
    assert change_range([0.1, -0.2, NAN, math.inf]) == (-0.2, 0.1)
    assert change_range([0.02] * 8 + [4.0], at_least=0.008) == (-0.008, 0.02)
    assert change_range([0.001] * 8 + [0.04]) == (-0.01, 0.04)  # small, but no effect is flattened by it
    assert change_range([0.1] * 8 + [0.29]) == (-0.01, 0.29)
    assert change_range([0.1] * 8 + [0.31]) == (-0.01, 0.1)
    assert change_range([0.1] * 8 + [0.25, 0.37]) == (-0.01, 0.37)  # just beyond what is shown
    assert change_range([NAN]) == (-0.01, 0.01)


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((-0.01, 0.01), "−0.5% 0% +0.5% +1%"),
        ((-0.2, 0.3), "−10% 0% +10% +20% +30%"),
        ((-0.01, 0.9), "0% +20% +50% +100%"),
        ((-3.0, 5.0), "−95% −80% 0% +400% +1,900% +9,900%"),
        ((0.0, 24.0), "0% +9,900% +1e+06% +1e+08% +1e+10%"),
    ],
)
def test_ticks_are_round_changes_in_per_cent(limits: tuple[float, float], labels: str) -> None:
    axes = Figure().add_subplot()
    show_change(axes, "x", limits, 6)
    assert axes.get_xlim()[0] < limits[0] and limits[1] < axes.get_xlim()[1], "room for arrows"
    marks = [axes.xaxis.get_major_formatter()(nats) for nats in axes.get_xticks()]
    assert " ".join(marks) == labels


@pytest.mark.parametrize("most", [4, 5, 7])
def test_ticks_hold_zero_and_are_not_crowded(most: int) -> None:
    ends = [0.0, *np.geomspace(1e-3, 20.0, 60).tolist()]
    for low, high in ((-low, high) for low in ends for high in ends if low + high > 0):
        marks = change_ticks((low, high), most)
        assert 0.0 in marks and low <= marks[0] and marks[-1] <= high, (low, high, marks)
        assert min(np.diff(marks), default=100.0) >= (high - low) / 16, (low, high, marks)


def test_figures_are_rounded_by_their_interval() -> None:
    assert (
        difference_in_words(ForestRow("a", 0.113, 0.095, 0.131, "raises", None, False))
        == "+12.0% [+10.0, +14.0]\nraises"
    )
    assert difference_in_words(row("a", 0.02, None, "one seed")) == "+2.0%\none seed"
    assert difference_in_words(row("a", NAN, None, "all failed")) == "–\nall failed"
    # An end above zero does not read as zero, and a huge difference has no false digits.
    close = ForestRow("a", math.log(1.02), math.log(1.0004), math.log(1.04), "raises", None, False)
    assert difference_in_words(close) == "+2.0% [+0.04, +4.0]\nraises"
    assert difference_in_words(ForestRow("a", 5.2, 4.8, 5.6, "raises", None, False)).startswith(
        "+18000% [+12100, +26900]"
    )
    lopsided = ForestRow("a", math.log(19.01), math.log(0.97), math.log(372.33), "not decided", None, False)
    assert difference_in_words(lopsided) == "+1800% [−3.0, +37000]\nnot decided"


def test_every_verdict_has_a_shape_of_its_own() -> None:
    shapes = [style["marker"] for style in MARKERS.values()]
    assert len(set(shapes)) == len(shapes)
    kinds = {
        "raises": "raises",
        "lowers": "lowers",
        "no effect larger than 0.5%": "no effect",
        "not decided (6 more seeds)": "not decided",
        "one seed": "no verdict",
    }
    assert {verdict: verdict_kind(verdict) for verdict in kinds} == kinds


def test_the_forest_shows_what_is_published_and_from_memory() -> None:
    rows = [
        dataclasses.replace(row("a", 0.1), published_nats=0.05),
        dataclasses.replace(row("b", 0.2), published_nats=0.06, recalled=True),
    ]
    figure = forest_of(rows)
    diamonds = {
        (float(line.get_xdata()[0]), line.get_markeredgecolor())
        for line in figure.axes[0].lines
        if line.get_marker() == "D"
    }
    assert diamonds == {(0.05, "black"), (0.06, GREY)}
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[-2:] == ["published difference", "published difference, from memory"]
    assert "simultaneous 95% interval" in labels and "no more than ±0.5%" in labels


def test_bars_are_solid_only_if_the_seeds_agree() -> None:
    some = DifferenceRow("a", (0.1, -0.1, 0.1, 0.1), (0.05, -0.2, -0.05, NAN), (0.2, -0.05, 0.2, NAN))
    figure = frequency_of([some], classes=4)
    bars = [bar for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert [(to_hex(bar.get_facecolor()).upper(), bar.get_alpha() == 1.0) for bar in bars] == [
        (HURTS, True),
        (HELPS, True),
        (HURTS, False),
        (HURTS, False),
    ]
