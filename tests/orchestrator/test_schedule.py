"""The order of trials, what comes through Ray, and Ray's quiet."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import TextIO, cast

import pytest
from ray.tune.search import Searcher

from lm.spec import Corpus, Sgd, TrainSpec
from orchestrator.quiet import _WithoutRaylet
from orchestrator.schedule.bridge import Queue, pack, unpack
from orchestrator.trial import Trial
from orchestrator.work import Grant


def trial(key: str, starts_from: str | None = None) -> Trial:
    spec = TrainSpec(corpus=Corpus(name="pydoc"), optimizer=Sgd(kind="sgd", learning_rate=1.0), epochs=1)
    return Trial(variant=key, change="", seed=1, spec=spec, key=key, parameters=1, starts_from=starts_from)


@pytest.fixture
def grant(tmp_path: Path) -> Grant:
    return Grant(runs=tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)


def settle(grant: Grant, key: str) -> None:
    (grant.runs / key).mkdir()
    (grant.runs / key / "record.json").write_text("{}")


def names(queue: Queue, *tune_ids: str) -> list[str | None]:
    handed = [queue.suggest(tune_id) for tune_id in tune_ids]
    return [config["trial"]["key"] if isinstance(config, dict) else config for config in handed]


def test_a_trial_that_continues_another_waits_for_its_record(grant: Grant) -> None:
    queue = Queue([trial("b", starts_from="a"), trial("a"), trial("c")], grant)
    assert names(queue, "1", "2", "3") == ["a", "c", None]
    settle(grant, "a")
    queue.on_trial_complete("1")
    assert names(queue, "4", "5") == ["b", Searcher.FINISHED]


def test_one_whose_source_is_already_settled_starts_at_once(grant: Grant) -> None:
    assert names(Queue([trial("b", starts_from="a")], grant), "1") == ["b"]


def test_a_source_that_left_no_record_keeps_its_followers_for_the_next_round(grant: Grant) -> None:
    queue = Queue([trial("a"), trial("b", starts_from="a"), trial("c")], grant)
    assert names(queue, "1") == ["a"]
    queue.on_trial_complete("1", error=True)
    assert names(queue, "2", "3") == ["c", Searcher.FINISHED]


def test_a_trial_reaches_the_worker_whole(grant: Grant) -> None:
    sent = trial("a", starts_from="b")
    assert unpack(pack(sent)) == sent


# In a process of its own, since Ray reads its environment once, when it loads.
THROUGH_RAY = """
import math, sys
from dataclasses import asdict, replace
from pathlib import Path
from orchestrator.schedule.bridge import Events, Queue
from orchestrator.schedule.session import session_folder, start_ray
import ray
from ray import tune
from orchestrator.quiet import quiet
from orchestrator.work import Grant
from tests.orchestrator.test_schedule import trial
from tests.tracking_factories import point

terms = [{"augmented": 0.5, "a/b.c": 1e-300}, {}, {"augmented": math.inf}]
sent = [replace(point(epoch), terms=found) for epoch, found in enumerate(terms, 1)]
grant = Grant(runs=Path(sys.argv[1]), cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)

def trainable(config):
    for evaluation in sent:
        tune.report(asdict(evaluation))

class Heard:
    points = []
    def started(self, trial): pass
    def settled(self, trial, record): pass
    def evaluated(self, trial, evaluation): self.points.append(evaluation)

trials = [trial("a")]
with session_folder() as session, quiet(False):
    start_ray(session, None, False)
    tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(search_alg=Queue(trials, grant), num_samples=-1),
        run_config=tune.RunConfig(
            storage_path=str(session / "tune"), verbose=0, callbacks=[Events(trials, grant, Heard(), set())]
        ),
    ).fit()
    ray.shutdown()
assert Heard.points == sent, Heard.points
"""


def test_an_evaluation_comes_whole_through_ray(grant: Grant) -> None:
    line = [sys.executable, "-c", THROUGH_RAY, str(grant.runs)]
    run = subprocess.run(line, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_lines_of_the_raylet_are_dropped_and_no_others() -> None:
    stream = io.StringIO()
    quiet = _WithoutRaylet(cast(TextIO, stream))
    print("ours", file=quiet)
    print("\033[33m(raylet)\033[0m A worker died", file=quiet)
    print(file=quiet)
    print("ours too", file=quiet)
    assert stream.getvalue() == "ours\n\nours too\n"
    assert not quiet.isatty()
