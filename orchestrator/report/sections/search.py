"""What the page says of searches: the budget of each, what it found, and what was left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.sections.search_tables import (
    FEWEST_COMPLETE,
    OptionRow,
    SearchRow,
    SearchTrialRow,
    not_searched,
    option_rows,
    search_row,
)
from orchestrator.search.ledger import FEWEST_FOR_IMPORTANCE, SearchState, front
from orchestrator.sweep.searches import (
    Dimension,
    Integer,
    LogUniform,
    Objective,
    OneOf,
    PopulationBased,
    Search,
    Searching,
    Tune,
    dimensions_of,
)
from orchestrator.words import Markdown, counted, escape, listed, value_in_words

_OBJECTIVES: dict[Objective, str] = {
    "validation": "Validation",
    "parameters": "Parameters",
    "decoder_parameters": "Decoder parameters",
    "seconds": "Training time",
}
_BEST_SHOWN = 10


@dataclass(frozen=True)
class SearchSection:
    """What the page says; sentences are empty if there is nothing to say.

    `best` are the best trials of a lone search, or the `front` of one with several `objectives`.
    """

    title: str
    how: Markdown
    space: tuple[tuple[Markdown, str], ...]
    rows: tuple[SearchRow, ...]
    options: tuple[OptionRow, ...]
    fixed: Markdown
    warnings: tuple[Markdown, ...]
    hardly_tried: Markdown
    best: tuple[SearchTrialRow, ...]
    objectives: tuple[str, ...]
    front: tuple[SearchTrialRow, ...]
    importance: tuple[tuple[Markdown, str], ...]
    why_no_importance: str


def search_section(searches: Sequence[SearchState]) -> SearchSection | None:
    """What the page says; None if nothing was searched."""
    if not searches:
        return None
    first = searches[0]
    searching = first.task.searching
    rows, options = [search_row(search) for search in searches], option_rows(searches)
    ended = all(search.ended for search in searches)
    several = isinstance(searching, Search) and len(searching.objectives) > 1
    importance, why_not = _importance(first)
    return SearchSection(
        title="Search" if isinstance(searching, Search) else "Tuning",
        how=_how(searching, ended=ended),
        space=tuple(_space(searching)),
        rows=tuple(rows),
        options=tuple(options),
        hardly_tried=_hardly_tried(options) if ended else Markdown(""),
        fixed=Markdown(listed([f"`{path}`" for path in not_searched(first.task)])),
        warnings=tuple(filter(None, (_edges(rows), _hardly(searches), _untuned(searches)))),
        best=() if len(searches) > 1 or several else tuple(_best(first)),
        objectives=tuple(_OBJECTIVES[name] for name in getattr(searching, "objectives", ())),
        front=tuple(_front(first)) if several else (),
        importance=tuple(importance),
        why_no_importance=why_not,
    )


def trials_of_tuning(searches: Sequence[SearchState], variants: Sequence[str]) -> list[int]:
    """How many trials tuned each of these variants; a baseline that is still being tuned has the file's values."""
    tuned = [s for s in searches if isinstance(s.task.searching, Tune) and s.ended and s.best is not None]
    return [len(search.trials) for search in tuned if search.task.variant in variants]


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
        "it was opened for the trials of the ablation table, trained again on seeds that the search never saw."
        + ("" if ended else " **The search is not over yet.**")
    )


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


def _hardly_tried(rows: Sequence[OptionRow]) -> Markdown:
    """The options with few complete trials."""
    names = [
        f"{escape(row.option)} of `{row.choice}` ({row.states.get('complete', 0)} of {row.trials} complete)"
        for row in rows
        if row.hardly_tried
    ]
    if not names:
        return Markdown("")
    return Markdown(
        f"**Hardly tried**: {listed(names)}. With fewer than {FEWEST_COMPLETE} complete trials, or than the sweep file "
        "asks for, little is known of what an option reaches with values that suit it."
    )


def _edges(rows: Sequence[SearchRow]) -> Markdown:
    places = [f"{escape(row.search.task.variant)} (`{'`, `'.join(row.edges)}`)" for row in rows if row.edges]
    if not places:
        return Markdown("")
    return Markdown(
        f"**At the edge of its range**: {listed(places)}. The best value may lie outside, so that the search may have "
        "cut this short."
    )


def hardly_chosen(searches: Sequence[SearchState]) -> list[str]:
    """Which variants' values are those of the one trial that came to its end."""
    complete = {s.task.variant: sum(t.state == "complete" for t in s.trials) for s in searches if s.ended}
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
    tuned = [search for search in searches if isinstance(search.task.searching, Tune)]
    names = [escape(search.task.variant) for search in tuned if search.ended and search.best is None]
    if not names:
        return Markdown("")
    return Markdown(
        f"**Not tuned, since no trial was complete**: {listed(names)}. With the sweep file's values "
        "no variant is compared with tuned ones; without a tuned baseline none is compared at all."
    )


def _best(search: SearchState) -> list[SearchTrialRow]:
    complete = [trial for trial in search.trials if trial.state == "complete"]
    complete.sort(key=lambda trial: (float("inf") if trial.valid_nats is None else trial.valid_nats, trial.number))
    return [SearchTrialRow(search, trial) for trial in complete[:_BEST_SHOWN]]


def _front(search: SearchState) -> list[SearchTrialRow]:
    trials = sorted(front(search.trials), key=lambda trial: trial.objectives or ())
    return [SearchTrialRow(search, trial) for trial in trials]


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
