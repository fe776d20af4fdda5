"""Population-based training: who goes on from whom, the same whatever ends first, and what a generation's end costs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lm.record import Evaluation, Record
from lm.spec import TrainSpec
from orchestrator.report.sections.search import search_table, seconds_of
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState, best
from orchestrator.search.population import Generations, history
from orchestrator.search.task import SearchTask
from orchestrator.search.trial_source import SearchTrialSource
from orchestrator.trials.trial import Trial
from tests.support.searching import SPACE, Facts, Shelf, events, found, made, state, task

POPULATION, EPOCHS = 6, [4, 4, 1]
SCHEDULER: dict[str, Any] = {"kind": "population", "population": POPULATION, "interval_epochs": 4, "share": 0.34}
CHANGING = {key: SPACE[key] for key in ("optimizer.learning_rate", "dropout.input")}


def population(
    space: dict[str, Any] = CHANGING, start: Sequence[dict[str, float]] = (), **scheduler: Any
) -> SearchTask:
    sampler = {"kind": "random"}
    return task(space=space, start=start, sampler=sampler, scheduler=SCHEDULER | scheduler, trials=None)


def bowl(spec: TrainSpec) -> float:
    if spec.optimizer.learning_rate > 80.0:
        return math.nan
    return math.log(spec.optimizer.learning_rate / 10.0) ** 2 + 4.0 * (spec.dropout.input - 0.3) ** 2


def curve_of(spec: TrainSpec) -> list[Evaluation]:
    """Each epoch takes a share off the loss, a larger one at the better values."""
    nats, curve = 6.0, list[Evaluation]()
    for name, prefix in spec.stages().items():
        here = spec.during(name)
        for _ in range(here.epochs):
            nats -= 0.5 * math.exp(-bowl(here)) if not math.isnan(nats + bowl(here)) else math.nan
            e = len(curve) + 1
            curve.append(Evaluation(name, e, e, e, 10.0 * e, 1.0, nats, nats, 1.0, 1.0, False, True))
        assert prefix.legs == spec.legs[: len(prefix.legs)]
    return curve


class Trainer:
    """Trains by the formula: a trial goes on where the one that it starts from ended."""

    def __init__(self, root: Path) -> None:
        self.shelf = Shelf(root)
        self.epochs = 0

    def source(self, *tasks: SearchTask) -> SearchTrialSource:
        return SearchTrialSource(tasks, self.shelf, Facts())  # type: ignore[arg-type]

    def train(self, source: SearchTrialSource, trial: Trial) -> Record:
        curve = curve_of(trial.spec)
        before = [] if trial.starts_from is None else self.shelf.curves[trial.starts_from]
        assert curve[: len(before)] == before
        lost = next((k for k, one in enumerate(curve) if math.isnan(one.valid_nats_per_token)), None)
        self.shelf.curves[trial.key] = curve[:lost]
        for point in curve[len(before) : lost]:
            self.epochs += 1
            assert source.goes_on(trial, point)
        self.shelf.records[trial.key] = made(trial, "complete" if lost is None else "diverged", curve)
        return self.shelf.records[trial.key]

    def search(self, *tasks: SearchTask, at_once: int = 1, seed: int = 0) -> list[list[SearchTrial]]:
        """To the end, so many trials at once, which end in any order."""
        source, running, chance = self.source(*tasks), list[Trial](), random.Random(seed)
        while True:
            while len(running) < at_once and (trial := source.next()) is not None:
                running.append(trial)
            if not running:
                return [found(one, self.shelf.root) for one in tasks]
            trial = running.pop(chance.randrange(len(running)))
            source.settled(trial, self.train(source, trial))


def generation(trials: list[SearchTrial], number: int) -> list[SearchTrial]:
    return trials[number * POPULATION : (number + 1) * POPULATION]


def test_the_worst_go_on_from_the_best_with_other_values(tmp_path: Path) -> None:
    one = population(resample_probability=0.0)
    (trials,) = Trainer(tmp_path).search(one)
    assert len(trials) == one.trials == 18 and one.generations == EPOCHS
    for g in (1, 2):
        before, now = generation(trials, g - 1), generation(trials, g)
        order = sorted((t for t in before if t.state != "diverged"), key=lambda t: t.valid_nats or 0.0)
        replaced = [t for t in before if t.state == "diverged"] + order[2:][-2:]
        for own, trial in zip(before, now, strict=True):
            if own not in replaced:
                assert (trial.parent, trial.values) == (own.number, own.values)
                continue
            donor = trials[trial.parent or 0]
            assert donor in order[:2]
            for key, value in trial.values.items():
                low, high = CHANGING[key]["low"], CHANGING[key]["high"]
                assert value in [min(high, max(low, donor.values[key] * factor)) for factor in (0.8, 1.2)]
    assert best(trials) in generation(trials, 2)


def test_a_member_has_the_legs_of_those_it_goes_on_from(tmp_path: Path) -> None:
    one = population()
    (trials,) = Trainer(tmp_path).search(one)
    last = generation(trials, 2)[-1]
    spec, _ = Generations(one, trials).spec(last.values, last.parent)
    parent = trials[last.parent or 0]
    shorter, _ = Generations(one, trials).spec(parent.values, parent.parent)
    assert spec is not None and shorter is not None
    assert [spec.epochs, *(leg.epochs for leg in spec.legs)] == EPOCHS
    assert spec.stages()["train-2"] == shorter
    assert spec.legs[1].optimizer.learning_rate == last.values["optimizer.learning_rate"]
    assert spec.legs[0].dropout.input == parent.values["dropout.input"]


def test_a_history_of_many_generations_is_found() -> None:
    trials = [
        SearchTrial(n, {"n": n}, str(n), "complete", n, 1.0, 1.0, None, None, parent=n - 1 if n else None)
        for n in range(5000)
    ]
    assert [values["n"] for values in history(trials, {"n": 5000}, 4999)] == list(range(5001))


@pytest.mark.parametrize("at_once", [2, 5, 12])
def test_the_same_whatever_ends_first(at_once: int, tmp_path: Path) -> None:
    asked = []
    for name, several in (("one", 1), ("several", at_once)):
        Trainer(tmp_path / name).search(population(), at_once=several, seed=at_once)
        asked.append([event for event in events(population(), tmp_path / name) if "asked" in event])
    assert asked[0] == asked[1]


def test_a_generation_waits_for_its_last_trial(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    source = trainer.source(population())
    first = [source.next() for _ in range(POPULATION)]
    assert source.next() is None
    for trial in first[1:]:
        assert trial is not None
        source.settled(trial, trainer.train(source, trial))
    assert source.next() is None
    assert first[0] is not None
    source.settled(first[0], trainer.train(source, first[0]))
    assert source.next() is not None


@pytest.mark.parametrize("after", [1, POPULATION, POPULATION + 2, 17])
def test_a_killed_search_goes_on_as_if_it_had_not_been(after: int, tmp_path: Path) -> None:
    Trainer(tmp_path / "whole").search(population())
    trainer = Trainer(tmp_path / "killed")
    source = trainer.source(population())
    for _ in range(after):
        trial = source.next()
        assert trial is not None
        source.settled(trial, trainer.train(source, trial))
    assert trainer.source(population()).next() is not None  # asked, and never begun
    trainer.search(population())
    assert events(population(), tmp_path / "killed") == events(population(), tmp_path / "whole")


def test_nothing_is_trained_twice_and_the_table_counts_it_once(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    (trials,) = trainer.search(population())
    assert {trial.epochs for trial in generation(trials, 2)} == {sum(EPOCHS)}
    search = SearchState(population(), tmp_path / "none", tuple(trials))
    (row,) = search_table([search])
    assert row["Epochs trained"] == str(trainer.epochs) == str(POPULATION * sum(EPOCHS))
    assert seconds_of(search) == 10.0 * trainer.epochs
    assert row["How they ended"] == f"{POPULATION} complete, {2 * POPULATION} of earlier generations"


def test_what_diverges_is_replaced_and_all_of_it_is_the_end(tmp_path: Path) -> None:
    high = {"optimizer.learning_rate": {"kind": "log_uniform", "low": 60.0, "high": 100.0}}
    (trials,) = Trainer(tmp_path / "some").search(population(high, resample_probability=1.0))
    lost = [trial.number for trial in trials if trial.state == "diverged"]
    assert len(lost) > 2 and not {trial.parent for trial in trials} & set(lost)
    ruinous = {"optimizer.learning_rate": {"kind": "log_uniform", "low": 90.0, "high": 100.0}}
    (trials,) = Trainer(tmp_path / "all").search(population(ruinous))
    assert len(trials) == POPULATION and state(population(ruinous), trials).ended
    assert best(trials) is None and Generations(population(ruinous), trials).extinct


def test_a_schedule_beats_the_values_that_it_began_with(tmp_path: Path) -> None:
    rate = "optimizer.learning_rate"
    start = [{rate: 40.0 + 5.0 * k} for k in range(POPULATION)]
    one = population({rate: SPACE[rate]}, start=start, interval_epochs=1)
    (trials,) = Trainer(tmp_path).search(one)
    chosen = best(trials)
    assert chosen is not None and chosen.valid_nats is not None
    assert [trial.values for trial in trials[:POPULATION]] == start
    held = [curve_of(spec) for values in start if (spec := one.drawn(values).spec) is not None]
    assert chosen.valid_nats < min(curve[-1].valid_nats_per_token for curve in held)
