"""What a sweep will cost, from measured steps: hours, bytes, and the smallest difference that its seeds can show."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from lm.cpus import cpu_count
from lm.data import load
from lm.measured import Measured
from lm.record import CorpusFacts
from orchestrator.agenda.expand import SweepState, search_seconds_left, search_trials_left, unsettled
from orchestrator.analysis.comparison import Detectable, detectable
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.execute.machine import gpu_slots, gpus_of, list_gpus, memory_bytes
from orchestrator.execute.measuring import Measuring, measured_spec
from orchestrator.search.trial_source import trials_so_far
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.scaled import BEST_FOUND
from orchestrator.trials.plan import PlanStatus, plan, state_of
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, epochs_after, stage_epochs, stages_to_train

_DRIVER_BYTES = 2**30  # the driver and Ray's own processes; 0.9 GiB were measured with two workers
_CUDA_CONTEXT_BYTES, _HEADROOM = 600 * 2**20, 1.15
_TOKEN_BYTES, _POINT_BYTES, _RECORD_BYTES = 6, 120, 30_000
_TO_TRAIN: tuple[PlanStatus, ...] = ("new", "to resume", "failed", "damaged")


@dataclass(frozen=True)
class Job:
    """A trial that is to train: what its model costs, its text, and the most epochs and stages that it has left."""

    trial: Trial
    measured: Measured
    facts: CorpusFacts
    epochs: int
    stages: int

    @property
    def seconds(self) -> float:
        """Its epochs, each scored on validation, and both texts at the end of each stage."""
        facts, measured = self.facts, self.measured
        epoch = facts.train_tokens / measured.train_tokens_per_second
        valid = facts.valid_tokens / measured.valid_tokens_per_second
        scored = valid * (1 + self.trial.spec.scoring.raw_iterate)
        test = facts.test_tokens / measured.test_tokens_per_second
        return measured.start_seconds + self.epochs * (epoch + scored) + self.stages * (valid + test)

    @property
    def disk_bytes(self) -> int:
        """What stays once it has settled: weights of each trained stage, 6 bytes a scored token, curve and record."""
        stages = stage_epochs(self.trial.spec)
        weights = sum(name != "cache" for name in stages) * self.measured.weights_bytes
        scored = len(stages) * (self.facts.valid_tokens + self.facts.test_tokens) * _TOKEN_BYTES
        return weights + scored + sum(stages.values()) * _POINT_BYTES + _RECORD_BYTES

    @property
    def checkpoint_bytes(self) -> int:
        """Its two checkpoints while it trains: weights, the best ones, the average, Adam's two moments."""
        optimizer, finetune = self.trial.spec.optimizer.kind, self.trial.spec.finetune
        averages = optimizer == "nt_asgd" or finetune is not None
        return 2 * self.measured.weights_bytes * (2 + averages + 2 * (optimizer == "adam"))


@dataclass(frozen=True)
class VariantCost:
    """A variant's trials that are to train. The rate is the median step's; the seconds are of all of them, in a row."""

    variant: str
    trials: int
    tokens_per_second: float
    seconds: float
    peak_memory_bytes: int

    @classmethod
    def of(cls, variant: str, jobs: Iterable[Job]) -> VariantCost:
        """Of this variant's jobs among these."""
        jobs = [job for job in jobs if job.trial.variant == variant]
        slowest = min((job.measured.train_tokens_per_second for job in jobs), default=math.nan)
        peak = max((job.measured.peak_memory_bytes for job in jobs), default=0)
        return cls(variant, len(jobs), slowest, sum(job.seconds for job in jobs), peak)


@dataclass(frozen=True)
class Packing:
    """How many trials at once each resource allows, None if it sets no limit; `started` without regard to memory.

    `sweep` knows no model's memory, so that many are what it starts by itself.
    """

    by_cpus: int
    by_memory: int | None
    by_gpus: int | None
    started: int

    @property
    def at_once(self) -> int:
        """The least of them; 0 if not even one fits."""
        return min(limit for limit in (self.by_cpus, self.by_memory, self.by_gpus) if limit is not None)


