"""What a sweep consists of by now, and what is trained next: pure functions of the sweep, its searches and records.

A sweep that searches goes through its searches first, on a training seed of their own. Then the best values of each are
trained on the sweep's seeds, which the search never saw; only those trials open the test set and enter the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from lm.files import check_writable
from lm.record import Record
from orchestrator.agenda.trial_source import FixedOrder, InTurn, TrialSource, in_order
from orchestrator.analysis.looks import Looks, read_looks
from orchestrator.errors import CannotStartError
from orchestrator.search.ledger import SearchState, ledger_path, read_search
from orchestrator.search.task import SearchTask
from orchestrator.search.trial_source import SearchTrialSource, trials_so_far
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.draws import paths_of
from orchestrator.sweep.override import changed_paths, override
from orchestrator.sweep.scaled import BEST_FOUND, BY_HAND, Variant, select
from orchestrator.sweep.searches import Search, Tune
from orchestrator.trials.locks import lock_path
from orchestrator.trials.plan import Facts, plan
from orchestrator.trials.records import DISK_FULL, Records, is_settled
from orchestrator.trials.trial import Trial


@dataclass(frozen=True)
class SweepState:
    """What a sweep consists of by now: its searches, the trials of its table, those that later looks may add."""

    searches: tuple[SearchState, ...]
    trials: list[Trial]
    looks: Looks = field(default_factory=Looks)
    further: list[Trial] = field(default_factory=list)

    @property
    def waiting(self) -> set[str]:
        """The variants whose values a search has still to find."""
        return {name for search in self.searches if not search.ended for name in search.task.variants}

    @property
    def table(self) -> list[Trial]:
        """The trials whose values are final; of a variant that is being tuned `trials` may have those of the file."""
        waiting = self.waiting
        return [trial for trial in self.trials if trial.variant not in waiting]

    @property
    def trained(self) -> list[Trial]:
        """The trials of the table but those that read another's stages."""
        return [trial for trial in self.table if trial.reads_from is None]

    @property
    def tracked(self) -> list[Trial]:
        """All that MLflow shows: the trials of the table, and those that searches have asked for."""
        return [*self.table, *(trial for search in self.searches for trial in trials_so_far(search))]


@dataclass(frozen=True)
class Remaining:
    """How many trials may still be trained: of the searches, None if hours alone bound them, and of the table."""

    search_trials: int | None
    table_trials_fewest: int
    table_trials_most: int

    @property
    def nothing(self) -> bool:
        """Whether all is done."""
        return self.search_trials == 0 and not self.table_trials_most


def expand(sweep: ScaledSweep, records: Records) -> SweepState:
    """The searches and the trials; while a search is not over, only those of variants that wait for none.

    The baseline is always among them, as the file has it while it is being tuned, or if its tuning found nothing. A
    change that does not fit what a search of the base found is not.
    """
    searches = _read_searches(sweep, records)
    current = replace(sweep, variants=_with_found_values(sweep, searches))
    looks = read_looks(looks_path(sweep, records), sweep.looks, sweep.seeds, sweep.variant_seeds)
    trials = trials_by_look(current, records, looks)
    further = _of_later_looks(current, trials, records)
    return SweepState(searches, _with_words(trials, current.variants[0], sweep, searches), looks, further)


def _read_searches(sweep: ScaledSweep, records: Records) -> tuple[SearchState, ...]:
    """What the ledgers hold, of each within the budget of this sweep, so that budgets stay equal."""
    facts, tasks = Facts(), search_tasks(sweep)
    keys = [task.key(facts.fingerprint(task.base.corpus)) for task in tasks]
    return tuple(read_search(ledger_path(records.root, key), task) for key, task in zip(keys, tasks, strict=True))


def _with_found_values(sweep: ScaledSweep, searches: Sequence[SearchState]) -> tuple[Variant, ...]:
    """The variants with the values that searches found, the baseline first.

    Those whose search is not over, or found nothing, are left out: with the file's values they would meet others of a
    larger budget. The baseline stays all the same, alone if it is among them, because then nothing is compared.
    """
    variants, left_out = {variant.name: variant for variant in sweep.variants}, set[str]()
    for search in searches:
        task = search.task
        if not search.ended or (found := search.best_spec) is None:
            left_out.update(task.variants)
            continue
        variant = variants.get(task.variant, replace(sweep.baseline, name=task.variant))
        spec = found.model_copy(update={"seed": variant.spec.seed})
        of_seeds = variant.by_seed if task.seed is None else {**variant.by_seed, task.seed: spec}
        variants[task.variant] = replace(variant, spec=variant.spec if of_seeds else spec, by_seed=of_seeds)
        for name, changes in task.built_on.items():
            variants[name] = replace(variants[name], spec=override(spec, changes)[0])
        left_out.update(search.misfits)
    if sweep.baseline.name in left_out:
        return (sweep.baseline,)
    return tuple(variant for name, variant in variants.items() if name not in left_out)


