"""Rows from records: what is averaged, what is compared, and what is kept out of the comparison."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lm.record import write_curve, write_record
from lm.spec import SgdHalving, stage_keys
from orchestrator.analysis.comparison import compare_variants, equal_variants
from orchestrator.analysis.outcomes import Outcomes, read_outcomes
from orchestrator.report.files.tables import write_tables
from orchestrator.report.sections.ablation import AblationRow, PublishedDifference, ablation_table
from orchestrator.report.sections.published import published_table
from orchestrator.report.sections.tables import cache_table, fit_table, stage_table
from orchestrator.sweep.published import Published
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import CACHE, CORPUS, begin, make_curve, make_record, make_trial, number, settle

PAPERS = {
    "full": Published(number(60.0), number(57.3)),
    "no weight drop": Published(None, number(68.9)),
    "cache": Published(None, number(52.8)),
}


def read(runs: Path, trials: list[Trial]) -> tuple[Outcomes, dict[str, AblationRow]]:
    outcomes = read_outcomes(trials, Records(runs), "full")
    rows = ablation_table(outcomes, compare_variants(outcomes), PAPERS)
    return outcomes, {row.variant: row for row in rows}


def csv_lines(
    folder: Path, name: str, outcomes: Outcomes, rows: Sequence[AblationRow] = ()
) -> list[dict[str, str]] | None:
    """The lines of a CSV file of a report, None without the file."""
    write_tables(folder, outcomes, rows, (), (), (), 0.005, "a caption")
    path = folder / name
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))) if path.exists() else None


def two_variants(runs: Path, full: list[float], other: list[float]) -> list[Trial]:
    trials = [make_trial("full", seed) for seed in range(1, len(full) + 1)]
    trials += [make_trial("no weight drop", seed, batch_size=7) for seed in range(1, len(other) + 1)]
    for trial, test in zip(trials, [*full, *other], strict=True):
        settle(runs, trial, test)
    return trials


def test_means_are_of_perplexities_and_differences_of_losses(tmp_path: Path) -> None:
    _, rows = read(tmp_path, two_variants(tmp_path, [60.0, 61.0, 62.0], [70.0, 72.0, 74.0]))
    row = rows["no weight drop"]
    assert row.test is not None and row.effect is not None and row.valid is not None
    assert (row.valid.mean, row.valid.n) == (pytest.approx(1.05 * 72.0), 3)
    assert (row.test.mean, row.test.deviation, row.test.n) == (pytest.approx(72.0), pytest.approx(2.0), 3)
    assert row.effect.nats == pytest.approx(math.log(70 * 72 * 74 / (60 * 61 * 62)) / 3)
    assert row.effect.verdict == "raises"
    geometric = (60 * 61 * 62) ** (1 / 3), (70 * 72 * 74) ** (1 / 3)
    assert row.change_in_perplexity == pytest.approx(geometric[1] - geometric[0])
    assert row.interval_in_perplexity is not None
    assert 0 < row.interval_in_perplexity.low < row.change_in_perplexity < row.interval_in_perplexity.high


def test_seeds_that_are_complete_are_shown_beside_one_that_is_not_without_a_verdict(tmp_path: Path) -> None:
    trials = two_variants(tmp_path, [60.0, 60.0], [66.0, 66.0])
    settle(tmp_path, trials[3], 66.0, status="failed")
    row = read(tmp_path, trials)[1]["no weight drop"]
    assert row.effect is not None and row.effect.nats == pytest.approx(math.log(66 / 60))
    assert (row.effect.interval, row.effect.verdict) == (None, "no verdict")
    assert row.verdict(0.005) == "no verdict (1 of 2 seeds failed)"
    settle(tmp_path, trials[0], 60.0, status="failed")
    rows = read(tmp_path, trials)[1]
    assert rows["no weight drop"].verdict(0.005) == "no verdict (full is not complete)"


def test_published_numbers_stand_beside_with_their_difference(tmp_path: Path) -> None:
    _, rows = read(tmp_path, two_variants(tmp_path, [60.0], [70.0]))
    assert rows["no weight drop"].published_difference == PublishedDifference(
        11.6, pytest.approx(math.log(68.9 / 57.3)), recalled=False
    )
    assert rows["no weight drop"].published_valid is None
    assert rows["full"].published_difference is None


def test_two_readings_of_one_published_row_have_no_difference_that_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PAPERS, "no weight drop", PAPERS["full"])
    _, rows = read(tmp_path, two_variants(tmp_path, [60.0], [70.0]))
    assert rows["no weight drop"].published_test is rows["full"].published_test is not None
    assert rows["no weight drop"].published_difference is None
    (*_, on_test) = published_table([rows["no weight drop"]], published_scale=True)
    assert on_test["Published"] == "57.3" and on_test["Published difference is"] is None


@pytest.mark.parametrize(
    ("status", "reason"), [("diverged", "1 of 2 seeds diverged"), ("failed", "1 of 2 seeds failed")]
)
def test_survivors_are_not_judged(tmp_path: Path, status: str, reason: str) -> None:
    trials = two_variants(tmp_path, [60.0, 60.1], [70.0])
    lost = make_trial("no weight drop", 2, batch_size=7)
    settle(tmp_path, lost, 70.0, status=status, reason="why")
    outcomes, rows = read(tmp_path, [*trials, lost])
    row = rows["no weight drop"]
    assert row.effect is not None
    assert (row.effect.interval, row.effect.verdict, row.reason) == (None, "no verdict", reason)
    assert (row.complete, row.seeds) == (1, 2)
    assert [outcome.status for outcome in outcomes["no weight drop"]] == ["complete", status]


def test_an_incomplete_baseline_is_compared_with_nothing(tmp_path: Path) -> None:
    trials = [*two_variants(tmp_path, [60.0, 60.1], [70.0, 70.1]), make_trial("full", 3)]
    outcomes, rows = read(tmp_path, trials)
    assert compare_variants(outcomes) is None
    assert rows["no weight drop"].effect is None
    assert rows["no weight drop"].change_in_perplexity is None


def test_unfinished_and_missing_trials_say_where_they_stand(tmp_path: Path) -> None:
    stopped, missing = make_trial("full", 1), make_trial("full", 2)
    begin(tmp_path, stopped, 60.0, epochs=5)
    outcomes, rows = read(tmp_path, [missing, stopped])
    assert [(o.trial.seed, o.status, o.reason) for o in outcomes["full"]] == [
        (1, "unfinished", "stands after epoch 5, stage train"),
        (2, "missing", "no epoch finished yet"),
    ]
    assert rows["full"].test is None


def test_a_variant_read_from_the_baseline_has_its_own_last_stage(tmp_path: Path) -> None:
    base = make_trial("full")
    short = make_trial("no fine-tuning", finetune=None)
    settle(tmp_path, base, 60.0)
    outcomes, rows = read(tmp_path, [base, Trial(**{**vars(short), "reads_from": base.key})])
    assert rows["no fine-tuning"].test is not None
    assert rows["no fine-tuning"].test.mean == pytest.approx(61.2)
    assert set(outcomes["no fine-tuning"][0].curve["stage"].to_pylist()) == {"train"}


def test_stages_are_shown_once_for_all_variants_that_share_them(tmp_path: Path) -> None:
    base, cached = make_trial("full"), make_trial("cache", cache=CACHE)
    settle(tmp_path, base, 60.0)
    settle(tmp_path, cached, 55.0)
    assert list(stage_keys(cached.spec, CORPUS.fingerprint))[:2] == ["train", "finetune-1"]
    outcomes, _ = read(tmp_path, [base, cached])
    rows = list(stage_table(outcomes))
    assert [(row["Variant"], row["Stage"]) for row in rows] == [("full", "train"), ("full", "finetune-1")]
    assert [row["Test"].mean for row in rows] == [pytest.approx(61.2), pytest.approx(60.0)]
    record = make_record(base, 60.0)
    unopened = record.model_copy(update={"stages": tuple(stage.without_test() for stage in record.stages)})
    write_record(tmp_path / base.key, unopened)
    assert list(stage_table(read_outcomes([base], Records(tmp_path), "full"))) == []


def test_the_fit_of_a_variant_is_that_of_its_last_epoch_beside_its_lowest(tmp_path: Path) -> None:
    """A seed that learns its text by heart from epoch 2, and one that still improves; a cache trains nothing."""
    trials = [make_trial("full", seed, epochs=3, finetune=None) for seed in (1, 2)]
    cached = make_trial("cache", 1, cache=CACHE, epochs=3, finetune=None)
    losses = {1: [(5.0, 5.0), (3.0, 4.0), (1.0, 4.2)], 2: [(5.0, 5.0), (4.0, 4.5), (2.0, 4.0)]}
    for trial in [*trials, cached]:
        pairs = zip(make_curve(trial.spec, 60.0), losses[trial.seed], strict=True)
        curve = [
            replace(point, train_nats_per_token=train, valid_nats_per_token=valid) for point, (train, valid) in pairs
        ]
        write_curve(tmp_path / trial.key, curve)
        write_record(tmp_path / trial.key, make_record(trial, 60.0))
    (row,) = fit_table(read_outcomes([*trials, cached], Records(tmp_path), "full"))
    assert row == {
        "Variant": "full",
        "Training loss": "1.500",
        "Validation loss": "4.100",
        "Perplexity above its lowest": f"+{100 * math.expm1(0.1):.1f}%",
        "Best epoch": "2",
        "Epochs": "3",
    }


def test_published_changes_of_another_scale_stand_beside_this_one_in_per_cent(tmp_path: Path) -> None:
    _, rows = read(tmp_path, two_variants(tmp_path, [60.0, 60.2, 60.4], [66.0, 66.2, 66.4]))
    table = {row["Variant"]: row for row in published_table([*rows.values()], published_scale=False)}
    assert table["no weight drop"]["Published change"] == f"+{100 * (68.9 / 57.3 - 1):.1f}%"
    assert table["no weight drop"]["Change"] == rows["no weight drop"].percent


def test_a_cache_is_shown_beside_its_own_pass_and_never_compared(tmp_path: Path) -> None:
    trials = two_variants(tmp_path, [60.0, 60.2], [70.0, 70.2])
    cached = [make_trial("cache", seed, cache=CACHE) for seed in (1, 2)]
    for trial in cached:
        settle(tmp_path, trial, 50.0)
    outcomes, rows = read(tmp_path, [*trials, *cached])
    comparison = compare_variants(outcomes)
    assert comparison is not None and list(comparison.effects) == ["no weight drop"]
    assert rows["cache"].adaptive and rows["cache"].effect is None
    assert rows["cache"].verdict(0.005) == "adaptive, not compared"
    assert rows["cache"].published_test is not None and rows["cache"].published_difference is None
    (row,) = cache_table(outcomes)
    assert (row["Test without cache"].mean, row["Test"].mean) == (pytest.approx(55.0), pytest.approx(50.0))
    assert row["Window, weight, flatness"] == "500, 0.1, 1"


def test_the_csv_files_carry_every_variant_and_every_trial_in_full_digits(tmp_path: Path) -> None:
    trials = [*two_variants(tmp_path, [60.0, 61.0], [70.0, 72.0]), make_trial('a "b", c\nd', epochs=9)]
    outcomes, rows = read(tmp_path, trials)
    table = csv_lines(tmp_path / "report", "table.csv", outcomes, [*rows.values()])
    assert table is not None
    assert [line["variant"] for line in table] == ["full", "no weight drop", 'a "b", c\nd']
    assert float(table[1]["test_perplexity_mean"]) == pytest.approx(71.0, rel=1e-12)
    assert table[1]["published_test_difference"] == "11.6"
    lines = csv_lines(tmp_path / "report", "trials.csv", outcomes)
    assert lines is not None
    assert [(line["variant"], line["seed"], line["status"]) for line in lines][-2:] == [
        ("no weight drop", "2", "complete"),
        ('a "b", c\nd', "1", "missing"),
    ]
    assert float(lines[0]["test_perplexity_reference"]) == pytest.approx(60.0 ** (10_000 / 10_001), rel=1e-12)
    assert lines[-1]["test_perplexity"] == ""


def test_variants_that_are_equal_in_every_seed_are_named(tmp_path: Path) -> None:
    halving = SgdHalving(kind="sgd_halving", learning_rate=30.0)
    trials = []
    for seed, offset in ((1, 0.0), (2, 0.5)):
        for variant, test, update in (
            ("full", 80.0, {}),
            ("no fine-tuning", 90.0, {"finetune": None}),
            ("no NT-ASGD", 90.0, {"finetune": None, "optimizer": halving}),
            ("no weight decay", 90.1, {"epochs": 11}),
        ):
            trials.append(make_trial(variant, seed, **update))
            settle(tmp_path, trials[-1], test + offset)
    outcomes = read_outcomes(trials, Records(tmp_path), "full")
    assert equal_variants(outcomes) == [("no fine-tuning", "no NT-ASGD")]
    assert equal_variants(Outcomes(outcomes, "no NT-ASGD")) == []
    cached = [make_trial(name, seed, cache=CACHE, epochs=n) for name, n in (("c", 5), ("d", 6)) for seed in (1, 2)]
    partial = [make_trial(name, seed, epochs=n) for name, n in (("e", 7), ("f", 8)) for seed in (1, 2)]
    for trial in [*cached, *partial]:
        if trial.seed == 1 or trial in cached:
            settle(tmp_path, trial, 50.0)
    outcomes = read_outcomes([*trials, *cached, *partial], Records(tmp_path), "full")
    assert equal_variants(outcomes) == [("no fine-tuning", "no NT-ASGD")], "nor a cache, nor what lacks a seed"
