"""A search's ledger on disk, `runs/.searches/<task key>.jsonl`, one event a line, and where the search stands by it.

{"task": {...}}                                       first: all that the task's key hashes
{"asked": n, "values": {...}, "key": "<trial key>"}   key null if no spec has these values; of a population also
                                                      "parent": number of the trial from whose weights it continues
{"evaluated": n, "epoch": e, "nats": best so far, "seconds": s, "goes_on": true}
{"ended": n, "state": "complete", "nats": x, "objectives": [...], "epochs": e, "seconds": s, "reason": null}
"""

from __future__ import annotations

import json
import logging
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from lm.files import check_regular, write_text
from lm.spec import TrainSpec
from orchestrator.search.events import EVENT, Asked, Event, SearchTrial, apply
from orchestrator.search.population import Generations
from orchestrator.search.task import SearchTask
from orchestrator.sweep.override import override
from orchestrator.trials.disk import set_aside
from orchestrator.words import counted

FEWEST_FOR_IMPORTANCE = 20
"""Complete trials below which nothing is said of how much each value matters."""

MOST_FAILED_IN_A_ROW = 100
"""A search bounded by hours alone ends after this many: trials that fail take no training time."""

_log = logging.getLogger(__name__)


def ledger_path(runs: Path, key: str) -> Path:
    """The path of the ledger of the task with this key."""
    return runs / ".searches" / f"{key}.jsonl"


def best(trials: Iterable[SearchTrial]) -> SearchTrial | None:
    """The complete trial with the lowest validation loss, the first of equals; None while none is complete."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.valid_nats is not None]
    return min(complete, key=lambda trial: trial.valid_nats or 0.0, default=None)


def front(trials: Sequence[SearchTrial]) -> list[SearchTrial]:
    """The Pareto front of the complete trials by the first objective: no other is as good in every one.

    Of equal trials it has the first.
    """
    complete = {trial.objectives: trial for trial in reversed(trials) if trial.state == "complete" and trial.objectives}
    is_beaten = {
        mine: any(other != mine and all(map(operator.le, other, mine)) for other in complete) for mine in complete
    }
    return [complete[mine] for mine in sorted(complete) if not is_beaten[mine]]


@dataclass(frozen=True)
class SearchState:
    """A search and its trials so far."""

    task: SearchTask
    ledger: Path
    trials: Sequence[SearchTrial]
    went_on: bool = False
    """Whether the ledger has further trials, for which another sweep, or an earlier version of this one, had budget."""

    @property
    def distinct(self) -> list[SearchTrial]:
        """The trials without repetitions: of those with one key the one that came furthest."""
        kept: dict[str, SearchTrial] = {}
        for trial in self.trials:
            key = trial.key or str(trial.number)
            other = kept.setdefault(key, trial)
            if (trial.epochs, trial.state == "complete") > (other.epochs, other.state == "complete"):
                kept[key] = trial
        return sorted(kept.values(), key=lambda trial: trial.number)

    @property
    def ended(self) -> bool:
        """Whether nothing runs and nothing more is asked."""
        return all(trial.state != "running" for trial in self.trials) and self.asked_enough

    @property
    def asked_enough(self) -> bool:
        """Whether as many trials were asked as wanted, the hours are spent, or no member of a population is left."""
        trials, hours = self.task.trials, self.task.training_hours
        if self.went_on or self.generations.extinct or (trials is not None and len(self.trials) >= trials):
            return True
        if hours is None:
            return False
        last = [trial.state for trial in self.trials[-MOST_FAILED_IN_A_ROW:]]
        all_failed = last == ["failed"] * MOST_FAILED_IN_A_ROW
        return all_failed or sum(trial.seconds for trial in self.trials) >= 3600.0 * hours

    @property
    def generations(self) -> Generations:
        """The trials by generation of a population."""
        return Generations(self.task, self.trials)

    @property
    def best(self) -> SearchTrial | None:
        """The complete trial with the lowest validation loss, None while none is complete."""
        return best(self.trials)

    @property
    def best_so_far(self) -> tuple[float, int] | None:
        """The lowest validation perplexity so far, of a population in any generation, and its trial's number."""
        ends = ("complete", "stopped") if self.task.population else ("complete",)
        scores = [
            (score, t.number) for t in self.trials if t.state in ends and (score := t.valid_perplexity) is not None
        ]
        return min(scores, default=None)

    @property
    def best_spec(self) -> TrainSpec | None:
        """What the best trial trained, of a population with its whole schedule; None while none is complete."""
        best = self.best
        return None if best is None else self.generations.spec(best.values, best.parent)[0]

    @property
    def misfits(self) -> dict[str, str]:
        """Why changes do not fit what was found, such as the dropout of a head that it does not have, by variant."""
        base = self.best_spec
        wrong = {} if base is None else {name: override(base, c)[1] for name, c in self.task.built_on.items()}
        return {name: "; ".join(map(str, problems)) for name, problems in wrong.items() if problems}


