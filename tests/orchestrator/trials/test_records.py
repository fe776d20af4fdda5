"""Records are found by key, their own or another trial's, and never by chance."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from lm.record import Record, token_nats_path, write_record
from lm.spec import Cache, Finetune, Repeats
from lm.spec import trial as lm_spec
from orchestrator.agenda.expand import unsettled
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.trials.plan import state_of
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.trial import Trial
from tests.support.factories import make_record, make_trial, settle

CACHE = Cache(window=500, weight=0.1, flatness=1.0)


def test_a_trial_is_found_inside_a_longer_one(tmp_path: Path) -> None:
    full, bare = make_trial(), make_trial("no fine-tuning", finetune=None)
    settle(tmp_path, full, 80.0)
    record = Records(tmp_path).find(bare)
    assert record is not None
    assert (record.key, record.spec, [stage.name for stage in record.stages]) == (bare.key, bare.spec, ["train"])
    assert {point.stage for point in Records(tmp_path).curve(bare)} == {"train"}
    assert Records(tmp_path).find(make_trial(seed=2)) is None


def test_repeated_fine_tuning_is_read_where_it_ended(tmp_path: Path) -> None:
    """At most five passes, of which the first gained nothing; trials of at most three, and of one, lie in it."""
    five, three = (
        make_trial(str(most), finetune=Finetune(epochs=4, repeats=Repeats(most=most, until="no_gain")))
        for most in (5, 3)
    )
    whole = make_record(five, 80.0)
    write_record(tmp_path / five.key, whole.model_copy(update={"stages": whole.stages[:2]}))
    records = Records(tmp_path)
    for trial in (five, three, make_trial("once"), make_trial("none", finetune=None)):
        record = records.find(trial)
        assert record is not None and (record.key, record.status) == (trial.key, "complete")
        assert list(record.best_epochs) == (["train"] if trial.variant == "none" else ["train", "finetune-1"])
        assert state_of(trial, records) == "done"
        assert records.test_losses(trial) == token_nats_path(tmp_path / five.key, list(record.best_epochs)[-1], "test")
    assert records.find(make_trial("two", finetune=Finetune(epochs=4, repeats=2))) is None


def test_a_diverged_stage_is_shared_like_a_finished_one(tmp_path: Path) -> None:
    full = make_trial()
    settle(tmp_path, full, 80.0, status="diverged", reason="not finite in train")
    bare = dataclasses.replace(make_trial("no fine-tuning", finetune=None), reads_from=full.key)
    record = Records(tmp_path).find(bare)
    assert record is not None
    assert (record.status, record.reason, record.stages) == ("diverged", "not finite in train", ())


def test_records_of_another_numerics_version_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, make_trial(), 80.0)
    monkeypatch.setattr(lm_spec, "NUMERICS_VERSION", lm_spec.NUMERICS_VERSION + 1)
    now, bare = make_trial(), make_trial("no fine-tuning", finetune=None)
    assert [Records(tmp_path).find(trial) for trial in (now, bare)] == [None, None]


def test_a_damaged_record_stops_only_its_own_trial(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full, other = make_trial(), make_trial(seed=2)
    settle(tmp_path, full, 80.0)
    (tmp_path / other.key).mkdir()
    (tmp_path / other.key / "record.json").write_text("{")
    records = Records(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert records.find(make_trial(seed=3)) is None
    assert other.key in caplog.text
    assert records.find(full) is not None
    assert records.find(other) is None
    assert [state_of(trial, records) for trial in (full, other)] == ["done", "damaged"]


def test_without_its_test_score_a_trial_is_not_settled(tmp_path: Path) -> None:
    """Its holder has still to score it; the tables do not see it before."""
    full = make_trial()
    bare = dataclasses.replace(make_trial("no fine-tuning", finetune=None), reads_from=full.key)
    settle(tmp_path, full, 80.0)
    records = Records(tmp_path)
    whole = records.find(full)
    assert whole is not None and is_settled(full, whole) and state_of(full, records) == "done"
    closed = whole.model_copy(update={"stages": tuple(stage.without_test() for stage in whole.stages)})
    write_record(tmp_path / full.key, closed)
    assert not is_settled(full, records.find(full)) and not is_settled(full, None)
    assert is_settled(dataclasses.replace(full, opens_test=False), records.find(full))
    assert [state_of(trial, records) for trial in (full, bare)] == ["to resume", "read"]
    assert unsettled([full, bare], records) == [full]
    for outcome in read_outcomes([full, bare], records, full.variant).all:
        assert (outcome.status, outcome.reason, outcome.final) == ("missing", "test not opened yet", None)


@pytest.mark.parametrize(("left", "reads"), [("failed", True), ("failed", False), ("unscored", True)])
def test_what_another_sweep_left_of_a_trial_gives_way_to_a_whole_trial_that_holds_it(
    tmp_path: Path, left: str, reads: bool
) -> None:
    """Of a sweep whose base it is, where it trained on its own; this plan may only read it."""
    full, bare = make_trial(), make_trial("no fine-tuning", finetune=None)
    settle(tmp_path, bare, 90.0)
    failure = make_record(bare, 90.0, status="failed", reason="killed")
    write_record(tmp_path / bare.key, failure if left == "failed" else unscored(tmp_path, bare))
    planned = dataclasses.replace(bare, reads_from=full.key if reads else None)
    before = Records(tmp_path).find(planned)
    assert before is not None and not is_settled(planned, before)
    settle(tmp_path, full, 80.0)
    records = Records(tmp_path)
    whole = records.read(full.key)
    assert whole is not None and records.find(planned) == whole.through(bare.key)
    assert state_of(planned, records) == "done" and unsettled([full, planned], records) == []
    assert records.holder(planned) == full.key
    cached = dataclasses.replace(make_trial("neural cache", cache=CACHE, finetune=None), starts_from=bare.key)
    assert left != "failed" or records.source(cached) == tmp_path / full.key


def test_of_the_whole_trials_that_hold_a_stage_the_first_that_settles_it_counts(tmp_path: Path) -> None:
    bare, *holders = make_trial("bare", finetune=None), make_trial(), make_trial("cache", cache=CACHE)
    first, second = sorted(holders, key=lambda trial: trial.key)
    for holder in (first, second):
        settle(tmp_path, holder, 80.0)
    write_record(tmp_path / first.key, unscored(tmp_path, first))
    assert Records(tmp_path).holder(bare) == second.key


def unscored(runs: Path, trial: Trial) -> Record:
    record = Records(runs).read(trial.key)
    assert record is not None
    return record.model_copy(update={"stages": tuple(stage.without_test() for stage in record.stages)})


def test_a_trial_goes_on_from_stages_that_lie_in_another_sweeps_record(tmp_path: Path) -> None:
    cached = make_trial("neural cache", cache=CACHE)
    settle(tmp_path, cached, 75.0)

    def follower(of: Trial) -> Trial:
        return dataclasses.replace(
            make_trial("other cache", cache=Cache(window=9, weight=0.1, flatness=1.0)), starts_from=of.key
        )

    full = make_trial()
    assert Records(tmp_path).source(follower(full)) == tmp_path / cached.key
    settle(tmp_path, full, 80.0)
    assert Records(tmp_path).source(follower(full)) == tmp_path / full.key
    assert Records(tmp_path).source(full) is None
