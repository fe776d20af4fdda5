"""What the page says of searches: the budget of each, what it found, and what was left as it is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from lm.record import perplexity
from orchestrator.report.sections.search_tables import (
    FEWEST_COMPLETE,
    OptionRow,
    SearchRow,
    not_searched,
    option_rows,
    search_row,
)
from orchestrator.search.events import SearchTrial, SearchTrialStatus
from orchestrator.search.ledger import FEWEST_FOR_IMPORTANCE, SearchState, front
from orchestrator.search.population import history
from orchestrator.sweep.searches import Objective, PopulationBased, Search, Searching, Tune
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, LogUniform, dimensions_of
from orchestrator.words import NOTHING, Markdown, counted, duration, escape, listed, number, value_in_words

_ENDS: dict[SearchTrialStatus, str] = {
    "complete": "complete",
    "stopped": "stopped early",
    "diverged": "diverged",
    "failed": "failed",
    "running": "under way",
}
_OBJECTIVES: dict[Objective, str] = {
    "validation": "Validation",
    "parameters": "Parameters",
    "decoder_parameters": "Decoder parameters",
    "seconds": "Training time",
}
_BEST_SHOWN = 10


def search_section(searches: Sequence[SearchState]) -> dict[str, object]:
    """The values for the page; nothing where nothing was searched."""
    if not searches:
        return {"search_rows": []}
    tasks = [searched.task for searched in searches]
    searching = tasks[0].searching
    rows = [search_row(searched.task, searched.trials, searched.best) for searched in searches]
    options = option_rows([(searched.task, searched.trials) for searched in searches])
    ended = all(searched.ended for searched in searches)
    several = isinstance(searching, Search) and len(searching.objectives) > 1
    return {
        "search_title": "Search" if isinstance(searching, Search) else "Tuning",
        "search_how": _how(searching, ended=ended),
        "search_space": _space(searching),
        "search_rows": [_row_cells(row, searched) for row, searched in zip(rows, searches, strict=True)],
        "search_options": [_option_cells(row) for row in options],
        "search_hardly_tried": _hardly_tried(options, ended=ended),
        "search_fixed": Markdown(listed([f"`{path}`" for path in not_searched(tasks[0])])),
        "search_edges": _edges(rows),
        "search_hardly": _hardly(searches),
        "search_untuned": _untuned(searches),
        "search_best": [] if len(searches) > 1 or several else _best_cells(searches[0]),
        "search_objectives": [_OBJECTIVES[name] for name in getattr(searching, "objectives", ())],
        "search_front": _front_cells(searches[0]) if several else [],
        **_importance(searches[0]),
    }


def trials_of_tuning(searches: Sequence[SearchState], variants: Sequence[str]) -> list[int]:
    """How many trials tuned each of these variants; a baseline that is still being tuned has the file's values."""
    tuned = [one for one in searches if isinstance(one.task.searching, Tune) and one.ended and one.best is not None]
    return [len(one.trials) for one in tuned if one.task.variant in variants]


def _how(searching: Searching, *, ended: bool) -> Markdown:
    stops = "nothing was stopped early"
    if isinstance(searching.scheduler, PopulationBased):
        stops = f"values changed in mid-training, as {value_in_words(searching.scheduler)} had it"
    elif searching.scheduler is not None:
        stops = f"{value_in_words(searching.scheduler)} stopped trials early, here alone"
    asked = (
        ""
        if searching.trials is None
        else f", {counted(searching.trials, 'trial')}{'' if isinstance(searching, Search) else ' for each variant'}"
    )
    return Markdown(
        f"Sampler {escape(value_in_words(searching.sampler))}, sampler seed {searching.sampler_seed}, training seed "
        f"{searching.training_seed}{asked}; {escape(stops)}. Validation alone decided, and the test set stayed closed: "
        "it was opened for the trials of the ablation table, trained anew on seeds that the search never saw."
        + ("" if ended else " **The search is not over yet.**")
    )


def _space(searching: Searching) -> list[tuple[Markdown, str]]:
    """Every searched value with its range; those that a variant has instead come after."""
    own = searching.variants if isinstance(searching, Tune) else {}
    spaces = [("", searching.space), *((f", of {escape(name)}", space) for name, space in own.items())]
    return [
        (Markdown(f"`{key}`{whose}"), _range(dimension))
        for whose, space in spaces
        for key, place in space.items()
        for dimension in dimensions_of(place)
    ]


def _row_cells(row: SearchRow, searched: SearchState) -> dict[str, object]:
    words = _ENDS | ({"stopped": "of earlier generations"} if searched.task.population else {})
    ends = [f"{row.states[state]} {word}" for state, word in words.items() if row.states.get(state)]
    return {
        "variant": row.variant,
        "trials": row.trials,
        "ends": ", ".join(ends) or NOTHING,
        "epochs": f"{row.epochs:,}",
        "seconds": duration(row.seconds),
        "best": NOTHING if row.best is None else _valid(row.best),
        "chosen": NOTHING if row.best is None else _values(searched, row.best),
        "fixed": ", ".join(row.fixed) or NOTHING,
    }


def _option_cells(row: OptionRow) -> dict[str, object]:
    complete, stopped = row.states.get("complete", 0), row.states.get("stopped", 0)
    return {
        "choice": Markdown(f"`{row.choice}`"),
        "option": row.option,
        "trials": row.trials,
        "complete": complete,
        "stopped": stopped,
        "other": row.trials - complete - stopped,
        "best": NOTHING if row.best is None else _valid(row.best),
    }


