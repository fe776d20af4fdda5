"""Runs of trials that the sweep file no longer plans, as MLflow's own client shows them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow import tracker as tracker_module
from orchestrator.watch.mlflow.mirror import Planned
from tests.support.places import make_place, process
from tests.support.seen import BARE, FULL
from tests.support.tracking import leave, record, tracker, trial

CHANGED = trial("full", batch_size=77)
PARENT = "mlflow.parentRunId"


def command(trials: Sequence[Trial], records: Records, planned: Planned | None = None) -> None:
    """What a command does in which nothing is left to train."""
    for one in trials:
        leave(records, one, record(one))
    tracker(list(trials), records).finish(None, "complete", planned=planned or Planned(trials))


class Shown:
    """All runs of the experiment, and whose children they are, as the UI nests them."""

    def __init__(self, query: str = "") -> None:
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("parts")
        assert experiment is not None
        self.runs = client.search_runs([experiment.experiment_id], query)
        self.names = {run.info.run_id: run.info.run_name for run in self.runs}

    def children(self, parent: str) -> set[str]:
        """The keys of the trials below the run with this name."""
        below = [run for run in self.runs if self.names.get(run.data.tags.get(PARENT, "")) == parent]
        return {run.data.tags["trial_key"] for run in below}

    def tag(self, of: Trial) -> str | None:
        """What its run is superseded by."""
        [run] = [run for run in self.runs if run.data.tags.get("trial_key") == of.key]
        tag = run.data.tags.get("superseded")
        return None if tag is None else str(tag)


def test_trials_of_an_earlier_base_leave_the_parent_and_come_back(records: Records) -> None:
    command([FULL, BARE], records)
    assert Shown().children("parts laptop") == {FULL.key, BARE.key}
    command([CHANGED], records)
    shown = Shown()
    assert shown.children("parts laptop") == {CHANGED.key}
    assert shown.children("parts laptop, superseded") == {FULL.key, BARE.key}
    assert (shown.tag(FULL), shown.tag(BARE), shown.tag(CHANGED)) == (CHANGED.key, "true", None)
    now = Shown("tags.role = 'trial' and tags.superseded IS NULL")
    assert [run.data.tags["trial_key"] for run in now.runs] == [CHANGED.key]

    command([FULL, BARE], records)
    shown = Shown()
    assert shown.children("parts laptop") == {FULL.key, BARE.key}
    assert shown.children("parts laptop, superseded") == {CHANGED.key}
    assert (shown.tag(FULL), shown.tag(BARE), shown.tag(CHANGED)) == (None, None, FULL.key)
    assert sorted(shown.names.values()) == [
        "full, seed 1",
        "full, seed 1",
        "parts laptop",
        "parts laptop, superseded",
        "without dropout, seed 2",
    ]
    assert {run.info.status for run in shown.runs if run.data.tags["role"] == "superseded"} == {"KILLED"}


def test_a_superseded_trial_that_trains_again_is_back_in_the_parent_from_its_first_epoch(records: Records) -> None:
    command([FULL], records)
    command([CHANGED], records)
    mirror = tracker([FULL], records)
    mirror.started(FULL)
    mirror.settled(FULL, record(FULL))
    mirror.finish(None, "failed")  # the sweep broke off, and nobody says what is planned
    assert Shown().children("parts laptop") == {FULL.key, CHANGED.key}
    assert Shown().tag(FULL) is None


def test_a_variant_under_another_name_supersedes_its_run(records: Records) -> None:
    command([FULL, BARE], records)
    command([FULL, renamed := replace(BARE, variant="stripped")], records)
    of_bare = [run.data.tags for run in Shown().runs if run.data.tags.get("trial_key") == BARE.key]
    assert {tags["variant"]: tags.get("superseded") for tags in of_bare} == {
        BARE.variant: renamed.key,
        "stripped": None,
    }


def test_a_trial_of_a_search_for_a_renamed_variant_supersedes_its_run(records: Records) -> None:
    asked = trial("full", 9, batch_size=5)
    command([FULL, asked], records)
    renamed = [replace(FULL, variant="start"), replace(asked, variant="start")]
    command(renamed, records, Planned([renamed[0]], [(asked.key, "start")]))
    of_asked = [run.data.tags for run in Shown().runs if run.data.tags.get("trial_key") == asked.key]
    assert {tags["variant"]: tags.get("superseded") for tags in of_asked} == {"full": asked.key, "start": None}


def test_what_a_search_asked_for_and_what_it_has_not_decided_stay(records: Records) -> None:
    asked, late = trial("full", 9, batch_size=5), trial("late", batch_size=6)
    everything = [FULL, BARE, asked, late]
    command(everything, records)
    command([FULL], records, Planned([FULL], [(asked.key, "full")], undecided=["late"]))
    assert Shown().children("parts laptop") == {FULL.key, asked.key, late.key}
    assert Shown().tag(BARE) == "true"


def test_it_costs_a_write_for_each_trial_once(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    command([FULL, BARE], records)
    monkeypatch.setattr(tracker_module, "_SYNC_SECONDS", 60.0)  # commands end before anything is written
    from mlflow import MlflowClient

    calls = Counter[str]()

    def counted(name: str) -> None:
        call = getattr(MlflowClient, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return call(*args, **kwargs)

        monkeypatch.setattr(MlflowClient, name, counting)

    for name in ("search_runs", "create_run", "log_batch", "set_tag", "delete_tag", "set_terminated", "update_run"):
        counted(name)
    command([FULL], records)
    assert calls == {"search_runs": 1, "create_run": 1, "log_batch": 2, "set_terminated": 1}
    calls.clear()
    command([FULL], records)
    assert calls == {"search_runs": 1}


SWEEPS = """
import json
from pathlib import Path
from mlflow import MlflowClient
from orchestrator import run_sweep

