"""The pictures of searches, and what stands beside them: where trials were stopped, head by codebook, the front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.record import perplexity
from orchestrator.analysis.comparison import Guess
from orchestrator.report.markdown import Row, Rows
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures import search as figures
from orchestrator.report.pictures.search import SearchAxis, SearchPoint
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState, best, front
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import Objective
from orchestrator.sweep.space import Choice, Integer, OneOf, dimensions_of, is_log
from orchestrator.words import NOTHING, Markdown, counted, escape, listed, number

OBJECTIVES: dict[Objective, tuple[str, Callable[[float], str]]] = {
    "validation": ("validation perplexity", lambda nats: number(perplexity(nats))),
    "parameters": ("parameters", "{:,.0f}".format),
    "decoder_parameters": ("decoder parameters", "{:,.0f}".format),
    "seconds": ("seconds of training", "{:,.0f}".format),
}
_LISTED = 8
"""The most trials on a front that the answer names; of more, the first and the last."""
_CODEBOOK = "head.codebook"
_ABSENT = "none"


@dataclass(frozen=True)
class SearchShown:
    """What the page shows beside its tables: `colours` says what they stand for, empty if all are alike.

    `grid` has two choices against each other: the best validation perplexity of their trials, and how many there were.
    """

    drawn: bool
    colours: str
    rungs: Rows
    grid: Rows


def show_searches(searches: Sequence[SearchState], pictures: Pictures) -> SearchShown:
    """Draw `search.svg`, `slices.svg` and, if trials were stopped early, `rungs.svg`; what the page says of them."""
    (trials, heads), rungs = _points(searches), list(rung_table(searches))
    if trials:
        pictures.draw("search.svg", figures.course, trials)
        pictures.draw("slices.svg", figures.slices, trials, _axes(searches))
    if rungs:
        pictures.draw("rungs.svg", figures.rungs, trials, [row["After epoch"] for row in rungs])
    several = len({point.group for point in trials}) > 1
    colours = ("kinds of output layer" if heads else "variants") if several else ""
    return SearchShown(bool(trials), colours, rungs, _grid(searches[0]) if len(searches) == 1 else [])


def rung_table(searches: Sequence[SearchState]) -> Iterator[Row]:
    """A row for each epoch at which trials were stopped early; none of a population, where all others go on.

    Of several searches the stopped trials are named with the variant that was tuned: `4 and 7 of full`.
    """
    searches = [search for search in searches if not search.task.population]
    every = [(search.task.title, trial) for search in searches for trial in search.trials]
    for epoch in sorted({trial.epochs for _, trial in every if trial.state == "stopped"}):
        stopped = [(of, trial) for of, trial in every if trial.state == "stopped" and trial.epochs == epoch]
        numbers: dict[str, list[str]] = {}
        for of, trial in stopped:
            numbers.setdefault(of if len(searches) > 1 else "", []).append(str(trial.number))
        lowest = min((trial.valid_nats for _, trial in stopped if trial.valid_nats is not None), default=None)
        yield {
            "After epoch": epoch,
            "Trials that came this far": sum(trial.epochs >= epoch for _, trial in every),
            "Stopped": len(stopped),
            "Best validation of those stopped": None if lowest is None else number(perplexity(lowest)),
            "Which": "; ".join(listed(which) + (f" of {of}" if of else "") for of, which in numbers.items()),
        }


def _points(searches: Sequence[SearchState]) -> tuple[list[SearchPoint], bool]:
    """Every trial with a loss; whether colours are not variants but, of a lone search, the several kinds of heads."""
    tried = [(search, trial) for search in searches for trial in search.trials if trial.valid_nats is not None]
    kinds = [search.task.drawn(trial.values).last_spec.head.kind for search, trial in tried]
    heads = len(searches) == 1 and len(set(kinds)) > 1
    points = [
        SearchPoint(
            search=search.task.title,
            group=kind if heads else search.task.variant,
            number=trial.number,
            perplexity=perplexity(trial.valid_nats or 0.0),
            complete=trial.state == "complete",
            stopped=trial.state == "stopped",
            values=trial.values,
            curve=[(epoch, perplexity(nats)) for epoch, nats in trial.curve],
        )
        for (search, trial), kind in zip(tried, kinds, strict=True)
    ]
    return points, heads


def _axes(searches: Sequence[SearchState]) -> list[SearchAxis]:
    """Every searched value, over all of the ranges that it has in some trial or variant."""
    axes = []
    for key in dict.fromkeys(key for search in searches for key in search.task.space):
        places = [search.task.space[key] for search in searches if key in search.task.space]
        dimensions = [dimension for place in places for dimension in dimensions_of(place)]
        options = dict.fromkeys(option for each in dimensions if isinstance(each, OneOf) for option in each.options)
        ranges = [dimension for dimension in dimensions if not isinstance(dimension, OneOf)]
        log = all(each.low > 0 for each in ranges) and any(map(is_log, ranges))
        ends = (min(each.low for each in ranges), max(each.high for each in ranges)) if ranges else (0.0, 1.0)
        whole = bool(ranges) and all(isinstance(each, Integer) for each in ranges)
        axes.append(SearchAxis(key, "log" if log else "linear", list(options), ends, whole))
    return axes


def _grid(search: SearchState) -> Rows:
    """The first other choice against the codebook, if both are searched; trials without a codebook come first."""
    choices = {key: place for key, place in search.task.space.items() if isinstance(place, OneOf)}
    down = next((key for key in choices if key != _CODEBOOK), None)
    if down is None or _CODEBOOK not in choices or search.task.population:
        return []
    cells: dict[tuple[str, str], list[SearchTrial]] = {}
    for trial in search.distinct:
        if down in trial.values:
            cells.setdefault((trial.values[down], trial.values.get(_CODEBOOK, _ABSENT)), []).append(trial)
    across = [name for name in (_ABSENT, *choices[_CODEBOOK].options) if any(name == column for _, column in cells)]
    return [
        {Markdown(f"`{down}`"): row, **{column: _cell(cells.get((row, column), [])) for column in across}}
        for row in choices[down].options
    ]


def _cell(trials: Sequence[SearchTrial]) -> str | None:
    """`93.31 (11 trials)`; a dash before the number if none is complete, nothing without a trial."""
    return f"{validation(best(trials)) or NOTHING} ({counted(len(trials), 'trial')})" if trials else None


def validation(trial: SearchTrial | None) -> str | None:
    """A trial's validation perplexity; None without one."""
    return None if trial is None or trial.valid_perplexity is None else number(trial.valid_perplexity)


