"""Pictures from curves: what is drawn, what is cut off, and that bytes repeat."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from lm.record import Evaluation, curve_table
from orchestrator.analysis.outcomes import Curve, Outcome, Outcomes, curve_of
from orchestrator.report.pictures import save
from orchestrator.report.pictures.learning import (
    VariantCurves,
    band,
    events,
    overview,
    panels,
    variant_curves,
    visible_range,
)
from orchestrator.report.pictures.style import line_styles
from tests.support.factories import FULL, make_curve, make_trial


def variant(name: str, *lasts: float, epochs: int | None = None, complete: bool = True) -> VariantCurves:
    seeds = [make_curve(FULL, last, noise=k) for k, last in enumerate(lasts)]
    if epochs is not None:
        seeds[-1] = seeds[-1][:epochs]
    return curves(name, *map(curve, seeds), complete=complete)


def curves(name: str, *seeds: Curve, complete: bool = True) -> VariantCurves:
    """The variant's seeds are 1, 2, ...; `full` is the baseline."""
    return VariantCurves(name, name == "full", complete, dict(enumerate(seeds, 1)))


def draw(folder: Path, variants: Sequence[VariantCurves], published: float | None = None) -> None:
    """Both pictures of curves."""
    save(folder / "overview.svg", overview, variants, published)
    save(folder / "variants.svg", panels, variants)


def legend(figure: Figure, place: int) -> list[str]:
    """What the keys of a legend are called."""
    return [text.get_text() for text in figure.legends[place].get_texts()]