def _with_words(
    trials: Sequence[Trial], baseline: Variant, sweep: ScaledSweep, searches: Sequence[SearchState]
) -> list[Trial]:
    """The trials, each with what it changes in words where a search decides that."""
    words = {BEST_FOUND: "a schedule, see Search"} if searches and searches[0].task.population else {}
    if baseline != sweep.baseline:
        how = "as the search found it" if sweep.base_is_found else "at its tuned values"
        words[baseline.name] = f"the base itself, {how}"
    for trial in trials if sweep.base_is_found else ():
        words.setdefault(trial.variant, trial.change or "nothing: what was found has it already")
    return [replace(trial, change=words.get(trial.variant, trial.change)) for trial in trials]


def looks_path(sweep: ScaledSweep, records: Records) -> Path:
    """The ledger of the pages whose verdicts were read, one for all seeds: those of `--seeds` are looks as well."""
    values = replace(sweep.changes, seeds=None)
    scale = values.label(sweep.scale_in_file) if values.values else sweep.scale_in_file
    return lock_path(records.root, sweep.name, scale).with_suffix(".looks")


def trials_by_look(sweep: ScaledSweep, records: Records, looks: Looks) -> list[Trial]:
    """The trials up to the first look that is not over, or the last one; a pure function of sweep and records.

    Every look is judged at its own share of the error (`analysis.looks`). A variant that is decided, equal to the
    baseline in every seed, or not comparable gets no more seeds. The baseline has all at once: it is in every
    comparison, so that the others need fewer.
    """
    if len(sweep.looks) == 1:
        return plan(sweep)
    from orchestrator.analysis.comparison import compare_variants  # takes most of a second
    from orchestrator.analysis.outcomes import read_outcomes

    counts = dict.fromkeys((variant.name for variant in sweep.variants), sweep.looks[0])
    counts[sweep.baseline.name] = sweep.looks[-1]
    trials = plan(sweep, counts)
    for seeds, look in pairwise(sweep.looks):
        outcomes = read_outcomes(trials, records, sweep.baseline.name)
        if any(outcome.record is None for outcome in outcomes.all):
            break
        comparison = compare_variants(outcomes, looks.error(seeds), sweep.margin)
        effects = comparison.effects if comparison else {}
        undecided = [name for name, effect in effects.items() if effect.verdict == "not decided"]
        counts |= dict.fromkeys(undecided, look)
        more = plan(sweep, counts)
        if not undecided or (sweep.most_trials is not None and len(more) > sweep.most_trials):
            break
        trials = more
    return trials


def _of_later_looks(sweep: ScaledSweep, trials: Sequence[Trial], records: Records) -> list[Trial]:
    """What is added to the trials of a look that is not over if it decides nothing."""
    if len(sweep.looks) == 1 or all(records.find(trial) for trial in trials):
        return []
    counts = {v.name: sum(trial.variant == v.name for trial in trials) for v in sweep.variants}
    seeds = max((count for name, count in counts.items() if name != sweep.baseline.name), default=0)
    rising = [name for name, count in counts.items() if count == seeds]
    known = {trial.title for trial in trials}
    further = [t for t in plan(sweep, counts | dict.fromkeys(rising, sweep.looks[-1])) if t.title not in known]
    return further if sweep.most_trials is None else further[: sweep.most_trials - len(trials)]


def trials_to_train(
    sweep: ScaledSweep,
    records: Records,
    seconds: float = math.inf,
    fetch: Callable[[Trial], None] = lambda trial: None,
    expect: Callable[[SweepState], None] = lambda state: None,
) -> InTurn:
    """All that is to be trained and starts within `seconds`. A trial that failed is not tried again within it.

    `fetch` is called before a search looks a trial up in the records, `expect` with the state whose trials come next.
    """

    def sources() -> Iterator[TrialSource]:
        state, attempted = expand(sweep, records), set[str]()
        if state.waiting:
            yield SearchTrialSource([s.task for s in state.searches if not s.ended], records, Facts(), fetch)
            state = expand(sweep, records)
            if state.waiting:  # a trial left no record, not even of a failure: the next command tries it again
                return
        while missing := [trial for trial in unsettled(state.trials, records) if trial.key not in attempted]:
            attempted.update(trial.key for trial in missing)
            expect(state)
            yield FixedOrder(missing)
            state = expand(sweep, records)

    return InTurn(sources(), seconds, check=lambda: check_writable(records.root))