def sweep(**options):
    assert run_sweep("toy.yaml", scale="paper", executor="inline", **options).exit_code in (0, 1)
    client = MlflowClient(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("toy").experiment_id], "tags.role = 'trial'")
    shown.append(sorted([run.data.tags["variant"], "superseded" in run.data.tags] for run in runs))

shown = []
"""
COMPONENTS = """
sweep()
sweep(only=["neural cache"])
text = Path("toy.yaml").read_text()
Path("toy.yaml").write_text(text.replace("weight: 0.3", "weight: 0.4"))
sweep(only=["full"])
Path("toy.yaml").write_text(text)
sweep()
print(json.dumps(shown))
"""
TUNED = """
text = Path("toy.yaml").read_text().partition("components:")[0]
text += "components: {weight-dropping: {off: {dropout.weight: 0.0}}}\\nseeds: [1]\\n"
text += "tune: {trials: 2, space: {dropout.input: {kind: uniform, low: 0.0, high: 0.5}}}\\n"
Path("toy.yaml").write_text(text)
sweep()
sweep()
Path("toy.yaml").write_text(text.replace("0.5}", "0.4}"))
sweep()
print(json.dumps(shown))
"""
SEARCHED = """
text = Path("toy.yaml").read_text().partition("components:")[0]
text += "components: {fine-tuning: {off: {finetune: null}}}\\nequal_budget: false\\nseeds: [1]\\n"
text += "search: {trials: 2, space: {dropout.input: {kind: uniform, low: 0.0, high: 0.5}}}\\n"
Path("toy.yaml").write_text(text)
sweep()
Path("mlflow.db").rename("moved.db")
sweep()
print(json.dumps(shown))
"""


def test_what_is_read_from_a_found_trial_is_there_and_a_new_database_has_all(tmp_path: Path) -> None:
    done = process(make_place(tmp_path), "-c", SWEEPS + SEARCHED)
    assert done.returncode == 0, done.stderr
    first, again = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, _ in first} >= {"full", "no fine-tuning"}
    assert first == again and len([name for name, _ in first if name.startswith("full")]) >= 3


@pytest.mark.slow
def test_a_sweep_file_that_changes_is_followed(tmp_path: Path) -> None:
    """What `--only` leaves out is planned all the same; `no weight-dropping` is the same trial with either base."""
    done = process(make_place(tmp_path), "-c", SWEEPS + COMPONENTS)
    assert done.returncode == 0, done.stderr
    names = ["full", "neural cache", "no fine-tuning", "no weight-dropping"]
    whole = [[name, False] for name in names]
    parts, others = [name for name in names if name != "no weight-dropping"], [["full", False]]
    assert json.loads(done.stdout.splitlines()[-1]) == [
        whole,
        whole,
        sorted([*([name, True] for name in parts), *others, ["no weight-dropping", False]]),
        sorted([*whole, ["full", True]]),
    ]


@pytest.mark.slow
def test_what_a_search_tried_stays_until_the_search_is_another(tmp_path: Path) -> None:
    done = process(make_place(tmp_path), "-c", SWEEPS + TUNED)
    assert done.returncode == 0, done.stderr
    tried = [[name, False] for name in ("full", "no weight-dropping") for _ in range(3)]
    gone = [[name, True] for name, _ in tried]
    assert json.loads(done.stdout.splitlines()[-1]) == [tried, tried, sorted(tried + gone)]
