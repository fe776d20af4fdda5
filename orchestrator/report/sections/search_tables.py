"""What searches found, as rows of plain values."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.record import perplexity
from orchestrator.search.events import SearchTrial, SearchTrialStatus
from orchestrator.search.ledger import SearchState, best
from orchestrator.search.population import history, own_share
from orchestrator.sweep.searches import Change, Choice, Dimension, Integer, LogUniform, Objective
from orchestrator.words import NOTHING, duration, number

OBJECTIVES: dict[Objective, tuple[str, Callable[[float], str]]] = {
    "validation": ("Validation", lambda nats: number(perplexity(nats))),
    "parameters": ("Parameters", "{:,.0f}".format),
    "decoder_parameters": ("Decoder parameters", "{:,.0f}".format),
    "seconds": ("Training time", duration),
}
_EDGE = 0.02
"""A share of a range (of its logarithm, if it is searched on a log scale) within which a value lies at its edge."""
FEWEST_COMPLETE = 3
"""Complete trials of an option below which little is known of what it reaches with values that suit it."""
_ENDS: dict[SearchTrialStatus, str] = {
    "complete": "complete",
    "stopped": "stopped early",
    "diverged": "diverged",
    "failed": "failed",
    "running": "under way",
}


@dataclass(frozen=True)
class SearchTrialRow:
    """One trial of a search."""

    search: SearchState
    trial: SearchTrial

    @property
    def objectives(self) -> list[str]:
        """What it reached in each objective of the search."""
        shown = (OBJECTIVES[name][1] for name in self.search.task.objectives)
        return [show(value) for show, value in zip(shown, self.trial.objectives or (), strict=False)]

    @property
    def values(self) -> str:
        """Its values; of a schedule those from each epoch on that changed some: `from epoch 7: dropout.input 0.2`."""
        task, trial = self.search.task, self.trial
        if not task.population:
            return task.in_words(trial.values)
        begins = itertools.accumulate(task.generations, initial=1)
        legs = zip(begins, history(self.search.trials, trial.values, trial.parent), strict=False)
        before: Mapping[str, Any] = {}
        words = []
        for begin, values in legs:
            changed = {key: value for key, value in values.items() if before.get(key) != value}
            words += [f"from epoch {begin}: {task.in_words(changed)}"] if changed else []
            before = values
        return "; ".join(words)


@dataclass(frozen=True)
class SearchRow:
    """One search: its budget, how its trials ended, and the best by validation, None if no trial was complete."""

    search: SearchState

    @property
    def epochs(self) -> int:
        """Epochs trained; of a population, each once."""
        return sum(own_share(self.search.trials, trial)[0] for trial in self.search.trials)

    @property
    def seconds(self) -> float:
        """Seconds of training."""
        return sum(own_share(self.search.trials, trial)[1] for trial in self.search.trials)

    @property
    def ends(self) -> str:
        """How many trials ended in which way."""
        words = _ENDS | ({"stopped": "of earlier generations"} if self.search.task.population else {})
        counts = Counter(trial.state for trial in self.search.trials)
        return ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state]) or NOTHING

    @property
    def best(self) -> SearchTrialRow | None:
        """The best trial by validation."""
        return None if self.search.best is None else SearchTrialRow(self.search, self.search.best)

    @property
    def edges(self) -> list[str]:
        """The searched paths whose best value lies at an end of its range."""
        values = self.search.best.values if self.search.best else {}
        drawn = self.search.task.drawn(values) if values else {}
        return [key for key, dimension in drawn.items() if _at_edge(dimension, values[key])]


@dataclass(frozen=True)
class OptionRow:
    """What became of the trials with one option of a choice; the best by validation."""

    choice: str
    option: str
    states: Mapping[SearchTrialStatus, int]
    trials: int
    best: SearchTrial | None
    is_rare: bool


def option_rows(searches: Sequence[SearchState]) -> list[OptionRow]:
    """A row for every option of every choice; none of a population, in which an option that dies out was tried too."""
    searches = [search for search in searches if not search.task.population]
    options = {
        (key, option): None
        for key in dict.fromkeys(key for search in searches for key in search.task.space)
        for search in searches
        if isinstance(dimension := search.task.space.get(key), Choice | Change)
        for option in dimension.options
    }
    rows = []
    for key, option in options:
        tried = [trial for search in searches for trial in search.trials if trial.values.get(key) == option]
        states = Counter(trial.state for trial in tried)
        fewest = max(FEWEST_COMPLETE, *(search.task.min_trials_per_option.get(key, 0) for search in searches))
        rows.append(OptionRow(key, option, states, len(tried), best(tried), states["complete"] < fewest))
    return rows


def _at_edge(dimension: Dimension, value: Any) -> bool:
    match dimension:
        case Choice() | Change():
            return False
        case Integer():
            return value in (dimension.low, dimension.high)
    low, high = dimension.low, dimension.high
    if isinstance(dimension, LogUniform):
        low, high, value = math.log(low), math.log(high), math.log(value)
    share = (value - low) / (high - low)
    return bool(share < _EDGE or share > 1 - _EDGE)
