"""The Pareto front of a search with several objectives: what is on it, its picture, and what the answer says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm.record import perplexity
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures import search as figures
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState, front
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import Objective
from orchestrator.sweep.space import Choice, OneOf
from orchestrator.words import Markdown, escape, listed, number

OBJECTIVES: dict[Objective, tuple[str, Callable[[float], str]]] = {
    "validation": ("validation perplexity", lambda nats: number(perplexity(nats))),
    "parameters": ("parameters", "{:,.0f}".format),
    "decoder_parameters": ("decoder parameters", "{:,.0f}".format),
    "seconds": ("seconds of training", "{:,.0f}".format),
}
_LISTED = 8
"""The most trials on a front that the answer names; of more, the first and the last."""


def front_in_order(search: SearchState) -> list[SearchTrial]:
    """The trials on the front, by the first objective."""
    return sorted(front(search.trials), key=lambda trial: trial.objectives or ())


def name_of(task: SearchTask, values: Mapping[str, Any]) -> str:
    """What a trial is, by what it chose: `adaptive, divisor 4.0`; all of its values if nothing was to choose."""
    words = []
    for key, dimension in task.walked(values).drawn.items():
        if isinstance(dimension, OneOf):
            plain = isinstance(dimension, Choice) and not isinstance(dimension.among, dict)
            words.append(f"{key.rpartition('.')[2]} {values[key]}" if plain else str(values[key]))
    return ", ".join(words) or task.in_words(values)


def front_clause(searches: Sequence[SearchState]) -> str:
    """What is on the front, for the answer; empty without a search with several objectives or a complete trial."""
    if len(searches) != 1 or len(searches[0].task.objectives) < 2 or not (shown := front_in_order(searches[0])):
        return ""
    task = searches[0].task
    complete = sum(trial.state == "complete" for trial in searches[0].trials)
    trials = []
    for trial in shown:
        reached = zip(task.objectives, trial.objectives or (), strict=True)
        words = ", ".join(f"{OBJECTIVES[name][1](value)} {OBJECTIVES[name][0]}" for name, value in reached)
        trials.append(f"“{escape(name_of(task, trial.values))}” ({words})")
    names = listed(trials) if len(trials) <= _LISTED else f"from {trials[0]} to {trials[-1]}"
    verb = "is" if len(trials) == 1 else "are"
    return Markdown(f"{len(trials)} of the search’s {complete} complete trials {verb} on its Pareto front: {names}")


def draw_front(search: SearchState, pictures: Pictures) -> bool:
    """Draw `front.svg` if there are two objectives; of more a plane would show trials as beaten that are not."""
    complete = [(trial, trial.objectives) for trial in search.trials if trial.state == "complete" and trial.objectives]
    if len(search.task.objectives) != 2 or not complete:
        return False
    on_front = {trial.number: name_of(search.task, trial.values) for trial in front_in_order(search)}
    (y, x), points = search.task.objectives, []
    for trial, values in complete:
        shown = [perplexity(v) if name == "validation" else v for name, v in zip((y, x), values, strict=True)]
        points.append(figures.FrontPoint(trial.number, shown[1], shown[0], on_front.get(trial.number)))
    pictures.draw("front.svg", figures.front, points, OBJECTIVES[x][0], OBJECTIVES[y][0])
    return True
