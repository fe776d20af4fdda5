"""The two times on the page: what the trials took, and how long it was from the first start to the last end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lm.record import write_curve, write_record
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.sections.tables import provenance
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import make_curve, make_record, make_trial


def settle(runs: Path, trial: Trial, *, ended: str, seconds: float, status: str = "complete") -> None:
    """A trial that ended at this time of the day after so long; a stage took 100 s, and 5 s to score."""
    record = make_record(trial, 60.0, status=status, reason=None if status == "complete" else "?")
    times = {"finished_at": f"2020-01-01T{ended}:00Z", "seconds": seconds}
    write_curve(runs / trial.key, make_curve(trial.spec, 60.0, epochs=9 if status == "diverged" else None))
    write_record(runs / trial.key, record.model_copy(update=times))


def test_every_text_is_told_also_those_that_are_parts_of_one(tmp_path: Path) -> None:
    full, less = make_trial("full"), make_trial("less text", batch_size=7)
    for trial, tokens in ((full, 4000), (less, 3000)):
        record = make_record(trial, 60.0)
        corpus = record.corpus.model_copy(update={"train_tokens": tokens})
        write_record(tmp_path / trial.key, record.model_copy(update={"corpus": corpus}))
    facts = provenance(read_outcomes([full, less], Records(tmp_path), "full"), "laptop", (), Records(tmp_path))
    told = [value.partition(" training")[0] for label, value in facts if label == "Tokens"]
    assert told == ["4,000", "3,000"] and [label for label, _ in facts].count("Fingerprint") == 1


def trial_time(runs: Path, trials: list[Trial]) -> str:
    facts = dict(provenance(read_outcomes(trials, Records(runs), trials[0].variant), "laptop", (), Records(runs)))
    return facts["Trial time"]


def test_trial_time_counts_a_shared_stage_once_and_what_diverged_as_far_as_it_came(tmp_path: Path) -> None:
    whole, other = make_trial("full"), make_trial("no penalty", penalties=None, batch_size=7)
    settle(tmp_path, whole, ended="10:00", seconds=600.0)
    settle(tmp_path, other, ended="12:30", seconds=1200.0)
    assert trial_time(tmp_path, [whole, other]) == "7.0 min for 2 settled trials, shared stages counted once"
    read = replace(make_trial("no fine-tuning", finetune=None), reads_from=whole.key)
    assert trial_time(tmp_path, [whole, other, read]) == "7.0 min for 3 settled trials, shared stages counted once"
    lost, missing = make_trial("b", batch_size=8), make_trial("c", batch_size=9)
    settle(tmp_path, lost, ended="12:00", seconds=1.0, status="diverged")  # 9 epochs of 10 s, and no stage's end
    assert trial_time(tmp_path, [whole, lost, missing]) == "5.0 min for 2 settled trials, shared stages counted once"
