"""Two sweeps of one name and scale whose drivers share MLflow, each with a folder of trials of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.mirror import PLACE, Planned
from orchestrator.watch.mlflow.tracker import Tracker
from tests.support.seen import FULL, eventually
from tests.support.tracking import leave, point, record, tracker, trial

FIRST, SECOND = FULL, trial("full", batch_size=77)
"""The same variant and seed of another base."""


def client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{Path.cwd() / 'mlflow.db'}")


def shown() -> dict[str, Any]:
    """The runs of trials by key, and the sweep's own."""
    experiment = client().get_experiment_by_name("parts")
    runs = [] if experiment is None else client().search_runs([experiment.experiment_id])
    return {run.data.tags.get("trial_key", run.data.tags["role"]): run for run in runs}


def status(of: str) -> str | None:
    run = shown().get(of)
    return None if run is None else str(run.info.status)


def finish(mirror: Tracker, planned: Trial) -> None:
    assert mirror.finish(None, "complete", planned=Planned([planned]))


def test_neither_ends_or_supersedes_what_the_other_trains(records: Records) -> None:
    others = Records("other-runs")
    mirror = tracker([FIRST], records)
    mirror.started(FIRST)
    mirror.evaluated(FIRST, point(1))
    eventually(lambda: status(FIRST.key) == "RUNNING" and "curve/valid_perplexity" in shown()[FIRST.key].data.metrics)

    assert tracker([FIRST], others).finish(None, "stopped")  # it plans the same trial, and has not begun it
    assert status(FIRST.key) == "RUNNING"
    leave(others, SECOND, record(SECOND))
    finish(tracker([SECOND], others), SECOND)
    assert (status(FIRST.key), status("sweep")) == ("RUNNING", "FINISHED")
    assert "superseded" not in shown()[FIRST.key].data.tags
    mirror.evaluated(FIRST, point(2))
    eventually(lambda: status("sweep") == "RUNNING")

    mirror.settled(FIRST, leave(records, FIRST, record(FIRST)))
    finish(mirror, FIRST)
    runs = shown()
    assert {runs[key].info.status for key in (FIRST.key, SECOND.key, "sweep")} == {"FINISHED"}
    assert runs[FIRST.key].data.tags["mlflow.parentRunId"] == runs["sweep"].info.run_id
    assert runs[SECOND.key].data.tags["superseded"] == FIRST.key


def test_what_was_ended_by_hand_is_running_again_with_the_next_epoch(records: Records) -> None:
    mirror = tracker([FIRST], records)
    mirror.started(FIRST)
    eventually(lambda: status(FIRST.key) == "RUNNING")
    runs = shown()
    for key in (FIRST.key, "sweep"):
        client().set_terminated(runs[key].info.run_id, "KILLED")
    mirror.evaluated(FIRST, point(1))
    eventually(lambda: {status(FIRST.key), status("sweep")} == {"RUNNING"})
    mirror.settled(FIRST, None)
    finish(mirror, FIRST)


@pytest.mark.parametrize("is_here", [True, False], ids=["here", "elsewhere"])
def test_a_crashed_driver_leaves_running_what_the_next_command_of_its_folder_ends(
    records: Records, is_here: bool
) -> None:
    crashed = tracker([FIRST], records if is_here else Records("other-runs"))
    crashed.started(FIRST)
    eventually(lambda: status(FIRST.key) == "RUNNING")
    crashed._until = 0.0  # it hears and writes nothing more

    finish(tracker([SECOND], records), SECOND)
    runs = shown()
    assert runs[FIRST.key].info.status == ("KILLED" if is_here else "RUNNING")
    assert ("superseded" in runs[FIRST.key].data.tags) == is_here
    assert runs[FIRST.key].data.tags[PLACE].endswith("/runs" if is_here else "/other-runs")
