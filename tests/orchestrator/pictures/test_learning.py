"""Pictures from curves: what is drawn, what is cut off, what the page says of it, and that bytes repeat."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from lm.record import Evaluation, curve_table
from orchestrator.analysis.curve import Curve, curve_of
from orchestrator.report.pictures.curves import band, events, lowest_perplexity, visible_range
from orchestrator.report.pictures.drawing import draw, figure_of
from orchestrator.report.pictures.figures import Overview, Panels, VariantCurves, line_styles
from tests.support.factories import FULL, make_curve


def variant(name: str, *lasts: float, epochs: int | None = None, complete: bool = True) -> VariantCurves:
    seeds = [make_curve(FULL, last, noise=k) for k, last in enumerate(lasts)]
    if epochs is not None:
        seeds[-1] = seeds[-1][:epochs]
    return curves(name, *map(curve, seeds), complete=complete)


def curves(name: str, *seeds: Curve, complete: bool = True, turns: Collection[str] = ()) -> VariantCurves:
    """The variant's seeds are 1, 2, ...; `full` is the baseline."""
    return VariantCurves(name, name == "full", complete, seeds, tuple(range(1, len(seeds) + 1)), frozenset(turns))


def overview_of(variants: Sequence[VariantCurves], *levels: float | None) -> str | None:
    """What the page says of the picture of all variants."""
    return figure_of(Overview(variants, *levels or (None,)))[1]


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
    return Curve(epoch, 10.0 * epoch, nats, np.zeros(epochs, dtype=bool), np.full(epochs, "train"))


