"""What every sampler with every scheduler keeps: repeatable, and the same after a kill at any moment."""

from __future__ import annotations

import copy
import statistics
from pathlib import Path
from typing import Any

import pytest

from orchestrator.search.events import Asked, Ended
from orchestrator.search.optuna import Study
from tests.support.searching import CONDITIONAL, Shelf, events, found, path_of, search, task

SAMPLERS: list[dict[str, Any]] = [
    {"kind": "random"},
    {"kind": "tpe", "startup_trials": 3},
    {"kind": "gaussian_process", "startup_trials": 3},
    {"kind": "cma_es"},
    {"kind": "grid", "points": 2},
    {"kind": "quasi_random"},
]
SCHEDULERS: list[dict[str, Any] | None] = [
    None,
    {"kind": "asha"},
    {"kind": "hyperband"},
    {"kind": "median", "grace_epochs": 2, "startup_trials": 2},
]
START = [{"optimizer.learning_rate": 99.0}, {"dropout.input": 0.79}]
"""The first diverges, the second fails."""


def names(options: dict[str, Any] | None) -> str:
    return "none" if options is None else str(options["kind"])


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=names)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=names)
def test_a_search_ends_and_repeats_itself(sampler: Any, scheduler: Any, tmp_path: Path) -> None:
    trials = 7 if sampler["kind"] == "gaussian_process" else 10  # a second for each
    one = task(sampler=sampler, scheduler=scheduler, start=START, trials=trials)
    (first,) = search([one], Shelf(tmp_path / "first"))
    (second,) = search([one], Shelf(tmp_path / "second"))
    assert first == second
    assert [trial.number for trial in first] == list(range(trials))
    assert first[0].state == "diverged"
    assert first[1].state == "failed"
    for trial in first[2:]:
        assert (trial.objectives is not None) == (trial.state == "complete")
        assert trial.state != "complete" or trial.epochs == 9
        assert trial.state != "stopped" or (scheduler is not None and 1 <= trial.epochs < 9)
        assert 1.0 <= trial.values["optimizer.learning_rate"] <= 100.0
        assert isinstance(trial.values["batch_size"], int)


@pytest.mark.parametrize("sampler", [sampler for sampler in SAMPLERS if sampler["kind"] != "grid"], ids=names)
def test_another_seed_searches_otherwise(sampler: Any, tmp_path: Path) -> None:
    one, other = (task(sampler=sampler, sampler_seed=seed, trials=4) for seed in (1, 2))
    (first,), (second,) = search([one], Shelf(tmp_path)), search([other], Shelf(tmp_path))
    assert all(a.values != b.values for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kept", ["disk kept", "disk lost"])
@pytest.mark.parametrize(
    ("sampler", "scheduler"),
    [(SAMPLERS[1], 1), (SAMPLERS[3], 2), (SAMPLERS[4], 3), (SAMPLERS[5], 1)],
    ids=["tpe", "cma_es", "grid", "quasi_random"],
)
def test_killed_after_any_line_it_goes_on_the_same(sampler: Any, scheduler: int, kept: str, tmp_path: Path) -> None:
    space = CONDITIONAL if sampler["kind"] == "tpe" else None
    update = {} if space is None else {"space": space}
    one = task(sampler=sampler, scheduler=SCHEDULERS[scheduler], trials=6, **update)
    whole = Shelf(tmp_path / "whole")
    (undisturbed,) = search([one], whole)
    lines = path_of(one, whole.root).read_bytes().splitlines(keepends=True)
    assert len(lines) > 20
    for cut in range(0, len(lines), 1 if sampler["kind"] == "tpe" else 5):
        for torn in (b"", lines[cut][: len(lines[cut]) // 2]):
            shelf = Shelf(tmp_path / f"{cut}-{len(torn)}")
            if kept == "disk kept":  # all that was ever on it: more than at any moment of a kill
                shelf.records, shelf.curves = dict(whole.records), copy.deepcopy(whole.curves)
            path = path_of(one, shelf.root)
            path.parent.mkdir(parents=True)
            path.write_bytes(b"".join(lines[:cut]) + torn)
            assert search([one], shelf) == [undisturbed]
            assert path.read_bytes() == b"".join(lines)


def test_killed_with_a_gaussian_process_it_goes_on_the_same(tmp_path: Path) -> None:
    one = task(sampler=SAMPLERS[2], scheduler=None, trials=6, start=START[:1])
    whole = Shelf(tmp_path / "whole")
    search([one], whole)
    lines = path_of(one, whole.root).read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if line.startswith(b'{"asked"'))
    path = path_of(one, tmp_path / "cut")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(lines[:last]))
    search([one], Shelf(tmp_path / "cut"))
    assert path.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=names)
