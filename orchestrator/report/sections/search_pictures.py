"""What the pictures of searches show, and the tables beside them: where trials were stopped, head by codebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lm.record import perplexity
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures import search as figures
from orchestrator.report.pictures.search import SearchAxis, SearchPoint
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState, best
from orchestrator.sweep.space import Integer, LogUniform, OneOf, Range, dimensions_of
from orchestrator.words import counted, listed, number

_CODEBOOK = "head.codebook"
_ABSENT = "none"


@dataclass(frozen=True)
class RungRow:
    """An epoch at which trials were stopped: how many came that far, which were stopped, the best loss of those."""

    epoch: int
    reached: int
    stopped: Sequence[tuple[str, SearchTrial]]

    @property
    def names(self) -> str:
        """The trials that were stopped, by the variant that was tuned: `4 and 7 of full`."""
        variants = dict.fromkeys(variant for variant, _ in self.stopped)
        numbers = {name: [str(trial.number) for variant, trial in self.stopped if variant == name] for name in variants}
        return "; ".join(f"{listed(which)}{f' of {name}' if name else ''}" for name, which in numbers.items())

    @property
    def best_nats(self) -> float | None:
        """The lowest validation loss among those that were stopped."""
        return min((trial.valid_nats for _, trial in self.stopped if trial.valid_nats is not None), default=None)


@dataclass(frozen=True)
class Grid:
    """Two choices against each other: the best validation perplexity of their trials, and how many there were."""

    down: str
    across: str
    options: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str | None]]]


@dataclass(frozen=True)
class SearchShown:
    """What the page shows beside its tables: `colours` says what they stand for, empty if all are alike."""

    drawn: bool
    colours: str
    hollow: str
    slices: Sequence[str]
    rungs: Sequence[RungRow]
    grid: Grid | None


def show_searches(searches: Sequence[SearchState], pictures: Pictures) -> SearchShown:
    """Draw `search.svg`, `slices.svg` and, if trials were stopped early, `rungs.svg`; what the page says of them."""
    trials, heads = _points(searches)
    axes = _axes(searches) if trials else []
    rungs = rung_rows(searches)
    if trials:
        pictures.draw("search.svg", figures.course, trials)
        pictures.draw("slices.svg", figures.slices, trials, axes)
    if rungs:
        pictures.draw("rungs.svg", figures.rungs, trials, [row.epoch for row in rungs])
    several = len({point.group for point in trials}) > 1
    population = any(search.task.population for search in searches)
    return SearchShown(
        drawn=bool(trials),
        colours=("kinds of output layer" if heads else "variants") if several else "",
        hollow="of an earlier generation" if population else "not complete",
        slices=[axis.path for axis in axes],
        rungs=rungs,
        grid=_grid(searches[0]) if len(searches) == 1 else None,
    )


def rung_rows(searches: Sequence[SearchState]) -> list[RungRow]:
    """A row for each epoch at which trials were stopped early; none of a population, where all others go on."""
    searches = [search for search in searches if not search.task.population]
    alone = len(searches) == 1
    of_all = [("" if alone else search.task.title, trial) for search in searches for trial in search.trials]
    epochs = sorted({trial.epochs for _, trial in of_all if trial.state == "stopped"})
    return [
        RungRow(
            epoch=epoch,
            reached=sum(trial.epochs >= epoch for _, trial in of_all),
            stopped=[(name, trial) for name, trial in of_all if trial.state == "stopped" and trial.epochs == epoch],
        )
        for epoch in epochs
    ]


def _points(searches: Sequence[SearchState]) -> tuple[list[SearchPoint], bool]:
    """Every trial with a loss; whether colours are not variants but, of a lone search, the several kinds of heads."""
    tried = [(search, trial) for search in searches for trial in search.trials if trial.valid_nats is not None]
    kinds = [search.task.walked(trial.values).last_spec.head.kind for search, trial in tried]
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
        options = dict.fromkeys(
            option for choice in dimensions if isinstance(choice, OneOf) for option in choice.options
        )
        ranges = [dimension for dimension in dimensions if not isinstance(dimension, OneOf)]
        log = bool(ranges) and all(r.low > 0 for r in ranges) and any(_is_log(r) for r in ranges)
        ends = (min(r.low for r in ranges), max(r.high for r in ranges)) if ranges else (0.0, 1.0)
        axes.append(SearchAxis(key, "log" if log else "linear", list(options), ends))
    return axes


def _is_log(dimension: Range) -> bool:
    return isinstance(dimension, LogUniform) or (isinstance(dimension, Integer) and dimension.log)


def _grid(search: SearchState) -> Grid | None:
    """The first other choice against the codebook, if both are searched; trials without a codebook come first."""
    choices = {key: place for key, place in search.task.space.items() if isinstance(place, OneOf)}
    down = next((key for key in choices if key != _CODEBOOK), None)
    if down is None or _CODEBOOK not in choices or search.task.population:
        return None
    across = [_ABSENT, *choices[_CODEBOOK].options]
    cells = {(row, column): list[SearchTrial]() for row in choices[down].options for column in across}
    for trial in search.trials:
        if down in trial.values:
            cells[trial.values[down], trial.values.get(_CODEBOOK, _ABSENT)].append(trial)
    columns = [column for column in across if any(cells[row, column] for row in choices[down].options)]
    rows = [(row, [_cell(cells[row, column]) for column in columns]) for row in choices[down].options]
    return Grid(down, _CODEBOOK, columns, rows)


def _cell(trials: Sequence[SearchTrial]) -> str | None:
    """`93.31 (11)`; a dash before the number if none is complete, nothing without a trial."""
    if not trials:
        return None
    lowest = best(trials)
    reached = "–" if lowest is None or lowest.valid_nats is None else number(perplexity(lowest.valid_nats))
    return f"{reached} ({counted(len(trials), 'trial')})"
