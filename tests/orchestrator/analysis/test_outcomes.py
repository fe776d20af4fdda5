"""What a trial came to, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lm.record import curve_table, write_record
from orchestrator.analysis.effects import Obstacle
from orchestrator.analysis.outcomes import curve_of, incomplete_seeds, last_trained, read_outcomes
from orchestrator.report.sections.verdicts import why_no_verdict
from orchestrator.trials.records import Records
from tests.support.factories import CACHE, make_curve, make_record, make_trial, settle


@pytest.mark.parametrize(("norm", "told"), [(1234.5, ", gradient norm 1.23e+03"), (None, "")])
def test_a_diverged_trial_says_where_at_which_rate_and_norm_if_it_is_known(
    tmp_path: Path, norm: float | None, told: str
) -> None:
    trial = make_trial()
    record = make_record(trial, 60.0, status="diverged", reason="not finite in train, epoch 3, step 321")
    assert record.divergence is not None
    at = record.divergence.model_copy(update={"gradient_norm": norm})
    write_record(tmp_path / trial.key, record.model_copy(update={"divergence": at}))
    (outcome,) = read_outcomes([trial], Records(tmp_path), "full").of_baseline
    assert outcome.reason == f"not finite in train, epoch 3, step 321; learning rate 30{told}"


def test_seeds_that_are_not_complete_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    trials = [make_trial("full", seed) for seed in range(1, 6)]
    settle(tmp_path, trials[0], 60.0)
    settle(tmp_path, trials[1], 60.0, status="diverged", reason="not finite")
    for trial in trials[2:4]:
        settle(tmp_path, trial, 60.0, status="failed")
    group = read_outcomes(trials, Records(tmp_path), "full").of_baseline
    assert incomplete_seeds(group) == "1 of 5 seeds diverged, 2 of 5 seeds failed, 1 of 5 seeds missing"
    assert [outcome.reason for outcome in group[2:4]] == ["no reason was recorded"] * 2


def test_a_damaged_record_is_the_reason_why_its_trial_is_missing(tmp_path: Path) -> None:
    trial = make_trial()
    settle(tmp_path, trial, 60.0)
    (tmp_path / trial.key / "record.json").write_text("{")
    (outcome,) = read_outcomes([trial], Records(tmp_path), "full").of_baseline
    assert (outcome.status, outcome.reason) == ("missing", "damaged, to be trained again")


@pytest.mark.parametrize(("variants", "verb"), [(("a",), "adapts"), (("a", "b"), "adapt")])
def test_one_adapts_and_two_adapt(variants: tuple[str, ...], verb: str) -> None:
    assert f" {verb} " in why_no_verdict(Obstacle("adaptive", variants))


def test_the_last_stage_that_trains_is_not_the_cache() -> None:
    record = make_record(make_trial(cache=CACHE), 60.0)
    assert [stage.name for stage in record.stages] == ["train", "finetune-1", "cache"]
    assert last_trained(record).name == "finetune-1"


def test_a_curve_has_the_raw_iterates_losses_where_there_are_some() -> None:
    points = make_curve(make_trial(finetune=None, epochs=3).spec, 60.0)
    assert np.isnan(curve_of(curve_table(points)).raw_valid_nats_per_token).all()
    points[2] = replace(points[2], averaging=True, raw_valid_nats_per_token=4.5)
    curve = curve_of(curve_table(points))
    assert np.isnan(curve.raw_valid_nats_per_token).tolist() == [True, True, False]
    assert curve.raw_valid_nats_per_token[2] == 4.5
    for each in (curve, curve_of(curve_table([]))):
        assert "".join(array.dtype.kind for array in vars(each).values()) == "ifffbUf"
