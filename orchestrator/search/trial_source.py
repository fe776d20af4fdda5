"""The trials of one search or several: values are asked for, trained, judged while they train, and recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lm.record import Evaluation, Record
from lm.spec import decoder_parameters, trial_key, vocabulary_misfits
from orchestrator.search.events import Asked, Ended, Evaluated, SearchEnd
from orchestrator.search.ledger import Ledger, SearchState, ledger_path, number_within_budget
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import Objective
from orchestrator.trials.plan import Facts
from orchestrator.trials.records import Records, ends_the_command
from orchestrator.trials.trial import Trial


class SearchTrialSource:
    """Searches several tasks in turns, so that all get their trials alike; each continues its ledger.

    With one trial at a time a search is the same to the bit each time, killed in between or not. With several, what
    is asked depends on the order in which trials end; the ledger keeps it. `fetch` is called before a trial is looked
    up in the records: with a storage, its last epochs may not have come from there yet.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        records: Records,
        facts: Facts,
        fetch: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        self._records, self._fetch = records, fetch
        by_key = {task.key(facts.fingerprint(task.base.corpus)): task for task in reversed(tasks)}
        self._searches = [_Search(task, records, facts) for task in reversed(by_key.values())]
        self._to_start = [
            (search, trial.number)
            for search in self._searches
            for trial in search.ledger.trials[: search.within_budget]
            if trial.state == "running"
        ]
        self._under_way: dict[str, tuple[_Search, int]] = {}

    def may_start(self) -> bool:
        """It may at any time."""
        return True

    def next(self) -> Trial | None:
        """A trial that ran when the last command ended, or a new one; None while each has to wait for another."""
        while True:
            # One waits while another with the same key is under way; its search might ask for the same for ever.
            blocked = [(s, number) for s, number in self._to_start if s.ledger.trials[number].key in self._under_way]
            searches_blocked = {search for search, _ in blocked}
            if ready := next((pair for pair in self._to_start if pair not in blocked), None):
                self._to_start.remove(ready)
                if (trial := self._start(*ready)) is not None:
                    return trial
                continue
            free = [search for search in self._searches if search.can_ask() and search not in searches_blocked]
            if not free:
                return None
            search = min(free, key=lambda search: len(search.ledger.trials))  # the first of equals
            self._to_start.append((search, search.ask()))

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the scheduler says, by the best validation loss so far; the last epoch is never taken away."""
        search, number = self._under_way[trial.key]
        return search.evaluated(number, trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Record the end; one that left no record, or failed as others would too, runs on with the next command."""
        search, number = self._under_way.pop(trial.key)
        if search.ledger.trials[number].stopping:
            search.end(number, "stopped")
        elif record is not None and not ends_the_command(record):
            search.settle(number, trial, record)

    def _start(self, search: _Search, number: int) -> Trial | None:
        """The trial, unless it ends at once: no spec has its values, its record exists, its curve says stop."""
        asked = search.ledger.trials[number]
        trial, reason = search.trial(number, asked.values, asked.parent)
        if asked.stopping or trial is None:
            search.end(number, "stopped" if asked.stopping else "failed", reason)
            return None
        failed = next((t for t in search.ledger.trials if t.key == trial.key and t.state == "failed"), None)
        self._fetch(trial)
        record = self._records.find(trial)
        if record is not None and record.status != "failed":
            search.settle(number, trial, record)
        elif failed is not None:
            search.end(number, "failed", failed.reason)
        elif not all(search.evaluated(number, trial, point) for point in self._records.curve(trial)):
            search.end(number, "stopped")
        else:
            self._under_way[trial.key] = search, number
            return trial
        return None