def test_more_trials_extend_a_search(sampler: Any, tmp_path: Path) -> None:
    few, many = (task(sampler=sampler, trials=trials) for trials in (3, 6))
    shelf = Shelf(tmp_path)
    (first,) = search([few], shelf)
    trained = len(shelf.trained)
    (second,) = search([many], shelf)
    assert path_of(few, tmp_path) == path_of(many, tmp_path)
    assert second[:3] == first
    assert len(second) == 6
    assert len(shelf.trained) <= trained + 3
    assert second == search([many], Shelf(tmp_path / "at once"))[0]


@pytest.mark.parametrize(("kind", "trials"), [("tpe", 40), ("gaussian_process", 14), ("cma_es", 40)])
def test_samplers_that_learn_grow_better_than_chance(kind: str, trials: int, tmp_path: Path) -> None:
    late = {}
    for sampler in ({"kind": "random"}, {"kind": kind, "startup_trials": 6}):
        one = task(sampler=sampler, scheduler=None, trials=trials, sampler_seed=1)
        (done,) = search([one], Shelf(tmp_path / str(sampler["kind"])))
        late[sampler["kind"]] = statistics.median(trial.valid_nats or 20.0 for trial in done[trials // 2 :])
    assert late[kind] < late["random"]


def test_cma_es_moves_from_the_middle_of_its_ranges_to_the_best() -> None:
    space = {key: {"kind": "uniform", "low": 0.0, "high": 3.0} for key in ("optimizer.weight_decay", "optimizer.clip")}
    space["optimizer.clip"]["low"] = 0.1
    study, clips = Study(task(sampler={"kind": "cma_es"}, space=space, scheduler=None, trials=60)), []
    for number in range(60):
        values = study.next_values()
        clips.append(values["optimizer.clip"])
        loss = (clips[-1] - 0.3) ** 2
        study.apply(Asked(asked=number, values=values, key=str(number), parent=None))
        ended = Ended(ended=number, state="complete", nats=loss, objectives=(loss,), epochs=1, seconds=1.0, reason=None)
        study.apply(ended)
    early, late = statistics.fmean(clips[:20]), statistics.fmean(clips[40:])
    assert late < 0.75 * early


def test_a_gaussian_process_does_not_insist_on_what_fails(tmp_path: Path) -> None:
    sampler = {"kind": "gaussian_process", "startup_trials": 3}
    space = {"dropout.input": {"kind": "uniform", "low": 0.2, "high": 0.8}}
    start = [{"dropout.input": value} for value in (0.8, 0.25, 0.4, 0.55)]
    (done,) = search([task(sampler=sampler, space=space, start=start, scheduler=None, trials=9)], Shelf(tmp_path))
    assert sum(trial.state == "failed" for trial in done[4:]) <= 1


def test_the_first_line_explains_the_search(tmp_path: Path) -> None:
    one = task(trials=2)
    search([one], Shelf(tmp_path))
    said = events(one, tmp_path)[0]["task"]
    assert said["sampler"]["kind"] == "tpe"
    assert [dimension["key"] for dimension in said["space"]] == list(one.space)
    assert said["base"]["spec"]["epochs"] == 9
    assert found(one, tmp_path)[0].values.keys() == one.space.keys()
