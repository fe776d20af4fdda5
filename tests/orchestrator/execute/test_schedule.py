"""The order of trials, and what comes through Ray."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Searcher

from lm.record import Evaluation, Record, read_record
from lm.spec import Corpus, Sgd, TrainSpec
from orchestrator.agenda.trial_source import FixedOrder, InTurn
from orchestrator.execute.ray import ray_environment
from orchestrator.execute.ray.bridge import PAUSES, Queue, train_in_worker
from orchestrator.execute.run_trial import Allotment, Failure, write_failure
from orchestrator.trials.trial import Trial
from tests.support import tracking


def trial(key: str, starts_from: str | None = None) -> Trial:
    spec = TrainSpec(corpus=Corpus(name="pydoc"), optimizer=Sgd(kind="sgd", learning_rate=1.0), epochs=1)
    return Trial(variant=key, change="", seed=1, spec=spec, key=key, parameters=1, starts_from=starts_from)


@pytest.fixture
def allotment(tmp_path: Path) -> Allotment:
    return Allotment(runs=tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def started(self, trial: Trial) -> None:
        self.words.append(f"{trial.key} started")

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        self.words.append(f"{trial.key} epoch {evaluation.epoch}")

    def settled(self, trial: Trial, record: Record | None) -> None:
        how = "stopped early" if trial.stopped_early else "stopped" if record is None else record.status
        self.words.append(f"{trial.key} {how}")


def names(queue: Queue, *tune_ids: str) -> list[str | None]:
    handed = [queue.suggest(tune_id) for tune_id in tune_ids]
    return [config["trial"].key if isinstance(config, dict) else config for config in handed]


def test_tune_gets_the_source_in_order_and_the_end_when_nothing_runs(allotment: Allotment) -> None:
    heard = Heard()
    queue = Queue(FixedOrder([trial("b", starts_from="a"), trial("a")]), allotment, heard)
    assert names(queue, "1", "2") == ["a", None]
    write_failure(queue.running["1"], allotment, "it broke")
    queue.on_trial_complete("1")
    assert names(queue, "3", "4") == ["b", None]
    write_failure(queue.running["3"], allotment, "it broke")
    queue.on_trial_complete("3")
    assert names(queue, "5") == [Searcher.FINISHED]
    assert heard.words == ["a failed", "b failed"]


def test_a_trial_that_tune_gives_up_is_handed_out_again_and_then_recorded_as_failed(allotment: Allotment) -> None:
    heard, now = Heard(), 0.0
    queue = Queue(FixedOrder([trial("a")]), allotment, heard, clock=lambda: now)
    for attempt, pause in enumerate((0.0, *PAUSES)):
        if pause:
            now += pause - 1.0
            assert names(queue, "too early") == [None]
            now += 1.0
        assert names(queue, str(attempt)) == ["a"]
        queue.on_trial_complete(str(attempt), error=True)
    record = read_record(allotment.runs / "a")
    assert record is not None and record.status == "failed" and "died" in (record.reason or "")
    assert heard.words == ["a stopped"] * len(PAUSES) + ["a failed"]
    assert names(queue, "last") == [Searcher.FINISHED]


def test_a_failure_that_only_the_driver_can_record_is_tried_once(
    allotment: Allotment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a full disk."""
    reports = list[dict[str, Any]]()
    monkeypatch.setattr("orchestrator.execute.ray.bridge.tune.report", reports.append)
    nowhere = replace(allotment, runs=tmp_path / "file/runs")
    (tmp_path / "file").touch()
    heard, source = Heard(), FixedOrder([trial("a")])
    config = Queue(source, nowhere, heard).suggest("1")
    assert config is not None
    train_in_worker(config)
    [report] = reports
    assert "NotADirectoryError" in report["failure"] or "Not a directory" in report["failure"]


def test_the_record_of_an_earlier_failure_is_not_the_result_of_a_worker_that_died(allotment: Allotment) -> None:
    heard = Heard()
    queue = Queue(FixedOrder([trial("a")]), allotment, heard)
    write_failure(trial("a"), allotment, "the disk is full: something earlier")
    assert names(queue, "1") == ["a"]
    queue.on_trial_complete("1", error=True)
    assert heard.words == ["a stopped"] and names(queue, "2") == ["a"]


def test_a_trial_whose_worker_died_while_it_was_scored_on_test_is_tried_again(allotment: Allotment) -> None:
    heard, scored = Heard(), tracking.trial("full")
    queue = Queue(FixedOrder([scored]), allotment, heard)
    assert names(queue, "1") == [scored.key]
    record = tracking.record(scored)
    unscored = record.model_copy(update={"stages": tuple(stage.without_test() for stage in record.stages)})
    tracking.leave(queue.records, scored, unscored)
    queue.on_trial_complete("1", error=True)
    assert heard.words == [f"{scored.key} stopped"] and names(queue, "2") == [scored.key]


def test_once_the_budget_is_spent_a_trial_whose_worker_died_is_left_to_the_next_command(allotment: Allotment) -> None:
    heard, now = Heard(), 0.0
    source = InTurn(iter([FixedOrder([trial("a"), trial("b")])]), 10.0, lambda: now)
    queue = Queue(source, allotment, heard, clock=lambda: now)
    assert names(queue, "1", "2") == ["a", "b"]
    queue.on_trial_complete("1", error=True)
    write_failure(queue.running["2"], allotment, "out of memory: RuntimeError")
    now = 5000.0
    queue.on_trial_complete("2")
    assert names(queue, "3") == [Searcher.FINISHED]
    assert heard.words == ["a stopped", "b stopped"]