class _Search:
    """One task with its ledger and its study, which always know the same."""

    def __init__(self, task: SearchTask, records: Records, facts: Facts) -> None:
        from orchestrator.search.optuna import Study  # most of a second to import, and plans need none

        self.task, self._records, self._facts = task, records, facts
        self._fingerprint = facts.fingerprint(task.base.corpus)
        self._study = Study(task)
        path = ledger_path(records.root, task.key(self._fingerprint))
        self.ledger = Ledger(path, task, self._fingerprint)
        self.within_budget = number_within_budget(task, self.ledger.events)
        went_on = self.within_budget < len(self.ledger.trials)
        self.state = SearchState(task, path, self.ledger.trials, went_on)  # of the ledger's own list, which grows
        for event in self.ledger.events:
            self._study.apply(event)

    def can_ask(self) -> bool:
        """Whether a trial can be asked for now: not if that was enough, or a generation has to end first."""
        return not (self.state.asked_enough or self.state.generations.waiting)

    def ask(self) -> int:
        """The number of a new trial."""
        number, parent = len(self.ledger.trials), None
        if 0 < self.task.population <= number:  # of a later generation
            values, parent = self.state.generations.next_member()
        else:
            values = self._study.next_values()
        trial, _ = self.trial(number, values, parent)
        self._write(Asked(asked=number, values=values, key=None if trial is None else trial.key, parent=parent))
        return number

    def trial(self, number: int, values: Mapping[str, Any], parent: int | None) -> tuple[Trial | None, str | None]:
        """As `_trial_of`."""
        return _trial_of(self.state, number, values, parent, self._facts)

    def evaluated(self, number: int, trial: Trial, evaluation: Evaluation, *, judged: bool = True) -> bool:
        """Whether the trial goes on; one that was to stop does not, whatever it trained before it heard of that."""
        before = self.ledger.trials[number]
        if before.stopping or evaluation.epoch <= before.epochs:
            return not before.stopping
        losses = [nats for nats in (before.valid_nats, evaluation.valid_nats_per_token) if nats is not None]
        nats = min(filter(math.isfinite, losses), default=None)
        epoch, is_last = evaluation.epoch, evaluation.epoch >= trial.spec.most_epochs
        goes_on = self._study.reported(number, epoch, nats) or is_last or not judged
        event = Evaluated(evaluated=number, epoch=epoch, nats=nats, seconds=evaluation.seconds, goes_on=goes_on)
        self.ledger.append(event)
        return goes_on

    def settle(self, number: int, trial: Trial, record: Record) -> None:
        """The trial has its record. The rest of its curve is written first, for others to be judged by."""
        for point in self._records.curve(trial):
            self.evaluated(number, trial, point, judged=False)
        before_last = number < self.task.population * (len(self.task.generations) - 1)  # not trained for all epochs
        state = "stopped" if before_last and record.status == "complete" else record.status
        self.end(number, state, record.reason, record)

    def end(self, number: int, state: SearchEnd, reason: str | None = None, record: Record | None = None) -> None:
        """The trial is over."""
        trial = self.ledger.trials[number]
        nats, seconds, objectives = trial.valid_nats, trial.seconds, None
        if record is not None and record.status == "complete":
            nats, seconds = record.stages[-1].valid.nats_per_token, record.seconds
            if state == "complete":
                objectives = tuple(map(_objectives(record).__getitem__, self.task.objectives))
        about: dict[str, Any] = {"nats": nats, "objectives": objectives, "epochs": trial.epochs, "seconds": seconds}
        self._write(Ended(ended=number, state=state, reason=reason, **about))

    def _write(self, event: Asked | Ended) -> None:
        self.ledger.append(event)
        self._study.apply(event)


def trials_so_far(search: SearchState) -> list[Trial]:
    """The trials that a search has asked for, those with one key once."""
    facts, trials = Facts(), list[Trial]()
    for asked in search.distinct:
        trial, _ = _trial_of(search, asked.number, asked.values, asked.parent, facts)
        if trial is not None:
            trials.append(replace(trial, stopped_early=asked.state == "stopped"))
    return trials


def _trial_of(
    search: SearchState, number: int, values: Mapping[str, Any], parent: int | None, facts: Facts
) -> tuple[Trial | None, str | None]:
    """The trial to train; None and the reason if no spec has its values, or its head does not fit the corpus."""
    spec, reason = search.generations.spec(values, parent)
    if spec is not None:
        reason = next(iter(vocabulary_misfits(spec.head, facts.vocabulary_size(spec.corpus))), None)
    if spec is None or reason is not None:
        return None, reason
    trial = Trial(
        variant=search.task.title,
        change=search.task.in_words(values),
        seed=spec.seed,
        spec=spec,
        key=trial_key(spec, facts.fingerprint(spec.corpus)),
        parameters=facts.parameters(spec),
        starts_from=None if parent is None else search.trials[parent].key,
        number=number,
        opens_test=False,
    )
    return trial, None


def _objectives(record: Record) -> dict[Objective, float]:
    decoder = decoder_parameters(record.spec.model, record.spec.head, record.corpus.vocabulary_size)
    return {
        "validation": record.stages[-1].valid.nats_per_token,
        "parameters": float(record.parameters),
        "decoder_parameters": float(decoder),
        "seconds": sum(stage.train_seconds for stage in record.stages),
    }
