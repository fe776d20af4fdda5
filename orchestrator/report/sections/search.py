"""What the page says of searches: the budget of each, what it found, and where little is known."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.spec import TrainSpec
from orchestrator.report.markdown import Row, Rows
from orchestrator.report.pictures import Pictures
from orchestrator.report.sections.search_pictures import (
    OBJECTIVES,
    SearchShown,
    draw_front,
    show_searches,
    validation,
)
from orchestrator.search.events import SearchTrial, SearchTrialStatus
from orchestrator.search.ledger import FEWEST_FOR_IMPORTANCE, SearchState, best, front
from orchestrator.search.population import history, own_share
from orchestrator.sweep.override import override
from orchestrator.sweep.searches import Searching, Tune
from orchestrator.sweep.space import Dimension, Integer, OneOf, dimensions_of, is_log, range_in_words
from orchestrator.words import Markdown, counted, duration, escape, listed

_EDGE = 0.02
"""A share of a range (of its logarithm, if it is searched on a log scale) within which a value lies at its edge."""
_FEWEST_COMPLETE = 3
"""Complete trials of an option below which little is known of what it reaches with values that suit it."""
_ENDS: dict[SearchTrialStatus, str] = {
    "complete": "complete",
    "stopped": "stopped early",
    "diverged": "diverged",
    "failed": "failed",
    "running": "under way",
}
_BEST_SHOWN = 10


@dataclass(frozen=True)
class SearchSection:
    """What the page says; sentences may be empty. `trials` are the best of a lone search, or those on its front.

    `first` has what all searches share. `changed` are variants built on what was found, `misfits` those that could not
    be.
    """

    first: SearchState
    ended: bool
    space: Rows
    rows: Rows
    options: Rows
    hardly_tried: Markdown
    edges: list[Markdown]
    hardly_chosen: Sequence[str]
    stopped_early: int
    untuned: Sequence[str]
    changed: Sequence[str]
    misfits: Mapping[str, str]
    trials: Rows
    front_is_drawn: bool
    importance: Rows
    without_share: Markdown
    why_no_importance: str
    shown: SearchShown


def search_section(searches: Sequence[SearchState], pictures: Pictures) -> SearchSection | None:
    """What the page says, with its pictures drawn; None if nothing was searched."""
    if not searches:
        return None
    first, ended = searches[0], all(search.ended for search in searches)
    has_front = len(first.task.objectives) > 1
    options, hardly_tried = _options(searches)
    importance, why_not = _importance(first)
    shares = [row["Value"] for row in importance]
    stopped = sum(trial.state == "stopped" for search in searches for trial in search.trials)
    return SearchSection(
        first=first,
        ended=ended,
        space=_space(first.task.searching),
        rows=list(search_table(searches)),
        options=options,
        hardly_tried=Markdown(listed(hardly_tried)),
        edges=[words for search in searches if (words := _edges(search))],
        hardly_chosen=hardly_chosen(searches),
        stopped_early=0 if first.task.population else stopped,
        untuned=[search.task.title for search in searches if search.ended and search.best is None],
        changed=[] if ended and first.best is None else [v for v in first.task.built_on if v not in first.misfits],
        misfits=first.misfits if ended else {},
        trials=list(_trials(first)) if has_front or len(searches) == 1 else [],
        front_is_drawn=has_front and draw_front(first, pictures),
        importance=importance,
        without_share=Markdown(listed([f"`{key}`" for key in first.task.space if f"`{key}`" not in shares])),
        why_no_importance=why_not,
        shown=show_searches(searches, pictures),
    )


def search_table(searches: Sequence[SearchState]) -> Iterator[Row]:
    """A row a search: its budget, of a population each epoch once, how its trials ended, and the best by validation."""
    for search in searches:
        words = _ENDS | ({"stopped": "of earlier generations"} if search.task.population else {})
        counts = Counter(trial.state for trial in search.trials)
        ends = ", ".join(f"{counts[end]} {word}" for end, word in words.items() if counts[end])
        if again := len(search.trials) - len(search.distinct):
            ends += f" ({again} with the values of another)"
        yield {
            "Variant": search.task.title,
            "Trials": len(search.trials),
            "How they ended": ends or None,
            "Epochs trained": f"{sum(own_share(search.trials, trial)[0] for trial in search.distinct):,}",
            "Training time": duration(seconds_of(search)),
            "Best validation": validation(search.best),
            "Its values": search.best and _values(search, search.best),
            "Not searched, since the variant sets it": ", ".join(search.task.fixed) or None,
        }


def seconds_of(search: SearchState) -> float:
    """Seconds of training of all trials; of a population, each second once."""
    return sum(own_share(search.trials, trial)[1] for trial in search.distinct)


def _trials(search: SearchState) -> Iterator[Row]:
    """The best trials, or those on the front of a search with several objectives."""
    complete = [trial for trial in search.distinct if trial.state == "complete"]
    best_first = sorted(complete, key=lambda trial: (trial.valid_nats or math.inf, trial.number))[:_BEST_SHOWN]
    for trial in front(search.distinct) if len(search.task.objectives) > 1 else best_first:
        columns: dict[str, object] = {"Validation": validation(trial)}
        if len(search.task.objectives) > 1:
            pairs = zip(search.task.objectives, trial.objectives or (), strict=True)
            columns = {OBJECTIVES[name][0].capitalize(): OBJECTIVES[name][1](value) for name, value in pairs}
        spent = {"Epochs": trial.epochs, "Training time": duration(trial.seconds)}
        values = {"Values": _values(search, trial), "Key": Markdown(f"`{trial.key}`")}
        yield {"Trial": trial.number, **columns, **spent, **values}


def _values(search: SearchState, trial: SearchTrial) -> str:
    """Its values; of a schedule those from each epoch on that changed some: `from epoch 7: dropout.input 0.2`."""
    task = search.task
    if not task.population:
        return task.in_words(trial.values)
    begins = itertools.accumulate(task.generations, initial=1)
    before: Mapping[str, Any] = {}
    words = []
    for begin, values in zip(begins, history(search.trials, trial.values, trial.parent), strict=False):
        if changed := {key: value for key, value in values.items() if before.get(key) != value}:
            words.append(f"from epoch {begin}: {task.in_words(changed)}")
        before = values
    return "; ".join(words)


def _edges(search: SearchState) -> Markdown:
    """The search, and the searched paths whose best value lies at an end of its range; empty if none does."""
    values = search.best.values if search.best else {}
    drawn = search.task.drawn(values).dimensions if values else {}
    spec = search.task.drawn(values).last_spec if values else search.task.base
    edges = [key for key, dimension in drawn.items() if _is_at_edge(key, dimension, values[key], spec)]
    return Markdown(f"{escape(search.task.title)} (`{'`, `'.join(edges)}`)" if edges else "")


def _is_at_edge(key: str, dimension: Dimension, value: Any, spec: TrainSpec) -> bool:
    """Whether a value lies at an end of its range that the range could be widened beyond."""
    if isinstance(dimension, OneOf):  # of two numbers each would be at an edge, which says nothing
        numbers = [v for v in dimension.options.values() if isinstance(v, int | float) and not isinstance(v, bool)]
        ordered = len(numbers) == len(dimension.options) > 2
        return ordered and dimension.options[value] in (min(numbers), max(numbers))
    if isinstance(dimension, Integer) and dimension.high - dimension.low == 1:
        return False
    low, high, at = map(math.log if is_log(dimension) else float, (dimension.low, dimension.high, value))
    share = (at - low) / (high - low)
    if _EDGE <= share <= 1 - _EDGE:
        return False
    step = 1 if isinstance(dimension, Integer) else _EDGE * (dimension.low if is_log(dimension) else high - low)
    beyond = dimension.low - step if share < _EDGE else dimension.high + step
    return not override(spec, {key: beyond})[1]


def trials_of_tuning(searches: Sequence[SearchState], variants: Sequence[str]) -> list[int]:
    """How many trials tuned each of these variants that anything is searched for and whose searches have ended."""
    trials: Counter[str] = Counter()
    for search in searches:
        is_tuned = isinstance(search.task.searching, Tune) and bool(search.task.space)
        if is_tuned and search.ended and search.best is not None:
            trials[search.task.variant] += len(search.trials)
    return [count for variant, count in trials.items() if variant in variants]


def hardly_chosen(searches: Sequence[SearchState]) -> list[str]:
    """Which variants' values are those of the one trial that came to its end."""
    chosen = [search for search in searches if search.ended and search.task.space]
    complete = {s.task.title: sum(t.state == "complete" for t in s.distinct) for s in chosen}
    return [variant for variant, count in complete.items() if count == 1]


