"""What a run shows of a trial that ended, or was trained, more than once."""

from __future__ import annotations

import dataclasses

import pytest

from lm.record import Record, write_curve, write_record
from orchestrator.trials.records import Records
from orchestrator.watch.mlflow.store import Run, connect, tracking_uri
from tests.support.seen import Seen, eventually, expected
from tests.support.tracking import curve, leave, point, record, score, tracker, trial

TRIAL = trial("full")
NAME = ("full", 1)
OTHER = [point(1, valid_nats_per_token=5.0), point(2, valid_nats_per_token=4.0)]
"""A training that stopped an epoch earlier, with other numbers."""


def finals() -> dict[str, float]:
    metrics = Seen().nested[NAME].data.metrics
    return {name: round(value, 6) for name, value in metrics.items() if name.startswith(("final/test", "stage/"))}


def run_id() -> str:
    return str(Seen().nested[NAME].info.run_id)


def settled(status: str = "complete", test: float = 50.0) -> Record:
    """The record of a later training."""
    whole = record(TRIAL, status, None if status == "complete" else "nan")
    stages = [stage.model_copy(update={"test": score(test)}) for stage in whole.stages]
    return whole.model_copy(update={"finished_at": "2026-02-02T03:04:05+00:00", "stages": tuple(stages)})


@pytest.fixture
def trained(records: Records) -> Records:
    """MLflow has the trial as it was trained first."""
    leave(records, TRIAL, record(TRIAL))
    assert tracker([TRIAL], records).finish(None, "complete")
    assert Seen().history(NAME) == expected(curve(TRIAL)) and finals()["final/test_perplexity"] == 80.0
    return Records(records.root)


def test_a_trial_trained_again_with_other_numbers_shows_none_of_the_earlier_ones(trained: Records) -> None:
    write_curve(trained.folder(TRIAL.key), OTHER)
    write_record(trained.folder(TRIAL.key), settled())
    assert tracker([TRIAL], trained).finish(None, "complete")
    assert Seen().history(NAME) == expected(OTHER) and finals()["final/test_perplexity"] == 50.0

    for day, points in ((3, OTHER), (4, OTHER[:1])):  # the last run differs from the one before in its length alone
        later = settled("diverged").model_copy(update={"finished_at": f"2026-02-0{day}T03:04:05+00:00"})
        write_curve(trained.folder(TRIAL.key), points)
        write_record(trained.folder(TRIAL.key), later)
        assert tracker([TRIAL], Records(trained.root)).finish(None, "failed")
        assert (Seen().history(NAME), finals(), Seen().statuses()) == (expected(points), {}, ["FAILED", "FAILED"])


def test_the_new_curve_is_there_from_its_first_epoch(trained: Records) -> None:
    (trained.folder(TRIAL.key) / "record.json").unlink()
    write_curve(trained.folder(TRIAL.key), [])
    mirror = tracker([TRIAL], trained)
    mirror.started(TRIAL)
    mirror.evaluated(TRIAL, OTHER[0])
    eventually(lambda: (seen := Seen()).nested and seen.history(NAME) == expected(OTHER[:1]))
    assert (finals(), Seen().statuses()) == ({}, ["RUNNING", "RUNNING"])
    mirror.finish(None, "stopped")


@pytest.mark.parametrize("loss", [6.6, float("inf")], ids=["failed in the end", "infinite"])
def test_a_repetition_that_fails_shows_no_results(trained: Records, loss: float) -> None:
    points = [point(1, valid_nats_per_token=loss), *curve(TRIAL)[1:]]
    write_curve(trained.folder(TRIAL.key), points)
    write_record(trained.folder(TRIAL.key), settled("failed"))
    assert tracker([TRIAL], trained).finish(None, "failed")
    assert finals() == {} and Seen().history(NAME)[-2:] == expected(points[1:])


def test_what_is_trained_again_with_the_same_numbers_keeps_its_run(trained: Records) -> None:
    before = run_id()
    points = [dataclasses.replace(point, seconds=2 * point.seconds) for point in curve(TRIAL)]
    write_curve(trained.folder(TRIAL.key), points)
    write_record(trained.folder(TRIAL.key), settled(test=80.0))
    mirror = tracker([TRIAL], trained)
    mirror.started(TRIAL)
    for evaluation in points:
        mirror.evaluated(TRIAL, evaluation)
    assert mirror.finish(None, "complete")
    assert (run_id(), Seen().history(NAME)) == (before, expected(points))


def test_a_failed_trial_whose_curve_is_not_here_keeps_what_was_heard(records: Records) -> None:
    mirror = tracker([TRIAL], records)
    mirror.started(TRIAL)
    mirror.evaluated(TRIAL, point(1))
    mirror.settled(TRIAL, leave(records, TRIAL, settled("failed"), epochs=0))
    assert mirror.finish(None, "failed")
    before = run_id()
    leave(records, TRIAL, record(TRIAL, "failed", "once more"), epochs=0)
    assert tracker([TRIAL], Records(records.root)).finish(None, "failed")
    assert (run_id(), Seen().history(NAME)) == (before, expected([point(1)]))
    assert Seen().nested[NAME].data.tags["reason"] == "once more"


def test_a_run_keeps_the_time_at_which_it_ended(records: Records) -> None:
    """`sweep_numbers` sorts by it."""
    client = connect(tracking_uri())
    run = Run(client, client.create_run("0"))
    run.set_status("FINISHED", 1000)
    run.set_status("FINISHED")
    assert (run.ended, client.get_run(run.id).info.end_time) == (1000, 1000)
    run.set_status("RUNNING")
    assert run.ended is None
    run.set_status("KILLED")
    assert run.ended is not None and run.ended == client.get_run(run.id).info.end_time