@dataclass(frozen=True)
class Estimate:
    """What is left of a sweep, at most: early stops count in full. The neural cache's search is not in it.

    `seconds` is the time on the clock with `jobs` trials at once; core-hours count every CPU of every trial.
    """

    states: Mapping[PlanStatus, int]
    variants: tuple[VariantCost, ...]
    jobs: int
    seconds: float
    core_hours: float
    disk_bytes: int
    checkpoint_bytes: int
    packing: Packing | None
    detectable: Detectable | None


def estimate(
    sweep: ScaledSweep,
    state: SweepState,
    records: Records,
    measuring: Measuring,
    at_once: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Estimate:
    """Measure what has to train, and sum it up, for `at_once` trials or as many as fit; `say` each model."""
    trials = most_trials(sweep, state)
    waiting: dict[str, Trial] = {}
    for trial in trials:
        if state_of(trial, records) in _TO_TRAIN and not measuring.has(trial.spec):
            waiting.setdefault(measured_spec(trial.spec).model_dump_json(), trial)
    for number, trial in enumerate(waiting.values(), start=1):
        say(f"measuring model {number} of {len(waiting)}, {trial.variant}, ten seconds to a minute each")
        measuring.of(trial.spec)
    jobs = _jobs(trials, records, measuring)
    packing, lanes, seconds, core_hours = _time(sweep, state, jobs, at_once)
    outcomes = read_outcomes(trials, records, sweep.baseline.name)
    return Estimate(
        states=dict(Counter(state_of(trial, records) for trial in trials)),
        variants=tuple(VariantCost.of(name, jobs) for name in dict.fromkeys(trial.variant for trial in trials)),
        jobs=lanes,
        seconds=seconds,
        core_hours=core_hours,
        disk_bytes=sum(job.disk_bytes for job in jobs),
        checkpoint_bytes=sum(heapq.nlargest(lanes, (job.checkpoint_bytes for job in jobs))),
        packing=packing,
        detectable=detectable(outcomes, state.looks.error(outcomes.seeds)),
    )


@dataclass(frozen=True)
class AtMost:
    """What is left of a sweep, at most; seconds and core-hours as in an `Estimate`, None if a model was never measured.

    `parameters` are those of the largest model.
    """

    trials: int
    parameters: int
    seconds: float | None
    core_hours: float | None


def at_most(
    sweep: ScaledSweep, state: SweepState, records: Records, measuring: Measuring, at_once: int | None = None
) -> AtMost:
    """What is left, without measuring."""
    trials = most_trials(sweep, state)
    left = [trial for trial in trials if state_of(trial, records) in _TO_TRAIN]
    seconds = hours = None
    if left and all(measuring.has(trial.spec) for trial in left):
        _, _, seconds, hours = _time(sweep, state, _jobs(trials, records, measuring), at_once)
    return AtMost(len(left), max((trial.parameters for trial in left), default=0), seconds, hours)


def _time(
    sweep: ScaledSweep, state: SweepState, jobs: Sequence[Job], at_once: int | None
) -> tuple[Packing | None, int, float, float]:
    """What fits, how many trials run at once, the seconds on the clock, the core-hours; hours of a search count too."""
    packing = packing_of(sweep, [job.measured for job in jobs]) if jobs else None
    lanes = int(max(1, min(at_once or math.inf, packing.at_once if packing else 1)))
    cores = max(1.0, sweep.resources.cpus)  # a trial with a part of a CPU was measured on a whole one
    slowed = max(1.0, lanes * cores / cpu_count()) if packing and packing.by_gpus is None else 1.0
    searched = sum(map(search_seconds_left, state.searches))
    each = [job.seconds for job in jobs]
    return packing, lanes, slowed * makespan(each, lanes) + searched / lanes, (sum(each) + searched) * cores / 3600


def _jobs(trials: Sequence[Trial], records: Records, measuring: Measuring) -> list[Job]:
    """Those of the trials that are to train; stages that they take over from another cost nothing."""
    specs = {trial.key: trial.spec for trial in trials}
    facts = cache(lambda corpus: load(corpus).facts)
    jobs = []
    for trial in trials:
        if state_of(trial, records) in _TO_TRAIN:
            stages = stages_to_train(trial, specs)
            epochs = epochs_after(stages, records.curve(trial))
            jobs.append(Job(trial, measuring.of(trial.spec), facts(trial.spec.corpus), epochs, len(stages)))
    return jobs


def most_trials(sweep: ScaledSweep, state: SweepState) -> list[Trial]:
    """All that may be trained or is done; a trial that a search may ask for counts as the base trained to its end."""
    if not state.waiting:
        return state.trials + state.further
    # With the values of the file a variant may have records of another sweep, which do not count for the tuned ones.
    trials = [
        replace(t, key=f"{t.title}, tuned", reads_from=None, starts_from=None)
        if t.variant in state.waiting
        else replace(t, reads_from=None if sweep.base_is_found else t.reads_from)  # by hand, from what is found
        for t in plan(sweep)
    ]
    seeds_of_best = sweep.variant_seeds if any(search.task.variant == BEST_FOUND for search in state.searches) else ()
    if sweep.most_trials is not None:
        trials = trials[: sweep.most_trials - len(seeds_of_best)]
    for search in state.searches:
        task = search.task
        example = replace(trials[0], change="", spec=task.base, opens_test=False, reads_from=None, starts_from=None)
        spec = task.base.model_copy(update={"epochs": max(task.generations)}) if task.population else task.base
        each = replace(example, variant=f"search for {task.variant}", spec=spec)
        trials += [replace(each, key=f"{task.title} {n}") for n in range(search_trials_left(search) or 0)]
        if task.variant == BEST_FOUND:
            each = replace(example, variant=BEST_FOUND, opens_test=True)
            trials += [replace(each, key=f"{BEST_FOUND}, seed {s}") for s in seeds_of_best]
    return trials


def yet_to_come(sweep: ScaledSweep, state: SweepState, records: Records) -> tuple[list[Trial], list[Trial]]:
    """Stand-ins for what searches may still ask for and for what waits for their finds; the trials that are not done.

    Among these are the trials of searches that were interrupted.
    """
    missing = {trial.key for trial in unsettled(state.table, records)}
    left = [trial for trial in state.table if (trial.reads_from or trial.key) in missing]
    if not state.waiting:
        return [], left
    known = {trial.key for trial in state.table}
    for search in state.searches:
        running = {trial.number for trial in search.trials if trial.state == "running"}
        left += [trial for trial in trials_so_far(search) if trial.number in running]
        known |= {f"{search.task.title} {n}" for n in range(len(running))}  # the stand-ins of these
    return [trial for trial in most_trials(sweep, state) if trial.key not in known], left


def makespan(seconds: Iterable[float], jobs: int) -> float:
    """How long trials take that are started longest first, `jobs` at once; that some wait for others is left out."""
    ends = [0.0] * jobs
    for duration in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + duration)
    return max(ends)


def packing_of(sweep: ScaledSweep, measured: Sequence[Measured]) -> Packing:
    """How many trials fit at once, by the model that needs the most memory; on a GPU at least one."""
    peak, gpus_each = max(each.peak_memory_bytes for each in measured), gpus_of(sweep.resources)
    by_cpus = int(cpu_count() / sweep.resources.cpus + 1e-9)
    if not gpus_each:
        room = memory_bytes()
        return Packing(by_cpus, room and max(0, int((room - _DRIVER_BYTES) / (_HEADROOM * peak))), None, by_cpus)
    gpus = list_gpus()
    shares = by_gpus = gpu_slots(len(gpus), gpus_each)
    memory = min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes is not None), default=None)
    if memory is not None and gpus_each < 1:
        by_gpus = min(by_gpus, len(gpus) * max(1, int(memory / (_HEADROOM * peak + _CUDA_CONTEXT_BYTES))))
    return Packing(by_cpus, None, by_gpus, min(by_cpus, shares))
