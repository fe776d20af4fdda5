"""Pictures from curves: what is drawn, what is cut off and said, and that bytes repeat."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from unittest import mock

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes

from lm.record import Evaluation
from orchestrator.curves import VariantCurves, draw_overview, draw_variants, learning
from tests.factories import FULL, make_curve


def variant(name: str, *lasts: float, epochs: int | None = None, complete: bool = True) -> VariantCurves:
    seeds = [make_curve(FULL, last, noise=k) for k, last in enumerate(lasts)]
    if epochs is not None:
        seeds[-1] = seeds[-1][:epochs]
    return VariantCurves(name, name == "full", complete, tuple(map(tuple, seeds)))


def flat(perplexity: float, epochs: int = 8) -> tuple[Evaluation, ...]:
    point = make_curve(FULL, perplexity, epochs=1)[0]
    nats = math.log(perplexity)
    return tuple(
        Evaluation(**{**vars(point), "epoch": epoch, "valid_nats_per_token": nats}) for epoch in range(1, epochs + 1)
    )


def test_the_same_curves_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    variants = [variant("full", 60.0, 61.0), variant("no weight drop", 70.0, 71.0)]
    for folder in ("a", "b"):
        with mpl.rc_context({"lines.linewidth": 7.0, "font.size": 20.0} if folder == "b" else {}):
            draw_overview(tmp_path / folder, variants, 60.0)
            draw_variants(tmp_path / folder, variants)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["overview.png", "overview.svg", "variants.png", "variants.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    picture = (tmp_path / "a" / "overview.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in picture
    assert b"Software" not in (tmp_path / "a" / "overview.png").read_bytes()


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
    window = learning._window(both, 55.0)
    assert window.low < 55.0
    assert 60.0 < window.high < 600.0
    assert window.cut == 8


def test_a_variant_that_is_never_seen_is_named(tmp_path: Path) -> None:
    seen = VariantCurves("full", True, True, (flat(60.0),))
    lost = VariantCurves("lost", False, True, (flat(3.1e7),))
    assert draw_overview(tmp_path, [seen, lost], None) == (
        f"8 points lie above the top of the picture, {learning._window([seen, lost], None).high:.1f} "
        "(highest 3.10e+07); among them all of lost."
    )
    assert learning._label(lost) == "3.10e+07  lost"
    with mock.patch.object(Axes, "text", autospec=True, side_effect=Axes.text) as text:
        draw_variants(tmp_path, [seen, lost])
    written = [(call.args[0].get_title(loc="left"), call.args[3]) for call in text.call_args_list]
    assert written == [("lost", "above the picture")]


def test_the_mean_ends_where_the_first_seed_ends() -> None:
    full = variant("full", 60.0, 62.0, epochs=5)
    epochs, mean = learning._mean(full.seeds)
    assert epochs == [1, 2, 3, 4, 5]
    first, second = (seed[2].valid_perplexity for seed in full.seeds)
    assert mean[2] == pytest.approx((first + second) / 2)


def test_the_switch_to_averaging_and_fine_tuning_are_marked() -> None:
    seed = make_curve(FULL, 60.0)
    assert [(seed[k].epoch, marker) for k, marker in learning._events(seed)] == [(9, "o"), (13, "D")]


@pytest.mark.parametrize("value", [1.0, 59.99, 60.0, 173.2, 3e5])
def test_a_single_point_and_any_range_can_be_drawn(tmp_path: Path, value: float) -> None:
    draw_overview(tmp_path, [VariantCurves("full", True, True, (flat(value, epochs=1),))], None)


def test_names_are_literal_text(tmp_path: Path) -> None:
    names = ["full", "_hidden", "$\\frac$", "two\nlines", "<b>&"]
    draw_overview(tmp_path, [variant(name, 60.0) for name in names], None)
    draw_variants(tmp_path, [variant(name, 60.0) for name in names])


def test_neither_pyplot_nor_a_report_without_pictures_is_imported() -> None:
    code = (
        "import sys; import orchestrator.report; assert 'matplotlib' not in sys.modules; "
        "import orchestrator.curves; assert 'matplotlib.pyplot' not in sys.modules; "
        "assert not {'torch', 'ray', 'mlflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
