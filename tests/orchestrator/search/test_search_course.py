"""What becomes of a search's trials: told from records, run once, stopped, diverged, failed, in turns."""

from __future__ import annotations

import math
import resource
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import optuna
import pytest

from lm.record import Evaluation
from lm.spec import Penalties
from orchestrator.errors import CannotStartError
from orchestrator.search.events import Asked, Ended, Evaluated, SearchTrial
from orchestrator.search.ledger import MOST_FAILED_IN_A_ROW, Ledger, best, front, read_search
from orchestrator.search.optuna import export, importance
from orchestrator.search.trial_source import SearchTrialSource
from orchestrator.trials.trial import Trial
from tests.support.searching import (
    BASE,
    CONDITIONAL,
    SPACE,
    Facts,
    Shelf,
    events,
    found,
    loss,
    made,
    path_of,
    point,
    search,
    state,
    task,
    train,
)

RANDOM = {"kind": "random"}
RATES = {"optimizer.learning_rate": {"kind": "choice", "among": [5.0, 10.0, 20.0]}}


def asha_stops(losses: list[list[float]], grace: int, factor: int) -> list[int]:
    """The epoch at which each trial is stopped or ends, trials one after the other, from Li et al. (2020) by hand.

    A trial passes a rung if it is among the best 1/factor there; before there are so many, if it is the best.
    """
    rungs: dict[int, list[float]] = {}
    ends = []
    for curve in losses:
        end = len(curve)
        for epoch in range(1, len(curve) + 1):
            so_far = min(curve[:epoch])
            rung = grace
            while rung < epoch:
                rung *= factor
            if rung != epoch:
                continue
            there = rungs.setdefault(rung, [])
            there.append(so_far)
            if so_far > sorted(there)[max(len(there) // factor, 1) - 1]:
                end = epoch
                break
        ends.append(end)
    return ends


@pytest.mark.parametrize(("grace", "factor"), [(1, 3), (2, 2), (1, 2)])
def test_asha_stops_the_right_ones(grace: int, factor: int, tmp_path: Path) -> None:
    space = {"optimizer.learning_rate": {"kind": "log_uniform", "low": 1.0, "high": 79.0}}
    scheduler = {"kind": "asha", "grace_epochs": grace, "reduction_factor": factor}
    one = task(space=space, sampler=RANDOM, scheduler=scheduler, trials=30)
    (trials,) = search([one], Shelf(tmp_path))
    specs = [one.drawn(trial.values).spec for trial in trials]
    losses = [[loss(spec, epoch) for epoch in range(1, 10)] for spec in specs if spec is not None]
    ends = asha_stops(losses, grace, factor)
    assert [trial.epochs for trial in trials] == ends
    assert {trial.state for trial in trials} == {"stopped", "complete"}
    assert all((trial.state == "complete") == (end == 9) for trial, end in zip(trials, ends, strict=True))


def test_a_median_stops_what_is_worse_than_half(tmp_path: Path) -> None:
    start = [{"optimizer.learning_rate": rate} for rate in (10.0, 20.0, 5.0, 70.0, 11.0)]
    space = {"optimizer.learning_rate": SPACE["optimizer.learning_rate"]}
    scheduler = {"kind": "median", "grace_epochs": 3, "startup_trials": 3}
    (trials,) = search([task(space=space, start=start, trials=5, scheduler=scheduler)], Shelf(tmp_path))
    assert [trial.state for trial in trials] == ["complete", "complete", "complete", "stopped", "complete"]
    assert trials[3].epochs == 3


def test_the_same_values_are_trained_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    (trials,) = search([task(space=RATES, sampler=RANDOM, scheduler=None, trials=12)], shelf)
    assert len(shelf.trained) == len(set(shelf.trained)) == len({trial.key for trial in trials}) == 3
    assert all(trial.state == "complete" and trial.seconds == 90.0 for trial in trials)
    assert {trial.key: trial.valid_nats for trial in trials}.items() == {(t.key, t.valid_nats) for t in trials}


def test_what_another_sweep_trained_is_told_at_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    (first,) = search([task(space=RATES, scheduler=None, sampler=RANDOM, trials=9)], shelf)
    trained = list(shelf.trained)
    (again,) = search([task(space=RATES, scheduler=None, sampler=RANDOM, trials=9, sampler_seed=5)], shelf)
    assert shelf.trained == trained
    assert again[0].curve == first[0].curve or again[0].key != first[0].key
    assert all(trial.state == "complete" and trial.epochs == 9 and len(trial.curve) == 9 for trial in again)


def test_a_spec_that_failed_elsewhere_is_trained_again(tmp_path: Path) -> None:
    """A failure may be the machine's: its record settles nothing, be it another sweep's or an earlier command's."""
    one = task(space=RATES, sampler=RANDOM, scheduler=None, trials=1, start=[dict.fromkeys(RATES, 5.0)])
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    trial = source.next()
    assert trial is not None
    shelf.records[trial.key] = made(trial, "failed")
    source.settled(trial, None)  # as where the driver was killed before it heard of the failure
    (trials,) = search([one], shelf)
    assert shelf.trained == [trial.key]
    assert [trial.state for trial in trials] == ["complete"]


def test_a_spec_that_failed_in_this_search_is_not_tried_twice(tmp_path: Path) -> None:
    one = task(trials=3, scheduler=None, sampler=RANDOM, start=[{"dropout.input": 0.78}] * 3, start_rest="base")
    shelf = Shelf(tmp_path)
    (trials,) = search([one], shelf)
    assert len(shelf.trained) == 1
    assert [trial.state for trial in trials] == ["failed"] * 3
    assert {trial.reason for trial in trials} == {"as the formula says"}
    (again,) = search([replace(one, searching=one.searching.model_copy(update={"trials": 4}))], shelf)
    assert len(again) == 4 and len(shelf.trained) == 2, "the next values are others"


def test_trials_beyond_the_number_wanted_do_not_run_on(tmp_path: Path) -> None:
    """As where a sweep that asked for more was killed, and its file asks for less by now."""
    many, few = task(sampler=RANDOM, scheduler=None, trials=3), task(sampler=RANDOM, scheduler=None, trials=2)
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([many], shelf, Facts())  # type: ignore[arg-type]
    assert [source.next() is None for _ in range(3)] == [False] * 3
    (trials,) = search([few], shelf)
    assert [trial.state for trial in trials] == ["complete", "complete", "running"]
    assert len(shelf.trained) == 2


def test_a_search_is_over_when_the_last_trial_is(tmp_path: Path) -> None:
    one = task(sampler=RANDOM, scheduler=None, trials=2)
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    assert None not in [source.next(), source.next()]
    assert state(one, found(one, tmp_path)).asked_enough and not state(one, found(one, tmp_path)).ended
    (trials,) = search([one], shelf)
    assert state(one, trials).ended


def test_a_grid_begins_after_the_starts(tmp_path: Path) -> None:
    one = task(space=RATES, sampler={"kind": "grid"}, scheduler=None, trials=None, start=[dict.fromkeys(RATES, 10.0)])
    (trials,) = search([one], Shelf(tmp_path))
    assert [trial.values["optimizer.learning_rate"] for trial in trials] == ["10.0", "5.0", "10.0", "20.0"]
    assert state(one, trials).ended and not state(one, trials[:3]).asked_enough


def test_the_best_is_complete_even_if_another_was_better_until_it_was_stopped() -> None:
    kept = SearchTrial(0, {}, "a", "complete", 9, 90.0, 4.0, (4.0,), None)
    stopped = replace(kept, number=1, state="stopped", valid_nats=3.0, objectives=None)
    assert best([stopped, kept, replace(stopped, state="diverged")]) == kept
    assert best([stopped]) is None


def test_half_a_line_that_a_full_disk_left_is_cut_off_by_the_next_command(tmp_path: Path) -> None:
    one = task(sampler=RANDOM, scheduler=None, trials=2)
    ledger = Ledger(path_of(one, tmp_path), one, Facts().fingerprint(one.base.corpus))
    values = {"optimizer.learning_rate": 10.0, "dropout.input": 0.4, "batch_size": 8}
    event = Asked(asked=0, values=dict(values), key=None)
    path = path_of(one, tmp_path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            ledger.append(event)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found(one, tmp_path) == ledger.trials == []
    ledger = Ledger(path, one, Facts().fingerprint(one.base.corpus))
    assert path.read_bytes() == before
    ledger.append(event)
    assert found(one, tmp_path) == ledger.trials != []


def test_a_complete_trial_has_the_loss_of_its_last_stage(tmp_path: Path) -> None:
    """The weights that are kept may be others than those of the best epoch: an average, or fine-tuned ones."""
    one = task(sampler=RANDOM, scheduler=None, trials=1)
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    trial = source.next()
    assert trial is not None
    record = train(trial, shelf, lambda evaluation: source.goes_on(trial, evaluation))
    assert record is not None
    last = record.stages[-1]
    valid = last.valid.model_copy(update={"nats_per_token": 1.25})
    source.settled(trial, record.model_copy(update={"stages": (last.model_copy(update={"valid": valid}),)}))
    (ended_trial,) = found(one, tmp_path)
    assert (ended_trial.valid_nats, ended_trial.objectives) == (1.25, (1.25,))
    assert all(nats > 1.25 for _, nats in ended_trial.curve)


def test_variants_with_the_same_spec_are_searched_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    tasks = [task(name, sampler=RANDOM, scheduler=None, trials=3) for name in ("full", "the same")]
    first, second = search(tasks, shelf)
    assert first == second and len(shelf.trained) == 3
    assert len([event for event in events(tasks[0], tmp_path) if "asked" in event]) == 3


def test_equal_specs_in_flight_are_run_once(tmp_path: Path) -> None:
    one = task(space=RATES, sampler=RANDOM, scheduler=None, trials=12, start=[dict.fromkeys(RATES, 5.0)] * 2)
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    leader = source.next()
    assert leader is not None
    assert source.next() is None  # its twin waits
    source.settled(leader, train(leader, shelf, lambda evaluation: source.goes_on(leader, evaluation)))
    other = source.next()
    assert other is not None
    assert other.key != leader.key
    first, second, *_ = found(one, tmp_path)
    assert (first.state, second.state) == ("complete", "complete")
    assert first.objectives == second.objectives


def test_a_stopped_trial_asked_again_is_judged_by_its_curve(tmp_path: Path) -> None:
    rates = {"optimizer.learning_rate": {"kind": "choice", "among": [10.0, 30.0]}}
    start = [dict.fromkeys(rates, rate) for rate in (10.0, 30.0, 30.0)]
    shelf = Shelf(tmp_path)
    (trials,) = search([task(space=rates, start=start, trials=3)], shelf)
    assert [trial.state for trial in trials] == ["complete", "stopped", "stopped"]
    assert len(shelf.trained) == 2


def test_an_interrupted_trial_runs_on_first(tmp_path: Path) -> None:
    one = task(sampler=RANDOM, scheduler=None, trials=3)
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    a, b = source.next(), source.next()
    assert a is not None
    assert b is not None
    assert source.goes_on(b, point(b.spec, 1))
    source.settled(a, None)
    source.settled(b, None)
    assert [trial.state for trial in found(one, tmp_path)] == ["running", "running"]
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    assert [source.next(), source.next()] == [a, b]
    assert source.goes_on(b, point(b.spec, 1))  # again, after the restart
    assert [event["epoch"] for event in events(one, tmp_path) if "evaluated" in event] == [1]


def test_what_was_to_be_stopped_stops_after_a_kill(tmp_path: Path) -> None:
    one = task(sampler=RANDOM, trials=6)
    shelf = Shelf(tmp_path / "whole")
    search([one], shelf)
    lines = path_of(one, shelf.root).read_bytes().splitlines(keepends=True)
    stop = next(i for i, line in enumerate(lines) if b'"goes_on": false' in line)
    path = path_of(one, tmp_path / "cut")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(lines[: stop + 1]))
    again = Shelf(tmp_path / "cut")
    source = SearchTrialSource([one], again, Facts())  # type: ignore[arg-type]
    following = source.next()
    assert following is not None
    assert found(one, again.root)[following.number - 1].state == "stopped"  # type: ignore[operator]


def test_epochs_that_came_to_the_storage_alone_are_judged_before_a_trial_goes_on(tmp_path: Path) -> None:
    """As where the driver was killed before it heard of them: a worker tells of later epochs alone."""
    one = task(sampler=RANDOM, trials=6)
    there, here = Shelf(tmp_path / "there"), Shelf(tmp_path / "here")
    search([one], there)
    lines = path_of(one, there.root).read_bytes().splitlines(keepends=True)
    stop = next(i for i, line in enumerate(lines) if b'"goes_on": false' in line)
    path = path_of(one, here.root)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(lines[:stop]))

    def fetch(trial: Trial) -> None:
        here.curves[trial.key] = there.curves[trial.key]

    following = SearchTrialSource([one], here, Facts(), fetch).next()  # type: ignore[arg-type]
    assert following is not None and found(one, here.root)[following.number - 1].state == "stopped"
    assert path.read_bytes().startswith(b"".join(lines[: stop + 2]))


def test_divergence_and_failure_are_rows_with_their_reasons(tmp_path: Path) -> None:
    start = [{"optimizer.learning_rate": 99.0}, {"dropout.input": 0.78}, {"optimizer.learning_rate": 10.0}]
    (trials,) = search([task(start=start, trials=3, scheduler=None)], Shelf(tmp_path))
    assert [trial.state for trial in trials[:2]] == ["diverged", "failed"]
    assert all(trial.reason == "as the formula says" and trial.objectives is None for trial in trials[:2])
    assert best(trials) == trials[2]


def test_values_that_no_spec_can_have_fail_at_once(tmp_path: Path) -> None:
    space = {
        "head.bias": {"kind": "choice", "among": [True, False]},
        "model.tied": {"kind": "choice", "among": [False, True]},
        "model.hidden_size": {"kind": "choice", "among": {"fits": [16], "not": [24]}},
    }
    start = [
        {"head.bias": True, "model.tied": tied, "model.hidden_size": size}
        for tied, size in product((False, True), ("fits", "not"))
    ]
    shelf = Shelf(tmp_path)
    (trials,) = search([task(space=space, start=start, trials=4, scheduler=None)], shelf)
    assert [trial.state for trial in trials] == ["complete", "complete", "complete", "failed"]
    assert trials[3].key is None
    assert "24 is not embedding_size" in (trials[3].reason or "")
    assert len(shelf.trained) == 3


def test_values_that_no_spec_can_have_alone_are_mended_by_later_ones() -> None:
    space = {
        "model.tied": {"kind": "choice", "among": [False, True]},
        "model.hidden_size": {"kind": "choice", "among": {"small": [16], "large": [24]}},
        "model.embedding_size": {"kind": "choice", "among": [16, 24]},
    }
    values = {"model.tied": "True", "model.hidden_size": "large", "model.embedding_size": "24"}
    drawn = task(space=space).drawn(values)
    assert (spec := drawn.spec) is not None and drawn.reason is None
    assert (spec.model.tied, spec.model.embedding_size, spec.model.hidden_size) == (True, 24, (24,))


def test_a_head_too_large_for_the_vocabulary_fails_at_once(tmp_path: Path) -> None:
    heads = {name: {"kind": "adaptive", "cutoffs": [cutoff]} for name, cutoff in (("fits", 100), ("not", 5000))}
    space = {"head": {"kind": "choice", "among": heads}}
    shelf = Shelf(tmp_path)
    (trials,) = search([task(space=space, start=[{"head": "not"}], trials=1)], shelf)
    assert trials[0].state == "failed"
    assert not shelf.trained


def test_what_a_choice_rules_out_is_not_searched(tmp_path: Path) -> None:
    one = task(space=CONDITIONAL, trials=15, scheduler=None)
    (trials,) = search([one], Shelf(tmp_path))
    kinds = {("layers", value): "head.dropout" in trial.values for trial in trials if (value := trial.values["layers"])}
    assert kinds == {("layers", "plain"): False, ("layers", "mixture"): True}
    spec = one.drawn({"optimizer.learning_rate": 3.0, "layers": "mixture", "head.dropout": 0.25}).spec
    assert spec is not None
    assert (spec.head.kind, spec.head.dropout) == ("mixture", 0.25)  # type: ignore[union-attr]
    assert one.in_words({"layers": "plain", "dropout.input": 0.123456789012}) == "layers plain; dropout.input 0.1235"


def test_inside_a_part_that_is_null_nothing_is_searched(tmp_path: Path) -> None:
    space = {
        "penalties": {"kind": "choice", "among": {"none": None, "some": {"activation": 1.0}}},
        "penalties.activation": {"kind": "uniform", "low": 0.0, "high": 4.0},
    }
    one = task(space=space, base=BASE.model_copy(update={"penalties": Penalties(activation=2.0)}))
    assert one.draw_all(lambda key, *_: "none" if key == "penalties" else 3.0).values == {"penalties": "none"}
    assert one.draw_all(lambda key, *_: "some" if key == "penalties" else 3.0).spec.penalties.activation == 3.0  # type: ignore[union-attr]


def test_a_grid_has_every_combination_that_holds_once(tmp_path: Path) -> None:
    space = {
        "batch_size": {"kind": "integer", "low": 8, "high": 10},
        "dropout.input": {"kind": "uniform", "low": 0.0, "high": 0.6},
        "layers": CONDITIONAL["layers"],
        "head.dropout": CONDITIONAL["head.dropout"],
    }
    one = task(space=space, sampler={"kind": "grid", "points": 3}, scheduler=None, trials=None)
    points = list(one.grid(3))
    expected = [
        {"batch_size": size, "dropout.input": drop, "layers": layers, **inner}
        for size, drop, layers in product((8, 9, 10), (0.0, 0.3, 0.6), ("plain", "mixture"))
        for inner in ([{}] if layers == "plain" else [{"head.dropout": x} for x in (0.0, 0.3, 0.6)])
    ]
    assert points == expected
    (trials,) = search([one], Shelf(tmp_path))
    assert [dict(trial.values) for trial in trials] == expected
    assert state(one, trials).ended
    assert not state(one, trials[:-1]).ended


def test_a_grid_that_nobody_could_count_is_refused() -> None:
    space = {f"dropout.{name}": {"kind": "uniform", "low": 0.0, "high": 0.6} for name in ("input", "output")}
    one = task(space=space, sampler={"kind": "grid", "points": 101}, scheduler=None, trials=None)
    with pytest.raises(CannotStartError, match="the grid has more than 10,000 points; write 'trials:' or fewer"):
        assert one.trials
    assert task(space=space, sampler={"kind": "grid", "points": 101}, scheduler=None, trials=7).trials == 7


def test_every_variant_gets_the_same_number_of_trials_in_turns(tmp_path: Path) -> None:
    gru = BASE.model_copy(update={"model": BASE.model.model_copy(update={"cell": "gru"})})
    tasks = [
        task("full", trials=5, sampler=RANDOM, scheduler=None),
        task("gru", gru, fixed=("dropout.input",), trials=5, sampler=RANDOM, scheduler=None),
    ]
    shelf = Shelf(tmp_path)
    source = SearchTrialSource(tasks, shelf, Facts())  # type: ignore[arg-type]
    order = []
    while (trial := source.next()) is not None:
        order.append((trial.variant, trial.number))
        assert not trial.opens_test
        source.settled(trial, train(trial, shelf, lambda e, t=trial: source.goes_on(t, e)))
    assert order == [(variant, number) for number in range(5) for variant in ("full", "gru")]
    assert all("dropout.input" not in trial.values for trial in found(tasks[1], tmp_path))


def test_hours_end_a_search_and_so_do_failures_without_end(tmp_path: Path) -> None:
    one = task(space=RATES, sampler=RANDOM, scheduler=None, trials=None, training_hours=0.1)
    (trials,) = search([one], Shelf(tmp_path))
    assert len(trials) == 4  # of 90 s each, also those that need no training any more
    hopeless = task(space=RATES, trials=None, training_hours=1.0)
    fails = [SearchTrial(n, {}, None, "failed", 0, 0.0, None, None, "no") for n in range(MOST_FAILED_IN_A_ROW)]
    assert state(hopeless, fails).asked_enough
    assert not state(hopeless, fails[1:]).asked_enough


@pytest.mark.parametrize("short", [{"training_hours": 0.1}, {"trials": 4, "training_hours": 9.0}, {"trials": 4}])
def test_what_a_longer_search_adds_to_the_ledger_is_not_of_a_shorter_one(tmp_path: Path, short: dict[str, Any]) -> None:
    """Its table rests on what it found within its own budget, and it does not begin again."""
    rates = {"optimizer.learning_rate": {"kind": "uniform", "low": 5.0, "high": 20.0}}
    shelf, alike = Shelf(tmp_path), {"space": rates, "sampler": RANDOM, "scheduler": None, "trials": None}
    one, longer = task(**alike | short), task(**alike | {"trials": 9})
    (before,) = search([one], shelf)
    source = SearchTrialSource([longer], shelf, Facts())  # type: ignore[arg-type]
    for _ in range(2):
        trial = source.next()
        assert trial is not None
        source.settled(trial, train(trial, shelf, lambda e, t=trial: source.goes_on(t, e)))
    assert source.next() is not None, "it runs"
    assert [trial.state for trial in found(one, tmp_path)] == ["complete"] * 6 + ["running"]
    within = read_search(path_of(one, tmp_path), one)
    assert list(within.trials) == before and within.ended
    assert SearchTrialSource([one], shelf, Facts()).next() is None  # type: ignore[arg-type]


def test_a_search_that_another_went_on_with_ends_whatever_its_seconds_come_to(tmp_path: Path) -> None:
    """A trial that is trained again, as if its folder was lost, may take less time than it had taken."""
    one = task(space=RATES, sampler=RANDOM, scheduler=None, trials=None, training_hours=0.1)
    ledger = Ledger(path_of(one, tmp_path), one, Facts().fingerprint(one.base.corpus))
    ledger.append(Asked(asked=0, values={"optimizer.learning_rate": 5.0}, key="0" * 16))
    ledger.append(Evaluated(evaluated=0, epoch=1, nats=5.0, seconds=400.0, goes_on=True))
    ledger.append(Asked(asked=1, values={"optimizer.learning_rate": 10.0}, key="1" * 16))
    assert not read_search(path_of(one, tmp_path), one).ended
    ledger.append(Ended(ended=0, state="complete", nats=5.0, objectives=(5.0,), epochs=9, seconds=200.0, reason=None))
    search = read_search(path_of(one, tmp_path), one)
    assert [trial.number for trial in search.trials] == [0] and search.ended
    assert SearchTrialSource([one], Shelf(tmp_path), Facts()).next() is None  # type: ignore[arg-type]


def test_failures_without_end_are_the_end_for_a_longer_search_too(tmp_path: Path) -> None:
    one = task(space=RATES, sampler=RANDOM, scheduler=None, trials=None, training_hours=1.0)
    ledger = Ledger(path_of(one, tmp_path), one, Facts().fingerprint(one.base.corpus))
    for number in range(MOST_FAILED_IN_A_ROW + 1):  # the last one by a search that a number of trials bounds
        ledger.append(Asked(asked=number, values={"optimizer.learning_rate": 5.0}, key=None))
        if number < MOST_FAILED_IN_A_ROW:
            end = {"nats": None, "objectives": None, "epochs": 0, "seconds": 0.0, "reason": "no"}
            ledger.append(Ended(ended=number, state="failed", **end))
    search = read_search(path_of(one, tmp_path), one)
    assert len(search.trials) == MOST_FAILED_IN_A_ROW and search.ended


def test_several_objectives_give_a_front(tmp_path: Path) -> None:
    space = RATES | {"model.embedding_size": {"kind": "integer", "low": 8, "high": 32}}
    one = task(space=space, objectives=["validation", "parameters"], scheduler=None, trials=14)
    (trials,) = search([one], Shelf(tmp_path))
    points = {trial.objectives for trial in trials}
    mine = {p for p in points if p and not any(q and q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}
    assert {trial.objectives for trial in front(trials)} == mine
    assert len(front(trials)) == len(mine)


def test_importance_names_what_matters_and_keeps_silent_where_it_cannot_know(tmp_path: Path) -> None:
    one = task(sampler={"kind": "quasi_random"}, scheduler=None, trials=40)
    (trials,) = search([one], Shelf(tmp_path))
    shares = importance(one, trials)
    assert shares is not None
    assert next(iter(shares)) == "optimizer.learning_rate"
    assert shares["optimizer.learning_rate"][0] > 0.7
    assert shares["batch_size"][0] < 0.2
    assert all(deviation < 0.1 for _, deviation in shares.values())
    assert importance(one, trials[:19]) is None
    conditional = task(space=CONDITIONAL, sampler=RANDOM, scheduler=None, trials=30)
    (others,) = search([conditional], Shelf(tmp_path / "conditional"))
    assert (importance(conditional, others) or {}).keys() == {"optimizer.learning_rate", "layers"}


def test_an_exported_study_says_the_same_and_replaces_the_last(tmp_path: Path) -> None:
    start: list[dict[str, Any]] = [{"optimizer.learning_rate": 99.0}, {"dropout.input": 0.78}]
    one = task(start=start, trials=10)
    (trials,) = search([one], Shelf(tmp_path))
    url = f"sqlite:///{tmp_path}/optuna.db"
    for part in (trials[:4], trials):
        export({"a.paper.full": (one, part)}, url, lambda key: None)
    study = optuna.load_study(study_name="a.paper.full", storage=url)
    assert [trial.state.name for trial in study.trials] == [
        {"complete": "COMPLETE", "failed": "FAIL"}.get(trial.state, "PRUNED") for trial in trials
    ]
    assert {"PRUNED", "FAIL", "COMPLETE"} == {trial.state.name for trial in study.trials}
    assert study.best_value == best(trials).valid_nats  # type: ignore[union-attr]
    for theirs, ours in zip(study.trials, trials, strict=True):
        assert theirs.params == ours.values
        assert theirs.user_attrs["key"] == ours.key
        assert theirs.intermediate_values == dict(ours.curve)
    assert study.trials[0].user_attrs["reason"] == "as the formula says"
    study._storage.remove_session()


def test_the_key_forgets_how_long_the_search_is(tmp_path: Path) -> None:
    fingerprint = "f" * 64
    key = task(trials=3).key(fingerprint)
    assert key == task("another name", trials=30, training_hours=2.0).key(fingerprint)
    changes: list[dict[str, Any]] = [
        {"sampler_seed": 1},
        {"scheduler": None},
        {"start": [{"batch_size": 8}]},
        {"space": dict(reversed(SPACE.items()))},
        {"objectives": ["seconds"]},
        {"fixed": ("batch_size",)},
        {"base": BASE.model_copy(update={"epochs": 3})},
    ]
    keys = {task(**change).key(fingerprint) for change in changes}
    assert len(keys | {key, task().key("e" * 64)}) == len(changes) + 2


def test_infinite_losses_never_reach_the_ledger(tmp_path: Path) -> None:
    one = task(sampler=RANDOM, trials=1, scheduler=None)
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    trial = source.next()
    assert trial is not None
    first = point(BASE, 1)
    for epoch, nats in enumerate((math.inf, 5.0, math.nan, 6.0), 1):
        assert source.goes_on(trial, replace(first, epoch=epoch, valid_nats_per_token=nats))
    assert found(one, tmp_path)[0].curve == ((2, 5.0), (3, 5.0), (4, 5.0))


def test_cma_es_takes_one_objective_alone() -> None:
    with pytest.raises(ValueError, match="sampler cma_es searches for one objective alone"):
        task(sampler={"kind": "cma_es"}, objectives=["validation", "parameters"], scheduler=None)


def test_a_trial_that_was_to_stop_stops_even_if_it_trained_on_before_it_heard(tmp_path: Path) -> None:
    """As after Ray was lost: its checkpoint is of the epoch after which it was to stop."""
    space = {"optimizer.learning_rate": {"kind": "log_uniform", "low": 1.0, "high": 79.0}}
    one = task(space=space, sampler=RANDOM, scheduler={"kind": "asha", "grace_epochs": 2}, trials=12)
    shelf = Shelf(tmp_path)
    source = SearchTrialSource([one], shelf, Facts())  # type: ignore[arg-type]
    stopped = []
    while (trial := source.next()) is not None:

        def goes_on(evaluation: Evaluation, trial: Trial = trial) -> bool:
            if source.goes_on(trial, evaluation):
                return True
            stopped.append(source.goes_on(trial, point(trial.spec, evaluation.epoch + 1)))
            return False

        source.settled(trial, train(trial, shelf, goes_on))
    assert stopped and not any(stopped)
    assert {trial.state for trial in found(one, tmp_path)} == {"stopped", "complete"}