def names_of(task: SearchTask, trials: Sequence[SearchTrial]) -> list[str]:
    """What each trial is, by what it chose; by all of its values if another chose the same."""
    names = [_name_of(task, trial.values) for trial in trials]
    return [
        name if names.count(name) == 1 else task.in_words(trial.values)
        for name, trial in zip(names, trials, strict=True)
    ]


def _name_of(task: SearchTask, values: Mapping[str, Any]) -> str:
    """What a trial is, by what it chose: `adaptive, divisor 4.0`; all of its values if nothing was to choose."""
    words = []
    for key, dimension in task.drawn(values).dimensions.items():
        if isinstance(dimension, OneOf):
            plain = isinstance(dimension, Choice) and not isinstance(dimension.among, dict)
            words.append(f"{key.rpartition('.')[2]} {values[key]}" if plain else str(values[key]))
    return ", ".join(words) or task.in_words(values)


def front_clause(searches: Sequence[SearchState], guess: Guess | None = None) -> str:
    """What is on the front, for the answer; empty without a search with several objectives or a complete trial.

    A trial whose validation loss is above that of the `guess` is on the front for its size alone, and it is said.
    """
    if len(searches) != 1 or len(searches[0].task.objectives) < 2 or not (shown := front(searches[0].distinct)):
        return ""
    task = searches[0].task
    complete = sum(trial.state == "complete" for trial in searches[0].distinct)
    different = " different" if len(searches[0].distinct) < len(searches[0].trials) else ""
    trials = []
    for name, trial in zip(names_of(task, shown), shown, strict=True):
        reached = zip(task.objectives, trial.objectives or (), strict=True)
        words = ", ".join(f"{OBJECTIVES[aim][1](value)} {OBJECTIVES[aim][0]}" for aim, value in reached)
        if guess is not None and trial.valid_nats is not None and trial.valid_nats > guess.nats:
            words += f"; worse than the {guess.model} model, {number(guess.perplexity)}, which reads no context"
        trials.append(f"“{escape(name)}” ({words})")
    names = listed(trials) if len(trials) <= _LISTED else f"from {trials[0]} to {trials[-1]}"
    of = f"{len(trials)} of the search’s {complete}{different} complete trials"
    return Markdown(f"{of} {'is' if len(trials) == 1 else 'are'} on its Pareto front: {names}")


def draw_front(search: SearchState, pictures: Pictures) -> bool:
    """Draw `front.svg` if there are two objectives; of more a plane would show trials as beaten that are not."""
    trials = [trial for trial in search.distinct if trial.state == "complete"]
    complete = [(trial, trial.objectives) for trial in trials if trial.objectives]
    if len(search.task.objectives) != 2 or not complete:
        return False
    unbeaten = front(search.distinct)
    on_front = dict(zip((trial.number for trial in unbeaten), names_of(search.task, unbeaten), strict=True))
    (y, x), points = search.task.objectives, []
    for trial, values in complete:
        shown = [perplexity(v) if name == "validation" else v for name, v in zip((y, x), values, strict=True)]
        points.append(figures.FrontPoint(trial.number, shown[1], shown[0], on_front.get(trial.number)))
    pictures.draw("front.svg", figures.front, points, OBJECTIVES[x][0], OBJECTIVES[y][0])
    return True
