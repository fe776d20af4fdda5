"""The trials of one search or several: values are asked for, trained, judged while they train, and told."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from lm.record import Evaluation, Record
from lm.spec import TrainSpec, decoder_parameters, stage_keys, vocabulary_misfits
from orchestrator.search.events import SearchTrialStatus
from orchestrator.search.ledger import Ledger, budget_spent, ledger_path
from orchestrator.search.population import history, is_last, next_member, spec_of, waits
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import Objective
from orchestrator.trials.facts import Facts
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, stage_epochs

_log = logging.getLogger(__name__)


class SearchTrialSource:
    """Searches several tasks in turns, so that all get their trials alike; each goes on from its ledger.

    With one trial at a time a search is the same to the bit each time, killed in between or not. With several, what
    is asked depends on the order in which trials end; the ledger keeps it. Time as an objective differs anyway.
    """

    def __init__(self, tasks: Sequence[SearchTask], records: Records, facts: Facts) -> None:
        self._records, self._facts = records, facts
        by_key = {task.key(facts.fingerprint(task.base.corpus)): task for task in reversed(tasks)}
        self._searches = [_Search(task, records, facts) for task in reversed(by_key.values())]
        self._to_start = [(search, n) for search in self._searches for n in search.running]
        self._under_way: dict[str, tuple[_Search, int]] = {}
        self._waiting: list[tuple[_Search, int]] = []  # for a trial of the same spec that is under way

    def next(self) -> Trial | None:
        """A trial that ran when the last command ended, or a new one; None while each has to wait for another."""
        while True:
            if self._to_start:
                search, number = self._to_start.pop(0)
            elif (search_or_none := self._next_to_ask()) is not None:
                search = search_or_none
                if (asked := search.ask()) is None:
                    continue
                number = asked
            else:
                return None
            if (trial := self._start(search, number)) is not None:
                return trial

    def ended(self) -> bool:
        """Whether every search has asked for all its trials, and none waits."""
        return not self._to_start and not self._waiting and all(search.asked_enough() for search in self._searches)

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the scheduler says, by the best validation loss so far; the last epoch is never taken away."""
        search, number = self._under_way[trial.key]
        return search.evaluated(number, trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the search. Without a record, and not stopped by it, a trial runs on with the next command."""
        search, number = self._under_way.pop(trial.key)
        if search.ledger.trials[number].stopping:
            search.end(number, "stopped")
        elif record is not None:
            search.settle(number, trial, record, self._records)
        mine = [waiting for waiting in self._waiting if waiting[0].ledger.trials[waiting[1]].key == trial.key]
        self._waiting = [waiting for waiting in self._waiting if waiting not in mine]
        self._to_start += mine

    def _next_to_ask(self) -> _Search | None:
        """The search with the fewest trials, the first of equals, but none that waits: it might ask for ever."""
        waiting = [search for search, _ in self._waiting]
        free = [one for one in self._searches if one not in waiting and not one.waits() and not one.asked_enough()]
        return min(free, key=lambda search: len(search.ledger.trials), default=None)

    def _start(self, search: _Search, number: int) -> Trial | None:
        """The trial, unless it ends at once: no spec has its values, its record exists, its curve says stop."""
        found = search.ledger.trials[number]
        spec, reason = search.spec(number)
        if found.stopping or spec is None:
            search.end(number, "stopped" if found.stopping else "failed", reason)
            return None
        trial = search.trial(number, spec)
        if trial.key in self._under_way:
            self._waiting.append((search, number))
            return None
        same = (other for other in search.ledger.trials if other.key == trial.key)
        failed = next((other for other in same if other.state == "failed"), None)
        record = self._record(trial)
        if record is not None and record.status != "failed":
            search.settle(number, trial, record, self._records)
        elif failed is not None:
            search.end(number, "failed", failed.reason)
        elif not all(search.evaluated(number, trial, point) for point in self._records.curve(trial)):
            search.end(number, "stopped")
        else:
            self._under_way[trial.key] = search, number
            return trial
        return None

    def _record(self, trial: Trial) -> Record | None:
        try:
            return self._records.find(trial)
        except (OSError, ValueError) as error:
            _log.warning("%s: %s", trial.title, error)  # it trains again, and says then what is wrong
            return None


class _Search:
    """One task with its ledger and its study, which always know the same."""

    def __init__(self, task: SearchTask, records: Records, facts: Facts) -> None:
        from orchestrator.search.optuna import Study  # most of a second to import, and plans need none

        self.task, self._facts = task, facts
        self._fingerprint = facts.fingerprint(task.base.corpus)
        self._study = Study(task, sum(stage_epochs(task.base).values()))
        self._exhausted = False
        self.ledger = Ledger(ledger_path(records.root, task.key(self._fingerprint)), task, self._fingerprint)
        for event in self.ledger.events:
            match event:
                case {"asked": _, "values": values}:
                    self._study.asked(values)
                case {"evaluated": int(n), "epoch": epoch, "nats": nats}:
                    self._study.reported(n, epoch, nats)
                case {"ended": int(n), "state": state, "objectives": objectives}:
                    self._study.ended(n, state, objectives)

    @property
    def running(self) -> list[int]:
        """Trials that have not ended, in the order in which they were asked; none beyond the number wanted."""
        wanted = self.ledger.trials[: self.task.trials]
        return [trial.number for trial in wanted if trial.state == "running"]

    def asked_enough(self) -> bool:
        """Whether the budget is spent, or the grid is known to be exhausted."""
        return self._exhausted or budget_spent(self.task, self.ledger.trials)

    def waits(self) -> bool:
        """Whether nothing can be asked before a generation has ended."""
        return bool(self.task.population) and waits(self.task, self.ledger.trials)

    def ask(self) -> int | None:
        """The number of a new trial; None where a grid has no more, or a generation has left no one to go on from."""
        found, parent = self.ledger.trials, None
        if 0 < self.task.population <= len(found):
            values, parent = next_member(self.task, found) or (None, None)
        else:
            values = self._study.next_values()
        if values is None:
            self._exhausted = True
            return None
        spec, _ = self._fitting(history(found, values, parent))
        event = {"asked": len(found), "values": values, "key": None if spec is None else self._key(spec)}
        self.ledger.append(event if parent is None else event | {"parent": parent})
        self._study.asked(values)
        return len(found) - 1

    def spec(self, number: int) -> tuple[TrainSpec | None, str | None]:
        """The spec of a trial; where none has its values, or its head does not fit the vocabulary, why."""
        asked = self.ledger.trials[number]
        return self._fitting(history(self.ledger.trials, asked.values, asked.parent))

    def _fitting(self, values: Sequence[Mapping[str, Any]]) -> tuple[TrainSpec | None, str | None]:
        spec, reason = spec_of(self.task, values)
        if spec is not None:
            size = self._facts.vocabulary_size(spec.corpus)
            reason = next(iter(vocabulary_misfits(spec.head, size)), None)
        return (None if reason else spec), reason

    def trial(self, number: int, spec: TrainSpec) -> Trial:
        """The trial that trains this spec."""
        parent = self.ledger.trials[number].parent
        return Trial(
            variant=self.task.variant,
            change=self.task.in_words(self.ledger.trials[number].values),
            seed=spec.seed,
            spec=spec,
            key=self._key(spec),
            parameters=self._facts.parameters(spec),
            starts_from=None if parent is None else self.ledger.trials[parent].key,
            number=number,
            opens_test=False,
        )

    def evaluated(self, number: int, trial: Trial, evaluation: Evaluation) -> bool:
        """Whether the trial goes on; one that was to stop does not, whatever it trained before it heard of that."""
        found = self.ledger.trials[number]
        if found.stopping or evaluation.epoch <= found.epochs:
            return not found.stopping
        nats = _lower(found.valid_nats, evaluation.valid_nats_per_token)
        is_last = evaluation.epoch >= sum(stage_epochs(trial.spec).values())
        goes_on = self._study.reported(number, evaluation.epoch, nats) or is_last
        self._write(number, evaluation, nats, goes_on)
        return goes_on

    def settle(self, number: int, trial: Trial, record: Record, records: Records) -> None:
        """The trial has its record. What of its curve was not heard is told first, for others to be judged by."""
        for point in records.curve(trial):
            found = self.ledger.trials[number]
            if point.epoch > found.epochs:
                nats = _lower(found.valid_nats, point.valid_nats_per_token)
                self._study.reported(number, point.epoch, nats)
                self._write(number, point, nats, goes_on=True)
        interim = record.status == "complete" and self.task.population and not is_last(self.task, number)
        self.end(number, "stopped" if interim else record.status, record.reason, record)

    def end(
        self, number: int, state: SearchTrialStatus, reason: str | None = None, record: Record | None = None
    ) -> None:
        """The trial is over."""
        found = self.ledger.trials[number]
        objectives: list[float] | None = None
        nats, seconds = found.valid_nats, found.seconds
        if record is not None and record.status == "complete":
            nats, seconds = record.stages[-1].valid.nats_per_token, record.seconds
        if record is not None and state == "complete":
            objectives = [self._objective(objective, record) for objective in self.task.objectives]
        event = {"ended": number, "state": state, "nats": nats, "objectives": objectives, "epochs": found.epochs}
        self.ledger.append(event | {"seconds": seconds, "reason": reason})
        self._study.ended(number, state, objectives)

    def _write(self, number: int, evaluation: Evaluation, nats: float | None, goes_on: bool) -> None:
        event = {"evaluated": number, "epoch": evaluation.epoch, "nats": nats, "seconds": evaluation.seconds}
        self.ledger.append(event | {"goes_on": goes_on})

    def _key(self, spec: TrainSpec) -> str:
        return list(stage_keys(spec, self._fingerprint).values())[-1]

    def _objective(self, objective: Objective, record: Record) -> float:
        match objective:
            case "validation":
                return record.stages[-1].valid.nats_per_token
            case "parameters":
                return float(record.parameters)
            case "decoder_parameters":
                spec = record.spec
                return float(decoder_parameters(spec.model, spec.head, record.corpus.vocabulary_size))
            case "seconds":
                return sum(stage.train_seconds for stage in record.stages)


def _lower(best: float | None, nats: float) -> float | None:
    """The best loss so far; None where none was finite."""
    if not math.isfinite(nats):
        return best
    return nats if best is None else min(best, nats)