def marks(axes: Axes) -> list[tuple[float, float, str]]:
    """The events drawn: x, y and marker."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]), str(line.get_marker()))
        for line in axes.lines
        if line.get_markerfacecolor() == "white"
    ]


def curve(points: Sequence[Evaluation]) -> Curve:
    return curve_of(curve_table(points))


def flat(perplexity: float, epochs: int = 8) -> Curve:
    epoch = np.arange(1, epochs + 1)
    nats = np.full(epochs, math.log(perplexity))
    none = np.full(epochs, np.nan)
    return Curve(epoch, 10.0 * epoch, nats, nats, np.zeros(epochs, dtype=bool), np.full(epochs, "train"), none)


def test_the_same_curves_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    variants = [variant("full", 60.0, 61.0), variant("no weight drop", 70.0, 71.0)]
    for folder in ("a", "b"):
        with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0} if folder == "b" else {}):
            draw(tmp_path / folder, variants, 60.0)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["overview.svg", "variants.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    picture = (tmp_path / "a" / "overview.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in picture


def test_the_range_holds_every_end_and_a_published_line_but_no_high_first_epochs_and_no_ruin() -> None:
    low, high = visible_range([curves("full", flat(60.0)), curves("ruin", flat(9e8))], 55.0)
    assert low < 55.0
    assert 60.0 < high < 600.0
    learning = make_curve(FULL, 60.0)
    assert visible_range([variant("full", 60.0)], None)[1] < max(point.valid_perplexity for point in learning)


@pytest.mark.parametrize(("unigram", "visible"), [(62.0, True), (700.0, False), (20.0, False), (None, False)])
def test_the_unigram_model_is_a_line_if_it_lies_among_the_curves(unigram: float | None, visible: bool) -> None:
    figure = overview([curves("full", flat(60.0)), curves("b", flat(65.0))], 61.0, unigram)
    for axes in figure.axes:
        levels = [float(line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == ":"]
        assert levels == [61.0, *[62.0] * visible]
    labels = legend(figure, 0)
    assert ("unigram model: 62.00" in labels) == visible and "published, full: 61" in labels


def test_a_variant_that_is_never_seen_is_named() -> None:
    seen, ruined = curves("full", flat(60.0)), curves("ruined", flat(3.1e7))
    assert "31,000,000  ruined" in legend(overview([seen, ruined], None), 1)
    written = [
        (axes.get_title(loc="left"), [text.get_text() for text in axes.texts]) for axes in panels([seen, ruined]).axes
    ]
    assert written == [("full", []), ("ruined", ["above the picture"])]


def test_the_legend_gives_the_lowest_points_of_complete_variants() -> None:
    partial = curves("partial " * 30, flat(70.0), complete=False)
    figure = overview([curves("full", flat(60.0)), partial, curves("ruined", flat(3.1e7))], None)
    first, second, third = legend(figure, 1)
    assert (first, third) == ("31,000,000  ruined", "60.00  full")
    assert second.startswith("not complete  partial partial") and second.endswith("…"), "however long its name"


def seconds_apart(seed: Curve, factor: float) -> Curve:
    return dataclasses.replace(seed, seconds=seed.seconds * factor)


def test_one_ruin_among_many_does_not_set_the_range() -> None:
    several = [curves("full", flat(60.0)), *(curves(f"v{k}", flat(60.0 + k)) for k in range(1, 6))]
    assert visible_range(several, None)[1] < 67.0
    assert visible_range([*several, curves("ruin", flat(9e8))], None)[1] < 130.0


@pytest.mark.parametrize("far", [500.0, 1e5, 1e300])
def test_at_least_half_of_the_variants_are_seen_at_their_lowest_point(tmp_path: Path, far: float) -> None:
    low = [curves("full", flat(60.0)), curves("low", flat(61.0))]
    high = [curves(f"high {k}", flat(far * (1 + k))) for k in range(16)]
    top = visible_range([*low, *high], 50.0)[1]
    assert [each.name for each in (*low, *high) if each.lowest < top][:9] == [
        *("full", "low", *(f"high {k}" for k in range(7)))
    ]
    assert top < 2 * high[6].lowest or far == 1e300, "and no higher than this needs"
    draw(tmp_path, [*low, *high], 50.0)


def test_the_mean_ends_where_the_first_seed_ends() -> None:
    full = variant("full", 60.0, 62.0, epochs=5)
    mean = band(full.seeds.values())
    assert mean.epoch.tolist() == [1, 2, 3, 4, 5]
    first, second = (float(seed.valid_nats_per_token[2]) for seed in full.seeds.values())
    assert mean.mean[2] == pytest.approx(math.exp((first + second) / 2))
    assert (mean.low[2], mean.high[2]) == pytest.approx(tuple(sorted((math.exp(first), math.exp(second)))))


def test_a_seed_on_a_slow_machine_moves_the_mean_aside_and_not_up() -> None:
    level = flat(60.0, epochs=8)
    steep = dataclasses.replace(level, valid_nats_per_token=5.0 - 0.1 * level.epoch)
    mean = band([steep, seconds_apart(steep, 3.0)])
    assert mean.seconds.tolist() == [20.0 * epoch for epoch in range(1, 9)], "to the end, of both"
    for line in (mean.low, mean.mean, mean.high):
        assert np.log(line) == pytest.approx(steep.valid_nats_per_token)


def test_seeds_that_share_no_second_have_a_mean_and_those_that_share_no_epoch_can_be_drawn() -> None:
    apart = (flat(60.0, epochs=2), seconds_apart(flat(60.0, epochs=2), 10.0))
    assert band(apart).seconds.tolist() == [55.0, 110.0]
    ends = (apart[0].at(np.array([True, False])), apart[1].at(np.array([False, True])))
    assert band(ends).epoch.tolist() == [1], "of the first seed"
    assert overview([curves("full", *ends)], None)


def test_marks_lie_on_the_mean_line_at_the_mean_seconds() -> None:
    seed = curve(make_curve(FULL, 60.0))
    slow = dataclasses.replace(curve(make_curve(FULL, 70.0, noise=1)), seconds=30.0 * seed.epoch)
    early = slow.at(slow.epoch <= 9)
    many = [curves(f"v{k}", seed, slow) for k in range(5)]
    many.append(curves("ended early", seed, early, complete=False))
    left, right = overview(many, None).axes
    height = math.exp((seed.valid_nats_per_token[8] + slow.valid_nats_per_token[8]) / 2)
    by_minutes = marks(right)
    assert [(x, marker) for x, _, marker in by_minutes].count((3.0, "o")) == 12
    assert [(x, marker) for x, _, marker in by_minutes].count((pytest.approx(260 / 60), "D")) == 10, (
        "none where its line has ended"
    )
    assert len(by_minutes) == len(marks(left)) == 22
    assert [y for x, y, _ in by_minutes if x == 3.0] == pytest.approx([height] * 12)


def test_the_switch_to_averaging_and_fine_tuning_are_marked_in_both_panels() -> None:
    seed = make_curve(FULL, 60.0)
    assert list(events(curve(seed))) == [(9, "o"), (13, "D")]
    left, right = overview([curves("full", curve(seed))], None).axes
    for axes, places in ((left, (9, 13)), (right, (90, 130))):
        assert [(x, marker) for x, _, marker in marks(axes)] == [(places[0], "o"), (places[1], "D")]
        assert [y for _, y, _ in marks(axes)] == pytest.approx([seed[k].valid_perplexity for k in (8, 12)])


def test_a_leg_is_no_fine_tuning_and_fine_tuning_begins_once() -> None:
    stages = np.array(["train", "train-2", "finetune-1", "finetune-2"])
    assert list(events(dataclasses.replace(flat(60.0, 4), stage=stages))) == [(3, "D")]


def test_of_many_variants_those_with_the_lowest_perplexity_are_coloured() -> None:
    many = [curves("full", flat(61.1)), *(curves(f"v{k}", flat(60.0 + k / 4)) for k in range(39))]
    names = [label.split("  ")[-1] for label in legend(overview(many, None), 1)]
    assert names == ["v7", "v6", "v5", "full", "v4", "v3", "v2", "v1", "v0", "31 other variants"]
    assert legend(overview(many[1:], None), 1)[-1] == "31 other variants", "without the baseline too"


def test_a_variant_looks_as_its_place_in_the_plan_says_and_the_legend_goes_by_height() -> None:
    ends = {"v0": 70.0, "v1": 75.0, "full": 60.0, "v3": 90.0, "v4": 80.0}
    figure = overview([curves(name, flat(end)) for name, end in ends.items()], None)
    styles, names = line_styles(ends, "full"), ["v3", "v4", "v1", "v0", "full"]
    assert [label.split("  ")[1] for label in legend(figure, 1)] == names
    for name, line in zip(names, figure.legends[1].get_lines(), strict=True):
        assert to_hex(line.get_color()) == to_hex(styles[name][0])
        assert line.get_linestyle() == {"solid": "-", "dashed": "--", "dotted": ":", "dashdot": "-."}[styles[name][1]]


def test_many_variants_of_long_curves_make_a_sane_file(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.05, 500)
    long = dataclasses.replace(flat(60.0, epochs=500), valid_nats_per_token=4.0 + noise)
    many = [curves("full", long, long, long), *(curves(f"variant {k}", long, long, long) for k in range(24))]
    draw(tmp_path, many)
    assert all(path.stat().st_size < 2**22 for path in tmp_path.iterdir())


def test_a_seed_looks_the_same_in_every_panel() -> None:
    seeds = (flat(60.0), flat(61.0))
    partial = VariantCurves("one seed", False, False, {2: seeds[1]})
    figure = panels([curves("full", *seeds), partial])
    keys = dict(zip(["baseline", "seed 1", "seed 2"], figure.legends[0].get_lines(), strict=True))
    lines = [[line for line in axes.lines if line.get_linewidth() == 1.2] for axes in figure.axes]
    looks = [[(line.get_color(), line.get_linestyle()) for line in panel] for panel in lines]
    assert looks[1] == [looks[0][1]] and len(set(looks[0])) == 2
    assert looks[0] == [(keys[f"seed {k}"].get_color(), keys[f"seed {k}"].get_linestyle()) for k in (1, 2)]


@pytest.mark.parametrize("ill", [math.inf, 1e6])
def test_losses_that_overflow_are_drawn_as_far_as_they_go(tmp_path: Path, ill: float) -> None:
    good = flat(60.0)
    bad = flat(60.0, epochs=4)
    bad.valid_nats_per_token[3] = ill
    ruined = curves("ruined", dataclasses.replace(good, valid_nats_per_token=np.full(8, ill)), complete=False)
    draw(tmp_path, [curves("full", good, bad), ruined])


def test_losses_that_are_no_number_are_left_out() -> None:
    def outcome(variant: str, seed: int, *losses: float) -> Outcome:
        trial = make_trial(variant, seed)
        points = make_curve(trial.spec, 60.0)[: len(losses)]
        spoilt = [
            dataclasses.replace(point, valid_nats_per_token=nats) for point, nats in zip(points, losses, strict=True)
        ]
        return Outcome(trial, "diverged", "", None, curve_table(spoilt))

    group = outcome("full", 1, 5.0, math.nan), outcome("full", 2, math.nan)
    (full,) = variant_curves(Outcomes({"full": group, "b": (outcome("b", 1, math.nan),)}, "full"))
    assert full.name == "full" and {seed: curve.epoch.tolist() for seed, curve in full.seeds.items()} == {1: [1]}


@pytest.mark.parametrize("value", [1.0, 59.99, 60.0, 173.2, 3e5])
def test_a_single_point_and_any_range_can_be_drawn(tmp_path: Path, value: float) -> None:
    draw(tmp_path, [curves("full", flat(value, epochs=1))])


def test_whatever_the_names_the_pictures_are_drawn(tmp_path: Path) -> None:
    names = ["full", "_hidden", "$\\frac$", "two\nlines", "<b>&", "a|b `c`", "long " * 60, "漢字 \u202e\x1b[31m"]
    draw(tmp_path, [variant(name, 60.0) for name in names])


def test_a_report_needs_no_pyplot_and_its_sweep_no_matplotlib() -> None:
    code = (
        "import sys; import orchestrator.report; assert not {'matplotlib', 'bokeh'} & set(sys.modules); "
        "import orchestrator.report.page; assert 'matplotlib.pyplot' not in sys.modules; "
        "assert not {'torch', 'ray', 'mlflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("form", [lambda variants: overview(variants, None), panels], ids=["overview", "panels"])
def test_iterates_are_drawn_where_curves_have_them(form: Callable[[list[VariantCurves]], Figure]) -> None:
    seed = flat(50.0)
    raw = np.where(seed.epoch > 5, math.log(60.0), np.nan)
    variants = [curves("full", dataclasses.replace(seed, raw_valid_nats_per_token=raw), seed), curves("b", seed)]
    figure = form(variants)
    drawn = [line for axes in figure.axes for line in axes.lines if len(line.get_xdata()) == 3]
    assert drawn and all(line.get_ydata() == pytest.approx([60.0] * 3) for line in drawn)
    assert "last iterate, not averaged" in legend(figure, 0)
    without = form(variants[1:])
    assert all(len(line.get_xdata()) != 3 for axes in without.axes for line in axes.lines)
    assert "iterate" not in "".join(legend(without, 0))
