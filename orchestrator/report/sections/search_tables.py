"""What searches found, as rows of plain values."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.record import perplexity
from lm.spec import Part
from orchestrator.search.events import SearchTrial, SearchTrialStatus
from orchestrator.search.ledger import SearchState, best
from orchestrator.search.population import history, own_share
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import Dimension, Integer, LogUniform, Objective, OneOf
from orchestrator.words import NOTHING, duration, number

_EDGE = 0.02
"""A share of a range (of its logarithm, if it is searched on a log scale) within which a value lies at its edge."""
FEWEST_COMPLETE = 3
"""Complete trials of an option below which little is known of what it reaches with values that suit it."""
_NUISANCE = ("optimizer", "dropout", "penalties", "bptt", "finetune")
"""Parts whose numbers a reader would suspect of favouring one variant, if they were left as they are."""


ENDS: dict[SearchTrialStatus, str] = {
    "complete": "complete",
    "stopped": "stopped early",
    "diverged": "diverged",
    "failed": "failed",
    "running": "under way",
}
"""How a trial of a search ended, in words."""


@dataclass(frozen=True)
class SearchRow:
    """One search: its budget, how its trials ended, and the best by validation, None if no trial was complete.

    `edges` are the searched paths whose best value lies at an end of its range; `fixed` those not searched for this
    variant, since they are what it changes.
    """

    search: SearchState
    epochs: int
    seconds: float
    edges: tuple[str, ...]

    @property
    def ends(self) -> str:
        """How many trials ended in which way."""
        words = ENDS | ({"stopped": "of earlier generations"} if self.search.task.population else {})
        counts = Counter(trial.state for trial in self.search.trials)
        return ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state]) or NOTHING

    @property
    def best(self) -> SearchTrialRow | None:
        """The best trial by validation."""
        return None if self.search.best is None else SearchTrialRow(self.search, self.search.best)


@dataclass(frozen=True)
class SearchTrialRow:
    """One trial of a search."""

    search: SearchState
    trial: SearchTrial

    @property
    def valid(self) -> str:
        """Its validation perplexity."""
        return valid_cell(self.trial)

    @property
    def objectives(self) -> list[str]:
        """What it reached in each objective of the search."""
        return list(map(_objective, self.search.task.objectives, self.trial.objectives or ()))

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
class OptionRow:
    """What became of the trials with one option of a choice; the best by validation, None if none was complete."""

    choice: str
    option: str
    states: Mapping[SearchTrialStatus, int]
    best: SearchTrial | None
    hardly_tried: bool

    @property
    def trials(self) -> int:
        """How many trials had the option."""
        return sum(self.states.values())

    @property
    def valid(self) -> str:
        """The validation perplexity of the best."""
        return NOTHING if self.best is None else valid_cell(self.best)


def search_row(search: SearchState) -> SearchRow:
    """What became of one search."""
    best = search.best
    values, drawn = ({}, {}) if best is None else (best.values, search.task.walked(best.values).drawn)
    shares = [own_share(search.trials, trial) for trial in search.trials]
    return SearchRow(
        search=search,
        epochs=sum(epochs for epochs, _ in shares),
        seconds=sum(seconds for _, seconds in shares),
        edges=tuple(key for key, dimension in drawn.items() if _at_edge(dimension, values[key])),
    )


def option_rows(searches: Sequence[SearchState]) -> list[OptionRow]:
    """A row for every option of every choice, over the searches of all variants.

    None of a population, whose members go on from each other: an option that dies out was tried all the same.
    """
    searches = [search for search in searches if not search.task.population]
    options: dict[str, dict[str, None]] = {}
    for search in searches:
        for key, dimension in search.task.space.items():
            if isinstance(dimension, OneOf):
                options.setdefault(key, {}).update(dict.fromkeys(dimension.options))
    return [_option_row(searches, key, option) for key, among in options.items() for option in among]


def _option_row(searches: Sequence[SearchState], key: str, option: str) -> OptionRow:
    tried = [trial for search in searches for trial in search.trials if trial.values.get(key) == option]
    states = Counter(trial.state for trial in tried)
    least = max(search.task.min_trials_per_option.get(key, 0) for search in searches)
    return OptionRow(key, option, states, best(tried), states["complete"] < max(FEWEST_COMPLETE, least))


def valid_cell(trial: SearchTrial) -> str:
    """A trial's validation perplexity."""
    return NOTHING if trial.valid_nats is None else number(perplexity(trial.valid_nats))


def _objective(name: Objective, value: float) -> str:
    match name:
        case "validation":
            return number(perplexity(value))
        case "seconds":
            return duration(value)
        case _:
            return f"{value:,.0f}"


def not_searched(task: SearchTask) -> list[str]:
    """Dotted paths of the numbers of training that stay as the sweep file has them."""
    spec = task.base
    paths = [path for name in _NUISANCE for path in _numbers(getattr(spec, name), name)]
    paths += [name for name in ("batch_size", "epochs") if name not in paths]
    searched = (*task.space, *task.fixed)
    return [path for path in paths if not any(f"{path}.".startswith(f"{key}.") for key in searched)]


def _numbers(part: object, prefix: str) -> Iterator[str]:
    if not isinstance(part, Part):
        return
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, Part):
            yield from _numbers(value, f"{prefix}.{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}.{name}"


def _at_edge(dimension: Dimension, value: Any) -> bool:
    match dimension:
        case OneOf():
            return False
        case Integer():
            return value in (dimension.low, dimension.high)
    low, high = dimension.low, dimension.high
    if isinstance(dimension, LogUniform):
        low, high, value = math.log(low), math.log(high), math.log(value)
    share = (value - low) / (high - low)
    return bool(share < _EDGE or share > 1 - _EDGE)