def read_search_trials(path: Path) -> list[SearchTrial]:
    """The trials of a ledger, none if there is none; a damaged line and all after it are left out with a warning."""
    return _read_warned(path)[1]


def read_search(path: Path, task: SearchTask) -> SearchState:
    """Where a search stands by its ledger, within the budget of this task."""
    events, trials = _read_warned(path)
    within = number_within_budget(task, events)
    return SearchState(task, path, tuple(trials[:within]), went_on=within < len(trials))


def number_within_budget(task: SearchTask, events: Iterable[Event]) -> int:
    """How many trials were asked for until this task had asked for enough."""
    state = SearchState(task, Path(), trials := list[SearchTrial]())
    for event in events:
        if isinstance(event, Asked) and state.asked_enough:
            break
        apply(event, trials)
    return len(trials)


def stopped_early(runs: Path) -> dict[str, int]:
    """The trials that searches stopped, by key, with the most epochs; not those that another search has under way."""
    trials = [trial for path in sorted((runs / ".searches").glob("*.jsonl")) for trial in read_search_trials(path)]
    running = {trial.key for trial in trials if trial.state == "running"}
    stopped = sorted((t for t in trials if t.state == "stopped"), key=lambda trial: trial.epochs)
    return {trial.key: trial.epochs for trial in stopped if trial.key is not None and trial.key not in running}


class Ledger:
    """An open ledger: its `events` when it was opened, its `trials` at any time. Every new line is on the disk.

    Opening it cuts off a last line that was torn because the writer was killed, or the disk was full. A damaged ledger
    is kept in `.old/`, and the lines before the damage take its place at once, so that a kill loses none of them.
    """

    def __init__(self, path: Path, task: SearchTask, fingerprint: str) -> None:
        self._path = path
        whole, self.events, self.trials, damage = _read(path)
        if damage is not None:
            kept = set_aside(path, path.parent.parent, copied=bool(whole))
            _log.warning("%s; the damaged ledger is kept as %s", damage, kept)
        write_text(path, whole or json.dumps({"task": task.explain(fingerprint)}, allow_nan=False) + "\n")

    def append(self, event: Event) -> None:
        """Write one event; after an OSError the ledger has to be opened again."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event.model_dump(exclude_defaults=True), allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        apply(event, self.trials)


def _read_warned(path: Path) -> tuple[list[Event], list[SearchTrial]]:
    _, events, trials, damage = _read(path)
    if damage is not None:
        _log.warning("%s", damage)
    return events, trials


def _read(path: Path) -> tuple[str, list[Event], list[SearchTrial], str | None]:
    """A ledger up to the first damage: its whole lines, the events after the first one, their trials; the damage."""
    whole, events, trials = "", list[Event](), list[SearchTrial]()
    try:
        check_regular(path)
        lines = path.read_bytes().split(b"\n")[:-1]  # the last may be torn; a large search has a large ledger
    except FileNotFoundError:
        return whole, events, trials, None
    except OSError as error:
        return whole, events, trials, f"{path}: cannot be read, so that its search begins again: {error.strerror}"
    for number, data in enumerate(lines, 1):
        try:
            line = data.decode()
            if number > 1:
                event = EVENT.validate_json(line)
                apply(event, trials)
                events.append(event)
            elif not line.startswith('{"task": '):
                raise ValueError("expected the task of the search")
        except ValueError as error:
            problem = "expected an event" if isinstance(error, ValidationError | UnicodeDecodeError) else str(error)
            left_out = counted(len(lines) - number + 1, "line")
            return whole, events, trials, f"{path}:{number}: {problem}; {left_out} left out, from this one on"
        whole += line + "\n"
    return whole, events, trials, None