def _hardly_tried(rows: Sequence[OptionRow], *, ended: bool) -> Markdown:
    """The options with few complete trials; nothing while the search goes on."""
    names = [
        f"{escape(row.option)} of `{row.choice}` ({row.states.get('complete', 0)} of {row.trials} complete)"
        for row in rows
        if row.hardly_tried
    ]
    if not names or not ended:
        return Markdown("")
    return Markdown(
        f"**Hardly tried**: {listed(names)}. With fewer than {FEWEST_COMPLETE} complete trials, or than the sweep file "
        "asks for, little is known of what an option reaches with values that suit it."
    )


def _edges(rows: Sequence[SearchRow]) -> Markdown:
    places = [f"{escape(row.variant)} (`{'`, `'.join(row.edges)}`)" for row in rows if row.edges]
    if not places:
        return Markdown("")
    return Markdown(
        f"**At the edge of its range**: {listed(places)}. The best value may lie outside, so that the search may have "
        "cut this short."
    )


def hardly_chosen(searches: Sequence[SearchState]) -> list[str]:
    """Which variants' values are those of the one trial that came to its end."""
    complete = {one.task.variant: sum(f.state == "complete" for f in one.trials) for one in searches if one.ended}
    return [variant for variant, count in complete.items() if count == 1]


def _hardly(searches: Sequence[SearchState]) -> Markdown:
    names = listed([escape(name) for name in hardly_chosen(searches)])
    if not names:
        return Markdown("")
    return Markdown(
        f"**Hardly chosen**: the values of {names}. Where a single trial is complete, its loss at the end is compared "
        "with no other's."
    )


def _untuned(searches: Sequence[SearchState]) -> Markdown:
    """Which variants the table does not have, since no trial of their tuning came to its end."""
    tuned = [one for one in searches if isinstance(one.task.searching, Tune)]
    names = [escape(one.task.variant) for one in tuned if one.ended and one.best is None]
    if not names:
        return Markdown("")
    return Markdown(
        f"**Not tuned, since no trial was complete**: {listed(names)}. With the sweep file's values "
        "no variant is compared with tuned ones; without a tuned baseline none is compared at all."
    )


def _best_cells(searched: SearchState) -> list[dict[str, object]]:
    complete = sorted((f for f in searched.trials if f.state == "complete"), key=lambda f: (_nats(f), f.number))
    return [_found_cells(searched, found) for found in complete[:_BEST_SHOWN]]


def _front_cells(searched: SearchState) -> list[dict[str, object]]:
    found, names = sorted(front(searched.trials), key=lambda f: f.objectives or ()), searched.task.objectives
    return [
        _found_cells(searched, one) | {"objectives": list(map(_objective, names, one.objectives or ()))}
        for one in found
    ]


def _objective(name: Objective, value: float) -> str:
    match name:
        case "validation":
            return number(perplexity(value))
        case "seconds":
            return duration(value)
        case _:
            return f"{value:,.0f}"


def _found_cells(searched: SearchState, found: SearchTrial) -> dict[str, object]:
    return {
        "number": found.number,
        "valid": _valid(found),
        "epochs": found.epochs,
        "seconds": duration(found.seconds),
        "chosen": _values(searched, found),
        "key": found.key,
    }


def _values(searched: SearchState, found: SearchTrial) -> str:
    """A trial's values; of a schedule those from each epoch on that changed some: `from epoch 7: dropout.input 0.2`."""
    task = searched.task
    if not task.population:
        return task.in_words(found.values)
    begins = itertools.accumulate(task.generations, initial=1)
    legs = zip(begins, history(searched.trials, found.values, found.parent), strict=False)
    before: Mapping[str, Any] = {}
    words = []
    for begin, values in legs:
        changed = {key: value for key, value in values.items() if before.get(key) != value}
        words += [f"from epoch {begin}: {task.in_words(changed)}"] if changed else []
        before = values
    return "; ".join(words)


def _importance(searched: SearchState) -> dict[str, object]:
    """fANOVA's shares of the base's search, with their spread over seeds of the evaluator; why not, where not."""
    if searched.task.population:
        return {"importance_rows": [], "importance_why": "they changed in mid-training"}
    complete = sum(found.state == "complete" for found in searched.trials)
    shares = None
    if complete >= FEWEST_FOR_IMPORTANCE:
        # Optuna takes a second to import, and only a report of a long search needs it.
        from orchestrator.search.optuna import importance

        shares = importance(searched.task, searched.trials)
    rows = [(Markdown(f"`{key}`"), f"{mean:.2f} ± {spread:.2f}") for key, (mean, spread) in (shares or {}).items()]
    few = f"{counted(complete, 'complete trial')}, fewer than the {FEWEST_FOR_IMPORTANCE} it would take"
    why = few if complete < FEWEST_FOR_IMPORTANCE else "not every value was searched in every trial"
    return {"importance_rows": rows, "importance_why": "" if rows else why}


def _range(dimension: Dimension) -> str:
    match dimension:
        case Choice() | Change():
            words = ", ".join(dimension.options)
        case Integer():
            words = f"whole, {dimension.low} to {dimension.high}" + (", on a log scale" if dimension.log else "")
        case _:
            scale = ", on a log scale" if isinstance(dimension, LogUniform) else ""
            words = f"{dimension.low:g} to {dimension.high:g}{scale}"
    where = ", ".join(f"{path} is {value_in_words(value)}" for path, value in dimension.when.items())
    return words + (f"; where {where}" if where else "")


def _nats(found: SearchTrial) -> float:
    return float("inf") if found.valid_nats is None else found.valid_nats


def _valid(found: SearchTrial) -> str:
    return NOTHING if found.valid_nats is None else number(perplexity(found.valid_nats))
