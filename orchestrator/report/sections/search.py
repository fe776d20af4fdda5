"""What the page says of searches: the budget of each, what it found, and what was left as it is."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.spec import Part
from orchestrator.report.pictures import Pictures
from orchestrator.report.sections.front import OBJECTIVES, draw_front, front_in_order, name_of
from orchestrator.report.sections.search_options import FEWEST_COMPLETE, OptionRow, hardly_tried, option_rows
from orchestrator.report.sections.search_pictures import SearchShown, show_searches
from orchestrator.search.events import SearchTrial, SearchTrialStatus
from orchestrator.search.ledger import FEWEST_FOR_IMPORTANCE, SearchState
from orchestrator.search.population import history, own_share
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import Search, Searching, Tune
from orchestrator.sweep.space import Dimension, Integer, LogUniform, OneOf, dimensions_of
from orchestrator.words import NOTHING, Markdown, counted, escape, listed, value_in_words

_EDGE = 0.02
"""A share of a range (of its logarithm, if it is searched on a log scale) within which a value lies at its edge."""
_ENDS: dict[SearchTrialStatus, str] = {
    "complete": "complete",
    "stopped": "stopped early",
    "diverged": "diverged",
    "failed": "failed",
    "running": "under way",
}
_BEST_SHOWN = 10
_NUISANCE = ("optimizer", "dropout", "penalties", "bptt", "finetune")
"""Parts whose numbers a reader would suspect of favouring one variant, if they were left as they are."""


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
    def name(self) -> str:
        """What it chose."""
        return name_of(self.search.task, self.trial.values)

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
        drawn = self.search.task.walked(values).drawn if values else {}
        return [key for key, dimension in drawn.items() if _at_edge(dimension, values[key])]


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


@dataclass(frozen=True)
class SearchSection:
    """What the page says; sentences may be empty. `best` is a lone search's, `front` of objectives.

    `changed` are variants built on what was found, `misfits` those that could not be."""

    title: str
    searching: Searching
    ended: bool
    space: Sequence[tuple[Markdown, str]]
    rows: Sequence[SearchRow]
    options: Sequence[OptionRow]
    hardly_tried: Markdown
    fixed: Markdown
    edges: Markdown
    hardly_chosen: Sequence[str]
    untuned: Sequence[str]
    changed: Sequence[str]
    misfits: Mapping[str, str]
    best: Sequence[SearchTrialRow]
    objectives: Sequence[str]
    front: Sequence[SearchTrialRow]
    front_is_drawn: bool
    importance: Sequence[tuple[Markdown, str]]
    without_share: Markdown
    why_no_importance: str
    shown: SearchShown
    fewest: int = FEWEST_COMPLETE


def search_section(searches: Sequence[SearchState], pictures: Pictures) -> SearchSection | None:
    """What the page says, with its pictures drawn; None if nothing was searched."""
    if not searches:
        return None
    first, ended = searches[0], all(search.ended for search in searches)
    searching, objectives = first.task.searching, first.task.objectives
    rows, options = [SearchRow(search) for search in searches], option_rows(searches)
    alone = len(searches) == 1 and len(objectives) == 1
    shown = _best(first) if alone else front_in_order(first)
    trials = [SearchTrialRow(first, trial) for trial in shown]
    edges = [f"{escape(row.search.task.title)} (`{'`, `'.join(row.edges)}`)" for row in rows if row.edges]
    importance, why_not = _importance(first)
    return SearchSection(
        title="Search" if isinstance(searching, Search) else "Tuning",
        searching=searching,
        ended=ended,
        space=_space(searching),
        rows=rows,
        options=options,
        hardly_tried=hardly_tried(options),
        fixed=Markdown(listed([f"`{path}`" for path in not_searched(first.task)])),
        edges=Markdown(listed(edges)),
        hardly_chosen=hardly_chosen(searches),
        untuned=[s.task.title for s in searches if s.ended and s.best is None and _is_tuned(s.task)],
        changed=[] if ended and first.best is None else [v for v in first.task.built_on if v not in first.misfits],
        misfits=first.misfits if ended else {},
        best=trials if alone else (),
        objectives=[OBJECTIVES[name][0] for name in objectives],
        front=trials if len(objectives) > 1 else (),
        front_is_drawn=len(objectives) > 1 and draw_front(first, pictures),
        importance=importance,
        without_share=Markdown(listed([f"`{key}`" for key in first.task.space if f"`{key}`" not in dict(importance)])),
        why_no_importance=why_not,
        shown=show_searches(searches, pictures),
    )


def _is_tuned(task: SearchTask) -> bool:
    """Whether variants of the file wait for it, and not one that it adds to them."""
    return isinstance(task.searching, Tune) or bool(task.built_on)


def trials_of_tuning(searches: Sequence[SearchState], variants: Sequence[str]) -> list[int]:
    """How many trials tuned each of these variants; a baseline that is still being tuned has the file's values."""
    tuned = [s for s in searches if isinstance(s.task.searching, Tune) and s.ended and s.best is not None]
    return [len(search.trials) for search in tuned if search.task.variant in variants]