def unsettled(trials: list[Trial], records: Records) -> list[Trial]:
    """The trials to train or to score on test, in the order of training, without those read from others."""
    missing = [trial for trial in trials if trial.reads_from is None and not is_settled(trial, records.find(trial))]
    return in_order(missing, trials)


def disk_failure(state: SweepState, records: Records) -> Record | None:
    """The record of a trial still to be trained that failed because the disk was full; None without one."""
    keys = [trial.key for trial in unsettled(state.trials, records)]
    searched = (trial for search in state.searches for trial in search.trials)
    keys += [trial.key for trial in searched if trial.key and trial.state == "running"]
    left = map(records.read, keys)
    return next((record for record in left if record and (record.reason or "").startswith(DISK_FULL)), None)


def what_is_left(sweep: ScaledSweep, state: SweepState, records: Records) -> Remaining:
    """The most that a run would train; while a search is not over, all seeds of each variant the table may have."""
    missing = len(unsettled(state.table, records))
    if not state.waiting:
        return Remaining(0, missing, missing + sum(trial.reads_from is None for trial in state.further))
    extra = sweep.adds_best_found
    most = sum(len(sweep.seeds_of(variant)) for variant in sweep.variants) + extra * len(sweep.variant_seeds)
    most = most if sweep.most_trials is None else min(most, sweep.most_trials)
    done = len(state.table) - missing
    each = [search_trials_left(search) for search in state.searches]
    search_trials = None if None in each else sum(filter(None, each))
    fewest = sweep.looks[-1] + (len(sweep.variants) + extra - 1) * sweep.looks[0]
    return Remaining(search_trials, max(0, min(most, fewest) - done), max(0, most - done))


def search_trials_left(search: SearchState) -> int | None:
    """How many trials of a search have not ended; None if hours alone bound it, and are not spent."""
    running = sum(trial.state == "running" for trial in search.trials)
    if search.asked_enough or search.task.trials is None:
        return running if search.asked_enough else None
    return search.task.trials - len(search.trials) + running


def search_seconds_left(search: SearchState) -> float:
    """The seconds that a search may still train if hours alone bound it, otherwise 0."""
    hours = search.task.training_hours if search_trials_left(search) is None else None
    return max(0.0, 3600 * hours - sum(trial.seconds for trial in search.trials)) if hours else 0.0


def search_tasks(sweep: ScaledSweep) -> list[SearchTask]:
    """What is searched, for the base or every variant alike; CannotStartError if one's grid ends before another's."""
    searching = sweep.searching
    if searching is None:
        return []
    if isinstance(searching, Search):
        name = sweep.baseline.name if sweep.base_is_found else BEST_FOUND  # a row beside the base, if that is not found
        built_on = {v.name: v.overrides for v in sweep.variants[1:] if v.name != BY_HAND}
        return [replace(_task(sweep, sweep.baseline, searching), variant=name, built_on=built_on)]
    tasks = [_task(sweep, variant, searching) for variant in sweep.variants]
    if searching.repeats > 1:  # one for each seed, with a sampler seed of its own
        tasks = [
            replace(task, seed=seed, searching=task.searching.model_copy(update={"sampler_seed": number}))
            for task in tasks
            for number, seed in enumerate(sweep.seeds, start=searching.sampler_seed)
        ]
    sizes = {task.variant: task.trials or 0 for task in tasks}
    fewest, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    if sizes[fewest] < sizes[most]:
        raise CannotStartError(
            f"tune.sampler: every variant gets the same number of trials, but the grid of {fewest!r} ends after "
            f"{sizes[fewest]} and {most!r} would get {sizes[most]}; write 'trials: {sizes[fewest]}', or take "
            "another sampler, such as random"
        )
    return tasks


def selected(whole: ScaledSweep, only: Sequence[str]) -> ScaledSweep:
    """As `select`, and refuses what `search_tasks` does also if it is of a variant that is left out."""
    search_tasks(whole)
    return select(whole, only)


def _task(sweep: ScaledSweep, variant: Variant, searching: Search | Tune) -> SearchTask:
    """A variant's search, without what the variant changes of the base, unless the file gives it a range of its own."""
    named = variant.control_of or variant.name
    ranges = searching.variants.get(named, {}) if isinstance(searching, Tune) else {}

    def changes(key: str) -> bool:
        """Whether the variant changes what the key stands for; of a named change, what one of its options sets."""
        return bool(changed_paths(sweep.baseline.spec, variant.spec, paths_of(key, searching.space[key])))

    return SearchTask(
        variant=variant.name,
        base=variant.spec.model_copy(update={"seed": searching.training_seed}),
        searching=searching.model_copy(update={"space": searching.space | ranges}),
        fixed=tuple(key for key in searching.space if key not in ranges and changes(key)),
    )