def test_a_failure_that_is_recorded_ends_its_worker(allotment: Allotment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is broken, as by an error of CUDA that stays, would fail all trials that follow."""
    heard = Heard()
    queue = Queue(FixedOrder([trial("a"), trial("b")]), allotment, heard)

    def broken(trial: Trial, allotment: Allotment, report: object) -> Failure:
        write_failure(trial, allotment, "it broke")
        return Failure("it broke")

    monkeypatch.setattr("orchestrator.execute.ray.bridge.run_trial", broken)
    config = queue.suggest("1")
    assert config is not None
    with pytest.raises(RuntimeError, match="it broke"):
        train_in_worker(config)
    queue.on_trial_complete("1", error=True)
    assert heard.words == ["a failed"] and names(queue, "2") == ["b"], "it is not tried again"


# In a process of its own, since Ray reads its environment once, when it loads.
THROUGH_RAY = """
import math, os, stat, sys
from dataclasses import replace
from pathlib import Path
import ray
from ray import tune
from orchestrator.agenda.trial_source import FixedOrder
from orchestrator.execute.ray import Order
from orchestrator.execute.ray.bridge import Queue, fit
from orchestrator.execute.ray.session import start_ray
from orchestrator.execute.ray import session_folder
from orchestrator.execute.run_trial import Allotment, write_failure
from tests.orchestrator.execute.test_schedule import Heard, trial
from tests.support.tracking import point

terms = [{"augmented": 0.5, "a/b.c": 1e-300}, {}, {"augmented": math.inf}]
sent = [replace(point(epoch), terms=found) for epoch, found in enumerate(terms, 1)]
allotment = Allotment(runs=Path(sys.argv[1]), cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)

def trainable(config):
    assert config["trial"] in (broken, whole, cut), config["trial"]
    with (allotment.runs / "processes").open("a") as file:
        print(os.getpid(), file=file)
    if config["trial"] == broken:
        write_failure(broken, allotment, "it broke")
        raise RuntimeError("it broke")
    for evaluation in sent:
        tune.report({"evaluation": evaluation})

broken, whole, cut = trial("broken"), trial("whole"), trial("cut")

class Stops(FixedOrder):
    def goes_on(self, trial, evaluation):
        assert evaluation == sent[evaluation.epoch - 1]
        return trial.key == "whole" or evaluation.epoch < 2

heard = Heard()
with session_folder() as session:
    start_ray(Order(allotment, session=session))
    assert stat.S_IMODE(session.stat().st_mode) == 0o700, "the folder is its owner's, whatever Ray does"
    queue = Queue(Stops([broken, whole, cut]), allotment, heard)
    fit(queue, trainable, session=session, at_once=1)
    ray.shutdown()
uncut = ["whole started", "whole epoch 1", "whole epoch 2", "whole epoch 3"]
first = ["broken started", "broken failed"]
assert heard.words == [*first, *uncut, "cut started", "cut epoch 1", "cut epoch 2", "cut stopped early"], heard.words
processes = (allotment.runs / "processes").read_text().split()
assert processes[0] != processes[1] == processes[2], "only the worker of the trial that failed is replaced"
"""


def test_evaluations_come_whole_through_ray_until_the_source_stops_the_trial(allotment: Allotment) -> None:
    line = [sys.executable, "-c", THROUGH_RAY, str(allotment.runs)]
    run = subprocess.run(line, check=False, capture_output=True, text=True, env=ray_environment())
    assert run.returncode == 0, run.stderr


# Ray looks every ten seconds, and takes any use of memory for too much.
OUT_OF_MEMORY = """
import sys, time
from pathlib import Path
import ray
from ray import tune
from orchestrator.agenda.trial_source import FixedOrder
from orchestrator.execute.ray import Order
from orchestrator.execute.ray.bridge import Queue, fit
from orchestrator.execute.ray.session import start_ray
from orchestrator.execute.ray import session_folder
from orchestrator.execute.run_trial import Allotment
from tests.orchestrator.execute.test_schedule import Heard, trial
from tests.support.tracking import point

allotment = Allotment(runs=Path(sys.argv[1]), cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
begun = allotment.runs / "begun"

def trainable(config):
    tune.report({"evaluation": point(1)})
    if not begun.exists():
        begun.touch()
        time.sleep(300)

heard = Heard()
with session_folder() as session:
    start_ray(Order(allotment, session=session))
    fit(Queue(FixedOrder([trial("a")]), allotment, heard), trainable, session=session, at_once=1)
    ray.shutdown()
once = ["a started", "a epoch 1"]
assert heard.words == [*once, "a stopped", *once], heard.words
"""


def test_a_trial_whose_worker_ray_ends_for_want_of_memory_is_tried_again(allotment: Allotment) -> None:
    line = [sys.executable, "-c", OUT_OF_MEMORY, str(allotment.runs)]
    greedy = {"RAY_memory_usage_threshold": "0.0", "RAY_memory_monitor_refresh_ms": "10000"}
    run = subprocess.run(line, check=False, capture_output=True, text=True, env=ray_environment() | greedy)
    assert run.returncode == 0, run.stderr