def hardly_chosen(searches: Sequence[SearchState]) -> list[str]:
    """Which variants' values are those of the one trial that came to its end."""
    complete = {s.task.title: sum(t.state == "complete" for t in s.trials) for s in searches if s.ended}
    return [variant for variant, count in complete.items() if count == 1]


def not_searched(task: SearchTask) -> list[str]:
    """Dotted paths of the numbers of training that stay as the sweep file has them."""
    paths = [path for name in _NUISANCE for path in _numbers(getattr(task.base, name), name)]
    paths += [name for name in ("batch_size", "epochs") if name not in paths]
    searched = (*task.space, *task.fixed)
    return [path for path in paths if not any(f"{path}.".startswith(f"{key}.") for key in searched)]


def _space(searching: Searching) -> list[tuple[Markdown, str]]:
    """Every searched value with its range; those that a variant has instead come after."""
    of_variants = searching.variants if isinstance(searching, Tune) else {}
    spaces = [("", searching.space), *((f", of {escape(name)}", space) for name, space in of_variants.items())]
    return [
        (Markdown(f"`{key}`{whose}"), _range(dimension))
        for whose, space in spaces
        for key, place in space.items()
        for dimension in dimensions_of(place)
    ]


def _best(search: SearchState) -> list[SearchTrial]:
    complete = [trial for trial in search.trials if trial.state == "complete"]
    return sorted(complete, key=lambda trial: (trial.valid_nats or math.inf, trial.number))[:_BEST_SHOWN]


def _importance(search: SearchState) -> tuple[list[tuple[Markdown, str]], str]:
    """fANOVA's shares of the search, with their spread over seeds of the evaluator; or why there are none."""
    if search.task.population:
        return [], "they changed in mid-training"
    complete = sum(trial.state == "complete" for trial in search.trials)
    if complete < FEWEST_FOR_IMPORTANCE:
        return [], f"{counted(complete, 'complete trial')}, fewer than the {FEWEST_FOR_IMPORTANCE} it would take"
    # Optuna takes a second to import, and only a report of a long search needs it.
    from orchestrator.search.optuna import importance

    shares = importance(search.task, search.trials)
    rows = [(Markdown(f"`{key}`"), f"{mean:.2f} ± {spread:.2f}") for key, (mean, spread) in (shares or {}).items()]
    return rows, "" if rows else "not every value was searched in every trial"


def _range(dimension: Dimension) -> str:
    match dimension:
        case OneOf():
            words = ", ".join(dimension.options)
        case Integer():
            words = f"whole, {dimension.low} to {dimension.high}" + (", on a log scale" if dimension.log else "")
        case _:
            scale = ", on a log scale" if isinstance(dimension, LogUniform) else ""
            words = f"{dimension.low:g} to {dimension.high:g}{scale}"
    where = ", ".join(f"{path} is {value_in_words(value)}" for path, value in dimension.when.items())
    return words + (f"; where {where}" if where else "")


def _numbers(part: object, prefix: str) -> Iterator[str]:
    for name in type(part).model_fields if isinstance(part, Part) else ():
        value = getattr(part, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}.{name}"
        yield from _numbers(value, f"{prefix}.{name}")
