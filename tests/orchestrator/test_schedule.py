"""What needs no running Ray: the order of trials, and Ray's quiet."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TextIO, cast

import pytest
from ray.tune.search import Searcher

from lm.spec import Corpus, Sgd, TrainSpec
from orchestrator.quiet import _WithoutRaylet
from orchestrator.schedule import _pack, _Queue, _unpack
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


def names(queue: _Queue, *tune_ids: str) -> list[str | None]:
    handed = [queue.suggest(tune_id) for tune_id in tune_ids]
    return [config["trial"]["key"] if isinstance(config, dict) else config for config in handed]


def test_a_trial_that_continues_another_waits_for_its_record(grant: Grant) -> None:
    queue = _Queue([trial("b", starts_from="a"), trial("a"), trial("c")], grant)
    assert names(queue, "1", "2", "3") == ["a", "c", None]
    settle(grant, "a")
    queue.on_trial_complete("1")
    assert names(queue, "4", "5") == ["b", Searcher.FINISHED]


def test_one_whose_source_is_already_settled_starts_at_once(grant: Grant) -> None:
    assert names(_Queue([trial("b", starts_from="a")], grant), "1") == ["b"]


def test_a_source_that_left_no_record_keeps_its_followers_for_the_next_round(grant: Grant) -> None:
    queue = _Queue([trial("a"), trial("b", starts_from="a"), trial("c")], grant)
    assert names(queue, "1") == ["a"]
    queue.on_trial_complete("1", error=True)
    assert names(queue, "2", "3") == ["c", Searcher.FINISHED]


def test_a_trial_reaches_the_worker_whole(grant: Grant) -> None:
    sent = trial("a", starts_from="b")
    assert _unpack(_pack(sent)) == sent


def test_lines_of_the_raylet_are_dropped_and_no_others() -> None:
    stream = io.StringIO()
    quiet = _WithoutRaylet(cast(TextIO, stream))
    print("ours", file=quiet)
    print("\033[33m(raylet)\033[0m A worker died", file=quiet)
    print(file=quiet)
    print("ours too", file=quiet)
    assert stream.getvalue() == "ours\n\nours too\n"
    assert not quiet.isatty()
