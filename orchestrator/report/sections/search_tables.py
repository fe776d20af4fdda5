"""What searches found, as rows of plain values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.spec import Part
from orchestrator.search.events import SearchTrial, SearchTrialStatus
from orchestrator.search.ledger import best
from orchestrator.search.population import own_share
from orchestrator.search.task import SearchTask
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, LogUniform

_EDGE = 0.02
"""A share of a range (of its logarithm, where it is searched so) within which a value lies at its edge."""
FEWEST_COMPLETE = 3
"""Complete trials of an option below which little is known of what it reaches with values that suit it."""
_NUISANCE = ("optimizer", "dropout", "penalties", "bptt", "finetune")
"""Parts whose numbers a reader would suspect of favouring one variant, if they were left as they are."""


@dataclass(frozen=True)
class SearchRow:
    """One search: its budget, how its trials ended, and the best by validation, None where no trial was complete.

    `edges` are the searched paths whose best value lies at an end of its range; `fixed` those not searched for this
    variant, since they are what it changes.
    """

    variant: str
    trials: int
    states: Mapping[SearchTrialStatus, int]
    epochs: int
    seconds: float
    best: SearchTrial | None
    edges: tuple[str, ...]
    fixed: tuple[str, ...]


def search_row(task: SearchTask, found: Sequence[SearchTrial], best: SearchTrial | None) -> SearchRow:
    """What became of one search."""
    values, drawn = ({}, {}) if best is None else (best.values, task.drawn(best.values))
    shares = [own_share(found, trial) for trial in found]
    return SearchRow(
        variant=task.variant,
        trials=len(found),
        states=Counter(trial.state for trial in found),
        epochs=sum(epochs for epochs, _ in shares),
        seconds=sum(seconds for _, seconds in shares),
        best=best,
        edges=tuple(key for key, dimension in drawn.items() if _at_edge(dimension, values[key])),
        fixed=task.fixed,
    )


@dataclass(frozen=True)
class OptionRow:
    """What became of the trials with one option of a choice; the best by validation, None where none was complete."""

    choice: str
    option: str
    states: Mapping[SearchTrialStatus, int]
    best: SearchTrial | None
    hardly_tried: bool

    @property
    def trials(self) -> int:
        """How many trials had the option."""
        return sum(self.states.values())


def option_rows(searches: Sequence[tuple[SearchTask, Sequence[SearchTrial]]]) -> list[OptionRow]:
    """A row for every option of every choice, over the searches of all variants.

    None of a population, whose members go on from each other: an option that dies out was tried all the same.
    """
    searches = [(task, found) for task, found in searches if not task.population]
    options: dict[str, dict[str, None]] = {}
    for task, _ in searches:
        for key, one in task.space.items():
            if isinstance(one, Choice | Change):
                options.setdefault(key, {}).update(dict.fromkeys(one.options))
    return [_option_row(searches, key, option) for key, among in options.items() for option in among]


def _option_row(searches: Sequence[tuple[SearchTask, Sequence[SearchTrial]]], key: str, option: str) -> OptionRow:
    tried = [trial for _, found in searches for trial in found if trial.values.get(key) == option]
    states = Counter(trial.state for trial in tried)
    least = max(task.min_trials_per_option.get(key, 0) for task, _ in searches)
    hardly = states["complete"] < max(FEWEST_COMPLETE, least)
    return OptionRow(key, option, states, best(tried), hardly)


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
        case Choice() | Change():
            return False
        case Integer():
            return value in (dimension.low, dimension.high)
    low, high = dimension.low, dimension.high
    if isinstance(dimension, LogUniform):
        low, high, value = math.log(low), math.log(high), math.log(value)
    share = (value - low) / (high - low)
    return bool(share < _EDGE or share > 1 - _EDGE)