def _space(searching: Searching) -> Rows:
    """Every searched value with its range; those that a variant has instead come after."""
    of_variants = searching.variants if isinstance(searching, Tune) else {}
    spaces = [("", searching.space), *((f", of {escape(name)}", space) for name, space in of_variants.items())]
    return [
        {"Searched": Markdown(f"`{key}`{whose}"), "Range": range_in_words(dimension)}
        for whose, space in spaces
        for key, place in space.items()
        for dimension in dimensions_of(place)
    ]


def _options(searches: Sequence[SearchState]) -> tuple[Rows, list[str]]:
    """What became of the trials with each option of a choice, and which options are hardly tried, in words.

    None of a population, in which an option that dies out was tried too.
    """
    searches = [search for search in searches if not search.task.population]
    rows, hardly_tried = [], []
    for key in dict.fromkeys(key for search in searches for key in search.task.space):
        choices = [place for search in searches if isinstance(place := search.task.space.get(key), OneOf)]
        fewest = max(_FEWEST_COMPLETE, *(search.task.min_trials_per_option.get(key, 0) for search in searches))
        for option in dict.fromkeys(option for choice in choices for option in choice.options):
            tried = [trial for search in searches for trial in search.distinct if trial.values.get(key) == option]
            states = Counter(trial.state for trial in tried)
            complete, stopped = states["complete"], states["stopped"]
            row = {
                "Choice": Markdown(f"`{key}`"),
                "Option": option,
                "Trials": len(tried),
                "Complete": complete,
                "Stopped early": stopped,
                "Otherwise": len(tried) - complete - stopped,
                "Best validation": validation(best(tried)),
            }
            rows.append(row)
            if complete < fewest:
                hardly_tried.append(f"{escape(option)} of `{key}` ({complete} of {len(tried)} complete)")
    return rows, hardly_tried


def _importance(search: SearchState) -> tuple[Rows, str]:
    """fANOVA's shares of the search, with their spread over seeds of the evaluator; or why there are none."""
    if search.task.population:
        return [], "they changed in mid-training"
    complete = sum(trial.state == "complete" for trial in search.distinct)
    if complete < FEWEST_FOR_IMPORTANCE:
        return [], f"{counted(complete, 'complete trial')}, fewer than the {FEWEST_FOR_IMPORTANCE} it would take"
    # Optuna takes a second to import, and only a report of a long search needs it.
    from orchestrator.search.optuna import importance

    shares = importance(search.task, search.distinct) or {}
    rows: Rows = [
        {"Value": Markdown(f"`{key}`"), "Share": f"{mean:.2f} ± {spread:.2f}"} for key, (mean, spread) in shares.items()
    ]
    return rows, "" if rows else "not every value was searched in every trial"