def test_the_same_curves_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    variants = [variant("full", 60.0, 61.0), variant("no weight drop", 70.0, 71.0)]
    for folder in ("a", "b"):
        with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0} if folder == "b" else {}):
            draw(tmp_path / folder, Overview(variants, 60.0))
            draw(tmp_path / folder, Panels(variants))
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["overview.svg", "variants.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    picture = (tmp_path / "a" / "overview.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in picture


def test_high_first_epochs_are_cut_off_and_counted() -> None:
    sentence = overview_of([variant("full", 60.0)])
    assert sentence is not None
    assert "above the top of the picture" in sentence
    highest = max(point.valid_perplexity for point in make_curve(FULL, 60.0))
    assert sentence.endswith(f"(highest {highest:.1f}).")
    assert overview_of([curves("full", flat(60.0))]) is None


def test_the_range_holds_every_end_and_a_published_line_but_no_ruin() -> None:
    both = [curves("full", flat(60.0)), curves("ruin", flat(9e8))]
    low, high = visible_range(both, 55.0)
    assert low < 55.0
    assert 60.0 < high < 600.0
    sentence = overview_of(both, 55.0)
    assert sentence is not None and sentence.startswith("8 points lie above the top")


@pytest.mark.parametrize(("unigram", "visible"), [(62.0, True), (700.0, False), (20.0, False), (None, False)])
def test_the_unigram_model_is_a_line_if_it_lies_among_the_curves(unigram: float | None, visible: bool) -> None:
    figure, _ = figure_of(Overview([curves("full", flat(60.0)), curves("b", flat(65.0))], 61.0, unigram))
    for axes in figure.axes:
        levels = [float(line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == ":"]
        assert levels == [61.0, *[62.0] * visible]
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert ("unigram model: 62.00" in labels) == visible and "published, full: 61" in labels


def test_a_variant_that_is_never_seen_is_named() -> None:
    seen, ruined = curves("full", flat(60.0)), curves("ruined", flat(3.1e7))
    high = visible_range([seen, ruined], None)[1]
    assert overview_of([seen, ruined]) == (
        f"8 points lie above the top of the picture, {high:.1f} (highest 31,000,000); among them all of ruined."
    )
    panels = figure_of(Panels([seen, ruined]))[0].axes
    written = [(axes.get_title(loc="left"), [text.get_text() for text in axes.texts]) for axes in panels]
    assert written == [("full", []), ("ruined", ["above the picture"])]


def test_the_legend_gives_the_lowest_points_of_complete_variants() -> None:
    partial = curves("partial " * 30, flat(70.0), complete=False)
    figure, _ = figure_of(Overview([curves("full", flat(60.0)), partial, curves("ruined", flat(3.1e7))], None))
    first, second, third = (text.get_text() for text in figure.legends[1].get_texts())
    assert (first, third) == ("31,000,000  ruined", "60.00  full")
    assert second.startswith("not complete  partial partial") and second.endswith("…"), "however long its name"


def seconds_apart(seed: Curve, factor: float) -> Curve:
    return dataclasses.replace(seed, seconds=seed.seconds * factor)


def test_one_ruin_among_many_does_not_set_the_range() -> None:
    several = [curves("full", flat(60.0)), *(curves(f"v{k}", flat(60.0 + k)) for k in range(1, 6))]
    ruined = [*several, curves("ruin", flat(200.0))]
    assert visible_range(ruined, None) == visible_range(several, None)
    sentence = overview_of(ruined)
    assert sentence is not None and sentence.endswith("among them all of ruin.")


@pytest.mark.parametrize("far", [500.0, 1e5, 1e300])
def test_at_least_half_of_the_variants_are_seen_at_their_lowest_point(tmp_path: Path, far: float) -> None:
    low = [curves("full", flat(60.0)), curves("low", flat(61.0))]
    high = [curves(f"high {k}", flat(far * (1 + k))) for k in range(16)]
    top = visible_range([*low, *high], 50.0)[1]
    seen = [each.name for each in (*low, *high) if lowest_perplexity(each) < top]
    assert seen[:9] == ["full", "low", *(f"high {k}" for k in range(7))]
    assert top < 2 * lowest_perplexity(high[6]) or far == 1e300, "and no higher than this needs"
    draw(tmp_path, Overview([*low, *high], 50.0))
    draw(tmp_path, Panels([*low, *high]))
    assert visible_range([*low, *high[:2]], 50.0)[1] < 500.0, "half are seen without it"


def test_the_mean_ends_where_the_first_seed_ends() -> None:
    full = variant("full", 60.0, 62.0, epochs=5)
    mean = band(full.seeds)
    assert mean.epoch.tolist() == [1, 2, 3, 4, 5]
    first, second = (float(seed.valid_nats_per_token[2]) for seed in full.seeds)
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
    assert overview_of([curves("full", *ends)]) is None


def test_marks_lie_on_the_mean_line_at_the_mean_seconds() -> None:
    seed = curve(make_curve(FULL, 60.0))
    slow = dataclasses.replace(curve(make_curve(FULL, 70.0, noise=1)), seconds=30.0 * seed.epoch)
    early = slow.at(slow.epoch <= 9)
    many = [curves(f"v{k}", seed, slow) for k in range(5)]
    many.append(curves("ended early", seed, early, complete=False))
    left, right = figure_of(Overview(many, None))[0].axes
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
    assert list(events(curve(seed), ())) == [(8, "o"), (12, "D")]
    left, right = figure_of(Overview([curves("full", curve(seed))], None))[0].axes
    for axes, places in ((left, (9, 13)), (right, (90, 130))):
        assert [(x, marker) for x, _, marker in marks(axes)] == [(places[0], "o"), (places[1], "D")]
        assert [y for _, y, _ in marks(axes)] == pytest.approx([seed[k].valid_perplexity for k in (8, 12)])


def test_a_leg_is_no_fine_tuning() -> None:
    seed = dataclasses.replace(flat(60.0, 3), stage=np.array(["train", "train-2", "finetune-1"]))
    assert list(events(seed, {"train-2"})) == [(1, "P"), (2, "D")]


def test_a_leg_that_changes_nothing_is_not_marked() -> None:
    stages = np.array(["train", "train-2", "train-3", "train-4", "finetune-1"])
    seed = dataclasses.replace(flat(60.0, 5), stage=stages)
    assert list(events(seed, {"train-3"})) == [(2, "P"), (4, "D")]
    seeds = ["mean over seeds", "lowest to highest seed"]
    for turns, labels in (((), []), ({"train-3"}, ["other values begin"])):
        figure, _ = figure_of(Overview([curves("full", seed, turns=turns)], None))
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [*seeds, *labels, "fine-tuning begins"]


def test_of_many_variants_those_with_the_lowest_perplexity_are_coloured() -> None:
    many = [curves("full", flat(61.1)), *(curves(f"v{k}", flat(60.0 + k / 4)) for k in range(39))]
    figure, sentence = figure_of(Overview(many, None))
    names = [text.get_text().split("  ")[-1] for text in figure.legends[1].get_texts()]
    assert names == ["v7", "v6", "v5", "full", "v4", "v3", "v2", "v1", "v0", "31 other variants"]
    assert sentence == "In colour are the 8 variants with the lowest perplexity; in grey: 31 others."
    assert overview_of(many[1:]) == sentence, "without the baseline too"


def test_a_variant_looks_as_its_place_in_the_plan_says_and_the_legend_goes_by_height() -> None:
    ends = {"v0": 70.0, "v1": math.nan, "full": 60.0, "v3": 90.0, "v4": 80.0}
    figure, _ = figure_of(Overview([curves(name, flat(end)) for name, end in ends.items()], None))
    styles = line_styles(ends, "full")
    legend = figure.legends[1]
    assert [text.get_text().split("  ")[1] for text in legend.get_texts()] == ["v3", "v4", "v0", "full"]
    for name, line in zip(["v3", "v4", "v0", "full"], legend.get_lines(), strict=True):
        assert to_hex(line.get_color()) == to_hex(styles[name][0])
        assert line.get_linestyle() == {"solid": "-", "dashed": "--", "dotted": ":", "dashdot": "-."}[styles[name][1]]


def test_many_variants_of_long_curves_make_a_sane_file(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.05, 500)
    long = dataclasses.replace(flat(60.0, epochs=500), valid_nats_per_token=4.0 + noise)
    many = [curves("full", long, long, long), *(curves(f"variant {k}", long, long, long) for k in range(24))]
    assert draw(tmp_path, Panels(many)) == "A picture has 24 panels at most: 1 variant more without one."
    draw(tmp_path, Overview(many, None))
    assert all(path.stat().st_size < 2**22 for path in tmp_path.iterdir())


def test_a_seed_looks_the_same_in_every_panel() -> None:
    seeds = (flat(60.0), flat(61.0))
    partial = VariantCurves("one seed", False, False, seeds[1:], (2,))
    figure, _ = figure_of(Panels([curves("full", *seeds), partial]))
    legend = dict(zip(["baseline", "seed 1", "seed 2"], figure.legends[0].get_lines(), strict=True))
    lines = [[line for line in axes.lines if line.get_linewidth() == 1.2] for axes in figure.axes]
    looks = [[(line.get_color(), line.get_linestyle()) for line in panel] for panel in lines]
    assert looks[1] == [looks[0][1]] and len(set(looks[0])) == 2
    assert looks[0] == [(legend[f"seed {k}"].get_color(), legend[f"seed {k}"].get_linestyle()) for k in (1, 2)]


@pytest.mark.parametrize("ill", [math.nan, math.inf, 1e6])
def test_losses_that_are_no_number_or_overflow_are_drawn_as_far_as_they_go(tmp_path: Path, ill: float) -> None:
    good = flat(60.0)
    bad = flat(60.0, epochs=4)
    bad.valid_nats_per_token[3] = ill
    all_bad = dataclasses.replace(good, valid_nats_per_token=np.full(8, ill))
    variants = [curves("full", good, bad), curves("ruined", all_bad, complete=False)]
    sentence = draw(tmp_path, Overview(variants, None))
    draw(tmp_path, Panels(variants))
    assert sentence is not None
    if math.isnan(ill):
        assert sentence == "Not drawn, because no loss is a number: ruined."
        with pytest.raises(ValueError, match="expected a variant with a loss that is a number"):
            draw(tmp_path, Overview(variants[1:], None))
    else:
        assert sentence.startswith("9 points lie above")
        assert sentence.endswith("(highest ∞); among them all of ruined.")


@pytest.mark.parametrize("value", [1.0, 59.99, 60.0, 173.2, 3e5])
def test_a_single_point_and_any_range_can_be_drawn(tmp_path: Path, value: float) -> None:
    draw(tmp_path, Overview([curves("full", flat(value, epochs=1))], None))
    draw(tmp_path, Panels([curves("full", flat(value, epochs=1))]))


def test_names_are_literal_text(tmp_path: Path) -> None:
    names = ["full", "_hidden", "$\\frac$", "two\nlines", "<b>&", "a|b `c`", "long " * 60, "漢字 \u202e\x1b[31m"]
    draw(tmp_path, Overview([variant(name, 60.0) for name in names], None))
    draw(tmp_path, Panels([variant(name, 60.0) for name in names]))


def test_neither_pyplot_nor_a_report_without_pictures_is_imported() -> None:
    code = (
        "import sys; import orchestrator.report.page; assert 'matplotlib' not in sys.modules; "
        "import orchestrator.report.pictures.drawing; assert 'matplotlib.pyplot' not in sys.modules; "
        "assert not {'torch', 'ray', 'mlflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("form", [lambda variants: Overview(variants, None), Panels], ids=["overview", "panels"])
def test_iterates_are_drawn_where_curves_have_them(form: Any) -> None:
    seed = flat(50.0)
    raw = np.where(seed.epoch > 5, math.log(60.0), np.nan)
    both = [dataclasses.replace(seed, raw_valid_nats_per_token=raw), seed]
    variants = [VariantCurves("full", True, True, tuple(both), (1, 2)), VariantCurves("b", False, True, (seed,), (1,))]
    figure = figure_of(form(variants))[0]
    drawn = [line for axes in figure.axes for line in axes.lines if len(line.get_xdata()) == 3]
    assert drawn and all(line.get_ydata() == pytest.approx([60.0] * 3) for line in drawn)
    assert "last iterate, not averaged" in {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    without = figure_of(form(variants[1:]))[0]
    assert all(len(line.get_xdata()) != 3 for axes in without.axes for line in axes.lines)
    assert "iterate" not in "".join(text.get_text() for legend in without.legends for text in legend.get_texts())
