"""Pictures from curves: what is drawn, what is cut off and said, and that bytes repeat."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lm.record import Evaluation, curve_table
from orchestrator.analysis.curve import Curve, curve_of
from orchestrator.report.pictures.colours import looks
from orchestrator.report.pictures.drawing import draw_overview, draw_variants, learning, panels, series
from orchestrator.report.pictures.figures import VariantCurves
from tests.factories import FULL, make_curve


def variant(name: str, *lasts: float, epochs: int | None = None, complete: bool = True) -> VariantCurves:
    seeds = [make_curve(FULL, last, noise=k) for k, last in enumerate(lasts)]
    if epochs is not None:
        seeds[-1] = seeds[-1][:epochs]
    return VariantCurves(name, name == "full", complete, tuple(map(curve, seeds)))


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
            draw_overview(tmp_path / folder, variants, 60.0)
            draw_variants(tmp_path / folder, variants)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["overview.svg", "variants.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    picture = (tmp_path / "a" / "overview.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in picture


def test_high_first_epochs_are_cut_off_and_said(tmp_path: Path) -> None:
    said = draw_overview(tmp_path, [variant("full", 60.0)], None)
    assert said is not None
    assert "above the top of the picture" in said
    highest = max(point.valid_perplexity for point in make_curve(FULL, 60.0))
    assert said.endswith(f"(highest {highest:.1f}).")
    assert draw_overview(tmp_path, [VariantCurves("full", True, True, (flat(60.0),))], None) is None


def test_the_range_holds_every_end_and_a_published_line_but_no_ruin() -> None:
    low_end, ruin = (flat(60.0),), (flat(9e8),)
    both = [VariantCurves("full", True, True, low_end), VariantCurves("ruin", False, True, ruin)]
    window = series.window(both, 55.0)
    assert window.low < 55.0
    assert 60.0 < window.high < 600.0
    assert window.cut == 8


@pytest.mark.parametrize(("unigram", "seen"), [(62.0, True), (700.0, False), (20.0, False), (None, False)])
def test_the_unigram_model_is_a_line_where_it_lies_among_the_curves(
    tmp_path: Path, unigram: float | None, seen: bool
) -> None:
    low, high = (VariantCurves(f"{end}", end == 60.0, True, (flat(end),)) for end in (60.0, 65.0))
    with (
        mock.patch.object(Axes, "axhline", autospec=True, side_effect=Axes.axhline) as line,
        mock.patch.object(Figure, "legend", autospec=True, side_effect=Figure.legend) as legend,
    ):
        draw_overview(tmp_path, [low, high], 61.0, unigram)
    assert [call.args[1] for call in line.call_args_list] == [61.0, *[62.0] * seen] * 2
    labels = [key.get_label() for call in legend.call_args_list for key in call.kwargs["handles"]]
    assert ("unigram model: 62.00" in labels) == seen and "published, 60.0: 61" in labels


def test_a_variant_that_is_never_seen_is_named(tmp_path: Path) -> None:
    seen = VariantCurves("full", True, True, (flat(60.0),))
    lost = VariantCurves("lost", False, True, (flat(3.1e7),))
    assert draw_overview(tmp_path, [seen, lost], None) == (
        f"8 points lie above the top of the picture, {series.window([seen, lost], None).high:.1f} "
        "(highest 3.10e+07); among them all of lost."
    )
    lines = learning._lines([seen, lost], [seen, lost], {"lost"})
    assert learning._handle(lost, lines).get_label() == "A  3.10e+07  lost"
    partial = dataclasses.replace(lost, name="lost " * 30, complete=False)
    label = str(learning._handle(partial, {"full": lines["full"], partial.name: lines["lost"]}).get_label())
    assert label.startswith("A  not complete  lost lost") and label.endswith("…"), "however long its name"
    with mock.patch.object(Axes, "text", autospec=True, side_effect=Axes.text) as text:
        draw_variants(tmp_path, [seen, lost])
    written = [(call.args[0].get_title(loc="left"), call.args[3]) for call in text.call_args_list]
    assert written == [("lost", "above the picture")]


def seconds_apart(seed: Curve, factor: float) -> Curve:
    return dataclasses.replace(seed, seconds=seed.seconds * factor)


def test_one_ruin_among_many_does_not_set_the_range(tmp_path: Path) -> None:
    several = [VariantCurves(f"v{k}", k == 0, True, (flat(60.0 + k),)) for k in range(6)]
    ruined = [*several, VariantCurves("ruin", False, True, (flat(200.0),))]
    assert series.window(ruined, None).high == series.window(several, None).high
    said = draw_overview(tmp_path, ruined, None)
    assert said is not None
    assert said.endswith("among them all of ruin.")


@pytest.mark.parametrize("far", [500.0, 1e5, 1e300])
def test_at_least_half_of_the_variants_are_seen_at_their_lowest_point(tmp_path: Path, far: float) -> None:
    low = [VariantCurves(f"low {k}", k == 0, True, (flat(60.0 + k),)) for k in range(2)]
    high = [VariantCurves(f"high {k}", False, True, (flat(far * (1 + k)),)) for k in range(16)]
    shown = series.window([*low, *high], 50.0)
    seen = [each.name for each in (*low, *high) if series.lowest_perplexity(each) < shown.high]
    assert seen[:9] == ["low 0", "low 1", *(f"high {k}" for k in range(7))]
    assert shown.high < 2 * series.lowest_perplexity(high[6]) or far == 1e300, "and no higher than that needs"
    draw_overview(tmp_path, [*low, *high], 50.0)
    draw_variants(tmp_path, [*low, *high])
    few = series.window([*low, *high[:2]], 50.0)
    assert few.high < 500.0, "half are seen without it"


def test_the_mean_ends_where_the_first_seed_ends() -> None:
    full = variant("full", 60.0, 62.0, epochs=5)
    band = series.band(full.seeds)
    assert band is not None
    assert band.epoch.tolist() == [1, 2, 3, 4, 5]
    first, second = (float(seed.valid_nats_per_token[2]) for seed in full.seeds)
    assert band.mean[2] == pytest.approx(math.exp((first + second) / 2))
    assert (band.low[2], band.high[2]) == pytest.approx(tuple(sorted((math.exp(first), math.exp(second)))))


def test_a_seed_on_a_slow_machine_moves_the_mean_aside_and_not_up() -> None:
    level = flat(60.0, epochs=8)
    steep = dataclasses.replace(level, valid_nats_per_token=5.0 - 0.1 * level.epoch)
    band = series.band([steep, seconds_apart(steep, 3.0)])
    assert band is not None
    assert band.seconds.tolist() == [20.0 * epoch for epoch in range(1, 9)], "to the end, that of both"
    for line in (band.low, band.mean, band.high):
        assert np.log(line) == pytest.approx(steep.valid_nats_per_token)


def test_seeds_that_share_no_second_have_a_mean_and_those_that_share_no_epoch_can_be_drawn(tmp_path: Path) -> None:
    apart = (flat(60.0, epochs=2), seconds_apart(flat(60.0, epochs=2), 10.0))
    band = series.band(apart)
    assert band is not None and band.seconds.tolist() == [55.0, 110.0]
    ends = (apart[0].at(np.array([True, False])), apart[1].at(np.array([False, True])))
    assert series.band(ends) is None
    assert draw_overview(tmp_path, [VariantCurves("full", True, True, ends)], None) is None


def test_marks_lie_on_the_mean_line_at_the_mean_seconds(tmp_path: Path) -> None:
    seed = curve(make_curve(FULL, 60.0))
    slow = dataclasses.replace(curve(make_curve(FULL, 70.0, noise=1)), seconds=30.0 * seed.epoch)
    early = slow.at(slow.epoch <= 9)
    many = [VariantCurves(f"v{k}", k == 0, True, (seed, slow)) for k in range(5)]
    many.append(VariantCurves("one ended", False, False, (seed, early)))
    with mock.patch.object(learning, "draw_event", side_effect=learning.draw_event) as draw_event:
        draw_overview(tmp_path, many, None)
    height = math.exp((seed.valid_nats_per_token[8] + slow.valid_nats_per_token[8]) / 2)
    drawn = [call.args[1:4] for call in draw_event.call_args_list]
    assert [(across, marker) for across, _, marker in drawn].count((180.0, "o")) == 12
    assert [(across, marker) for across, _, marker in drawn].count((260.0, "D")) == 10, "none where its line has ended"
    assert len(drawn) == 44
    assert [at for across, at, _ in drawn if across == 180.0] == pytest.approx([height] * 12)


def test_a_mark_lies_on_a_line_whose_epochs_were_thinned_out() -> None:
    long = flat(60.0, epochs=800)
    band = series.band([dataclasses.replace(long, valid_nats_per_token=5.0 - 0.001 * long.epoch)])
    assert band is not None and len(band.epoch) == 300
    for epoch in range(1, 801):
        assert band.at(epoch, "seconds") == pytest.approx((10.0 * epoch, math.exp(5.0 - 0.001 * epoch)))


def test_the_switch_to_averaging_and_fine_tuning_are_marked_in_both_panels(tmp_path: Path) -> None:
    seed = make_curve(FULL, 60.0)
    assert list(series.events(curve(seed), ())) == [(8, "o"), (12, "D")]
    with mock.patch.object(learning, "draw_event", side_effect=learning.draw_event) as draw_event:
        draw_overview(tmp_path, [VariantCurves("full", True, True, (curve(seed),))], None)
    drawn = [call.args[1:] for call in draw_event.call_args_list]
    assert [(across, marker) for across, _, marker, _ in drawn] == [(9, "o"), (13, "D"), (90, "o"), (130, "D")]
    assert [height for _, height, _, _ in drawn] == pytest.approx([seed[k].valid_perplexity for k in (8, 12)] * 2)


def test_a_leg_is_no_fine_tuning() -> None:
    seed = dataclasses.replace(flat(60.0, 3), stage=np.array(["train", "train-2", "finetune-1"]))
    assert list(series.events(seed, {"train-2"})) == [(1, "P"), (2, "D")]


def test_a_leg_that_changes_nothing_is_not_marked() -> None:
    stages = np.array(["train", "train-2", "train-3", "train-4", "finetune-1"])
    seed = dataclasses.replace(flat(60.0, 5), stage=stages)
    assert list(series.events(seed, {"train-3"})) == [(2, "P"), (4, "D")]
    same, other = (VariantCurves("full", True, True, (seed,), turns=frozenset(turns)) for turns in ((), {"train-3"}))
    assert [key.get_label() for key in learning.event_keys([same])] == ["fine-tuning begins"]
    assert [key.get_label() for key in learning.event_keys([other])] == ["other values begin", "fine-tuning begins"]


def test_of_many_variants_those_that_differ_most_and_can_be_seen_are_coloured(tmp_path: Path) -> None:
    many = [VariantCurves("full", True, True, (flat(60.0),))]
    many += [VariantCurves(f"v{k}", False, True, (flat(60.0 + k / 4),)) for k in range(39)]
    many += [VariantCurves("ruin", False, True, (flat(9e8),))]
    window = series.window(many, None)
    assert learning._told_apart(many, window) == {"full", *(f"v{k}" for k in range(31, 39))}
    said = draw_overview(tmp_path, many, None)
    assert said is not None
    assert said.endswith("the 8 variants whose lowest points differ most from the baseline's; the other 32 are grey.")
    said = draw_overview(tmp_path, many[1:], None)
    assert said is not None and "differ most from the middle variant's; the other 32 are grey." in said


def test_a_variant_looks_as_its_place_in_the_plan_says_and_letters_go_by_height(tmp_path: Path) -> None:
    ends = (70.0, math.nan, 60.0, 90.0, 80.0)
    planned = [VariantCurves(f"v{k}", k == 2, True, (flat(end),)) for k, end in enumerate(ends)]
    with mock.patch.object(learning, "_handle", side_effect=learning._handle) as handle:
        draw_overview(tmp_path, planned, None)
    lines = handle.call_args.args[1]
    look_of = looks(["v0", "v1", "v3", "v4"])
    assert {name: (one.colour, one.dash) for name, one in lines.items()} == {
        "v2": ("black", "-"),
        **{name: (look_of[name][0], look_of[name][1].matplotlib) for name in ("v0", "v3", "v4")},
    }
    assert {name: learning._letter(name, lines) for name in ("v0", "v3", "v4")} == {"v3": "A", "v4": "B", "v0": "C"}


def test_letters_at_the_ends_do_not_cover_each_other() -> None:
    places = [(0.93, 0.5 + 0.001 * k) for k in range(8)] + [(0.93, 0.99), (0.5, 0.5)]
    heights = learning._spread(places)
    beside = sorted(heights[:-1])
    assert min(np.diff(beside)) > 0.999 * learning._APART
    assert 0.0 <= beside[0] < beside[-1] <= 0.98
    assert heights[-1] == 0.5


def test_forty_variants_of_long_curves_make_a_sane_file(tmp_path: Path) -> None:
    long = flat(60.0, epochs=500)
    many = [VariantCurves(f"variant {k}", k == 0, True, (long,) * 3, (1, 2, 3)) for k in range(25)]
    assert draw_variants(tmp_path, many) == (
        "A picture has 24 panels at most: 1 variant more without one. Of the epochs one in 2 is drawn."
    )
    assert (tmp_path / "variants.svg").stat().st_size < 2**21


def test_a_seed_looks_the_same_in_every_panel(tmp_path: Path) -> None:
    seeds = (flat(60.0), flat(61.0))
    both = [
        VariantCurves("full", True, True, seeds, (1, 2)),
        VariantCurves("one lost", False, True, seeds[1:], (2,)),
    ]
    with mock.patch.object(panels, "_line", side_effect=panels._line) as line:
        draw_variants(tmp_path, both)
    assert [call.args for call in line.call_args_list] == [(0,), (1,), (0,), (1,), (1,)]  # the legend, then the panels


@pytest.mark.parametrize("ill", [math.nan, math.inf, 1e6])
def test_losses_that_are_no_number_or_overflow_are_drawn_as_far_as_they_go(tmp_path: Path, ill: float) -> None:
    good = flat(60.0)
    bad = flat(60.0, epochs=4)
    bad.valid_nats_per_token[3] = ill
    all_bad = dataclasses.replace(good, valid_nats_per_token=np.full(8, ill))
    variants = [
        VariantCurves("full", True, True, (good, bad), (1, 2)),
        VariantCurves("lost", False, False, (all_bad,), (1,)),
    ]
    said = draw_overview(tmp_path, variants, None)
    draw_variants(tmp_path, variants)
    assert said is not None
    if math.isnan(ill):
        assert said == "Without a loss that is a number, and so not drawn: lost."
        with pytest.raises(ValueError, match="a picture needs a variant with a loss"):
            draw_overview(tmp_path, variants[1:], None)
    else:
        assert said.startswith("9 points lie above")
        assert said.endswith("(highest ∞); among them all of lost.")


@pytest.mark.parametrize("value", [1.0, 59.99, 60.0, 173.2, 3e5])
def test_a_single_point_and_any_range_can_be_drawn(tmp_path: Path, value: float) -> None:
    draw_overview(tmp_path, [VariantCurves("full", True, True, (flat(value, epochs=1),))], None)


def test_names_are_literal_text(tmp_path: Path) -> None:
    names = ["full", "_hidden", "$\\frac$", "two\nlines", "<b>&", "a|b `c`", "long " * 60, "漢字 \u202e\x1b[31m"]
    draw_overview(tmp_path, [variant(name, 60.0) for name in names], None)
    draw_variants(tmp_path, [variant(name, 60.0) for name in names])


def test_neither_pyplot_nor_a_report_without_pictures_is_imported() -> None:
    code = (
        "import sys; import orchestrator.report.page; assert 'matplotlib' not in sys.modules; "
        "import orchestrator.report.pictures.drawing; assert 'matplotlib.pyplot' not in sys.modules; "
        "assert not {'torch', 'ray', 'mlflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
