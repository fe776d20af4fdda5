"""What a sweep consists of by now, and what is trained next: pure functions of the sweep, its searches and records.

A sweep that searches goes through its searches first, on a training seed of their own; then what each found is trained
on the sweep's seeds, which the search never saw, and only those trials open the test set and enter the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lm.spec import TrainSpec
from orchestrator.agenda.order import in_order
from orchestrator.agenda.trial_source import Chained, FixedOrder, TrialSource
from orchestrator.errors import CannotStartError
from orchestrator.search.ledger import SearchState, ledger_path, read_search_trials
from orchestrator.search.population import history, spec_of
from orchestrator.search.task import SearchTask
from orchestrator.search.trial_source import SearchTrialSource
from orchestrator.sweep import ScaledSweep, Variant
from orchestrator.sweep.override import has, value_at
from orchestrator.sweep.searches import GridSampler, Search, Tune
from orchestrator.trials.facts import Facts
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.trial import Trial

_MOST_COUNTED = 1000
BEST_FOUND = "best found"
"""The variant that a search makes of the base."""


@dataclass(frozen=True)
class SweepState:
    """What a sweep consists of by now: its searches, and the trials of its table."""

    searches: tuple[SearchState, ...]
    trials: list[Trial]

    @property
    def searching(self) -> bool:
        """Whether a search is not over yet."""
        return any(not searched.ended for searched in self.searches)

    @property
    def waiting(self) -> set[str]:
        """The variants whose values a search has still to find."""
        return {searched.task.variant for searched in self.searches if not searched.ended}

    @property
    def table(self) -> list[Trial]:
        """The trials whose values are known; of a variant that is being tuned `trials` may have those of the file."""
        waiting = self.waiting
        return [trial for trial in self.trials if trial.variant not in waiting]


@dataclass(frozen=True)
class Left:
    """How many trials may still be trained: of the searches, None where hours alone bound them, and of the table."""

    search_trials: int | None
    table_trials_fewest: int
    table_trials_most: int

    @property
    def nothing(self) -> bool:
        """Whether all is done."""
        return self.search_trials == 0 and not self.table_trials_most


def expand(sweep: ScaledSweep, records: Records) -> SweepState:
    """The searches and the trials; while a search is not over, only those of variants that wait for none.

    The baseline is always among them, as the file has it while it is being tuned, or where that found nothing.
    """
    searches = tuple(_searches(sweep, records))
    wait = SweepState(searches, []).waiting
    variants = tuple(variant for variant in _found_variants(sweep, searches) if variant.name not in wait)
    if not variants or variants[0].name != sweep.baseline.name:
        variants = (sweep.baseline,)
    trials = _trials(replace(sweep, variants=variants), records)
    if variants[0].spec != sweep.baseline.spec:
        tuned = "the base itself, at its tuned values"
        trials = [replace(t, change=tuned) if t.variant == sweep.baseline.name else t for t in trials]
    if searches and searches[0].task.population:
        trials = [replace(t, change="a schedule, see Search") if t.variant == BEST_FOUND else t for t in trials]
    return SweepState(searches, trials)


def _trials(sweep: ScaledSweep, records: Records) -> list[Trial]:
    if len(sweep.looks) == 1:
        return plan(sweep)
    # Its statistics take most of a second to import.
    from orchestrator.agenda.sequential import trials_by_look

    return trials_by_look(sweep, records)


def trial_source(sweep: ScaledSweep, records: Records) -> TrialSource:
    """All that is to be trained, a round after the other. A trial that failed is not tried again within it."""
    attempted: set[str] = set()
    begun: list[SearchTrialSource] = []

    def following() -> TrialSource | None:
        now = expand(sweep, records)
        if now.searching:
            if begun:  # a trial left no record, not even of a failure: the next command tries it again
                return None
            begun.append(SearchTrialSource([one.task for one in now.searches if not one.ended], records, Facts()))
            return begun[0]
        missing = [trial for trial in unsettled(now.trials, records) if trial.key not in attempted]
        attempted.update(trial.key for trial in missing)
        return FixedOrder(missing) if missing else None

    return Chained(following)


def unsettled(trials: list[Trial], records: Records) -> list[Trial]:
    """The trials that are not settled, to train or to score on test, in the order in which they are trained.

    Those read from others are not among them.
    """
    missing = [trial for trial in trials if trial.reads_from is None and not is_settled(trial, records.find(trial))]
    return in_order(missing, trials)


def what_is_left(sweep: ScaledSweep, now: SweepState, records: Records) -> Left:
    """What a run would train; while a search is not over, all seeds of each variant that it may have in the table.

    Fewer where a search asks for the same values twice, or where seeds are spent until a variant is decided.
    """
    missing = len(unsettled(now.table, records))
    if not now.searching:
        return Left(0, missing, missing)
    variants = len(sweep.variants) + isinstance(sweep.searching, Search)
    most = variants * len(sweep.seeds)
    most = most if sweep.most_trials is None else min(most, sweep.most_trials)
    done = len(now.table) - missing
    each = [search_trials_left(searched) for searched in now.searches]
    search_trials = None if None in each else sum(count for count in each if count is not None)
    return Left(search_trials, max(0, min(most, variants * sweep.looks[0]) - done), max(0, most - done))


def search_trials_left(searched: SearchState) -> int | None:
    """How many trials of a search have not ended; None where hours alone bound it, or a grid is too large to count."""
    if searched.ended:
        return 0
    task, sampler = searched.task, searched.task.searching.sampler
    most = task.trials
    if isinstance(sampler, GridSampler):
        size = sum(1 for _ in islice(task.grid(sampler.points), _MOST_COUNTED + 1))
        if size <= _MOST_COUNTED:
            whole = len(task.searching.start) + size
            most = whole if most is None else min(most, whole)
    return None if most is None else most - sum(found.state != "running" for found in searched.trials)


def search_tasks(sweep: ScaledSweep) -> list[SearchTask]:
    """What is searched: for the base alone, or in tuning for every variant alike.

    Raises CannotStartError where one variant's grid ends before it had the trials that another gets.
    """
    match sweep.searching:
        case None:
            return []
        case Search():
            return [_task(BEST_FOUND, sweep.baseline, sweep.baseline, sweep.searching)]
        case Tune():
            tasks = [_task(variant.name, variant, sweep.baseline, sweep.searching) for variant in sweep.variants]
            _check_grids(tasks)
            return tasks


def _check_grids(tasks: Sequence[SearchTask]) -> None:
    sampler, trials = tasks[0].searching.sampler, tasks[0].searching.trials
    if not isinstance(sampler, GridSampler):
        return
    sizes = {task.variant: sum(1 for _ in islice(task.grid(sampler.points), trials)) for task in tasks}
    fewest, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    if sizes[fewest] < sizes[most]:
        raise CannotStartError(
            f"tune.sampler: every variant gets the same number of trials, but the grid of {fewest!r} ends after "
            f"{sizes[fewest]} and {most!r} would get {sizes[most]}; write 'trials: {sizes[fewest]}', or take another "
            "sampler, such as random"
        )


def _task(name: str, variant: Variant, base: Variant, searching: Search | Tune) -> SearchTask:
    """A variant's search; what the variant sets otherwise than the base is what it is about, and not searched for it.

    Unless the sweep file gives it a range of its own.
    """
    own = searching.variants.get(name, {}) if isinstance(searching, Tune) else {}
    shared = {key: dimension for key, dimension in searching.space.items() if key not in own}
    fixed = tuple(key for key in shared if _value(variant.spec, key) != _value(base.spec, key))
    return SearchTask(
        variant=name,
        base=variant.spec.model_copy(update={"seed": searching.training_seed}),
        searching=searching.model_copy(update={"space": searching.space | own}),
        fixed=fixed,
    )


def _value(spec: TrainSpec, key: str) -> object:
    """What stands at a dotted key; a word of its own where the spec has no such place."""
    return value_at(spec, key) if has(spec, key) else "nothing"


def _searches(sweep: ScaledSweep, records: Records) -> list[SearchState]:
    facts = Facts()
    found = []
    for task in search_tasks(sweep):
        path = ledger_path(records.root, task.key(facts.fingerprint(task.base.corpus)))
        # Another sweep, or this one before it was told otherwise, may have asked for more: budgets stay equal.
        found.append(SearchState(task, path, tuple(read_search_trials(path, task)[: task.trials])))
    return found


def _found_variants(sweep: ScaledSweep, searches: tuple[SearchState, ...]) -> tuple[Variant, ...]:
    """The variants of the table, each with the best values of its search; none whose search ended without any."""
    variants = {variant.name: variant for variant in sweep.variants}
    for searched in searches:
        here = variants.get(searched.task.variant, replace(sweep.baseline, name=searched.task.variant))
        if searched.ended and searched.best is not None:
            chosen = searched.best
            spec, _ = spec_of(searched.task, history(searched.trials, chosen.values, chosen.parent))
            assert spec is not None, "a trial was trained with these values"
            here = replace(here, spec=spec.model_copy(update={"seed": here.spec.seed}))
            variants[here.name] = here
        elif searched.ended:  # as the file has it, it would meet others of a larger budget
            variants.pop(searched.task.variant, None)
    return tuple(variants.values())
