"""From measured steps to hours, bytes and what the seeds can show; sums and formulas only."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lm.data import load
from lm.measured import Measured
from lm.record import CorpusFacts
from lm.spec import TrainSpec
from orchestrator.agenda.expand import BEST_FOUND, SweepState, search_trials_left
from orchestrator.analysis.comparison import losses_on_test, obstacles
from orchestrator.analysis.detectable import smallest_detectable
from orchestrator.analysis.noise import Losses, text_variance
from orchestrator.analysis.outcomes import Outcome, read_outcomes
from orchestrator.analysis.statistics import LEVEL_OF_ERROR, perplexity_change
from orchestrator.execute.cost.measuring import Measuring
from orchestrator.execute.machine import cpu_count, gpu_count, gpu_memory_bytes, gpus_of, memory_bytes
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.plan import TrialStatus, plan, state_of
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, epochs_to_train, stage_epochs

_DRIVER_BYTES = 2**30  # the driver and Ray's own processes; 0.9 GiB were measured with two workers
_CUDA_CONTEXT_BYTES = 600 * 2**20
_HEADROOM = 1.15
_TOKEN_BYTES, _POINT_BYTES, _RECORD_BYTES = 6, 120, 30_000
_TO_TRAIN: tuple[TrialStatus, ...] = ("new", "to resume", "failed", "damaged")


@dataclass(frozen=True)
class VariantCost:
    """A variant's trials that are to train. The rate is the median step's; the seconds are of all of them, in a row."""

    variant: str
    trials: int
    tokens_per_second: float
    seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class Packing:
    """How many trials at once each resource allows, None where there is no such limit."""

    by_cpus: int
    by_memory: int | None
    by_gpus: int | None

    @property
    def at_once(self) -> int:
        """The least of them; 0 where not even one fits."""
        return min(limit for limit in (self.by_cpus, self.by_memory, self.by_gpus) if limit is not None)


@dataclass(frozen=True)
class Detectable:
    """The smallest true difference that gets a verdict with a probability of 80%, from the noise of records on disk.

    `deviation_nats` is that of seeds, `text_error_nats` the standard error of a difference by the text, None where it
    is not known.
    """

    nats: float
    perplexity: float
    deviation_nats: float
    text_error_nats: float | None
    seeds: int


@dataclass(frozen=True)
class Estimate:
    """What is left of a sweep. Early stops count in full: an upper estimate. The neural cache's search is not in it.

    The seconds are of the wall with so many `jobs`; the core-hours are those of all trials, times a trial's CPUs.
    """

    states: Mapping[TrialStatus, int]
    variants: tuple[VariantCost, ...]
    jobs: int
    seconds: float
    core_hours: float
    disk_bytes: int
    checkpoint_bytes: int
    packing: Packing | None
    detectable: Detectable | None


def estimate(
    sweep: ScaledSweep, now: SweepState, records: Records, measuring: Measuring, jobs: int | None = None
) -> Estimate:
    """Measure what has to train, and reckon. Without `jobs` as many at once as fit.

    What a search asks for is not known before: each of its trials counts as the base trained to its end.
    """
    trials = _most_trials(sweep, now)
    states = {trial.key: state_of(trial, records) for trial in trials}
    missing = [trial for trial in trials if states[trial.key] in _TO_TRAIN]
    found = {trial.key: measuring.of(trial.spec) for trial in missing}
    facts = _facts(missing)
    seconds = _seconds(trials, found, facts, records)
    packing = packing_of(sweep, [found[trial.key] for trial in missing]) if missing else None
    at_once = max(1, min(jobs or math.inf, packing.at_once if packing else 1))
    on_disk = [disk_bytes(trial.spec, found[trial.key], facts[trial.key]) for trial in missing]
    checkpoints = sorted((checkpoint_bytes(trial.spec, found[trial.key]) for trial in missing), reverse=True)
    return Estimate(
        states=dict(Counter(states[trial.key] for trial in trials)),
        variants=tuple(
            _variant_cost(name, missing, found, seconds) for name in dict.fromkeys(trial.variant for trial in trials)
        ),
        jobs=int(at_once),
        seconds=makespan(seconds.values(), int(at_once)),
        core_hours=sum(seconds.values()) * sweep.resources.cpus / 3600,
        disk_bytes=sum(on_disk),
        checkpoint_bytes=sum(checkpoints[: int(at_once)]),
        packing=packing,
        detectable=_detectable(sweep, read_outcomes(trials, records, sweep.baseline.name)),
    )


def core_hours(sweep: ScaledSweep, now: SweepState, records: Records, measuring: Measuring) -> float | None:
    """As in an `Estimate`, without measuring: None where a model that has to train was never measured."""
    trials = _most_trials(sweep, now)
    missing = [trial for trial in trials if state_of(trial, records) in _TO_TRAIN]
    if not all(measuring.knows(trial.spec) for trial in missing):
        return None
    found = {trial.key: measuring.of(trial.spec) for trial in missing}
    return sum(_seconds(trials, found, _facts(missing), records).values()) * sweep.resources.cpus / 3600


def _facts(trials: Sequence[Trial]) -> dict[str, CorpusFacts]:
    """What each trial reads, by key."""
    found = {corpus: load(corpus).facts for corpus in {trial.spec.corpus for trial in trials}}
    return {trial.key: found[trial.spec.corpus] for trial in trials}


def _seconds(
    trials: Iterable[Trial], found: Mapping[str, Measured], facts: Mapping[str, CorpusFacts], records: Records
) -> dict[str, float]:
    """The most that each trial that was measured may still take, by key."""
    known = {trial.key: trial for trial in trials}
    specs = {key: trial.spec for key, trial in known.items()}
    return {
        key: trial_seconds(known[key], found[key], facts[key], specs, _epochs_done(known[key], records))
        for key in found
    }


def _most_trials(sweep: ScaledSweep, now: SweepState) -> list[Trial]:
    """All that may still be trained or is done: while a search is not over, of each variant with all its seeds."""
    if not now.searching:
        return now.trials
    waiting = now.waiting
    # With the values of the file a variant may have records of another sweep, which do not count for the tuned ones.
    trials = [
        replace(trial, key=f"{trial.title}, tuned", reads_from=None, starts_from=None)
        if trial.variant in waiting
        else trial
        for trial in plan(sweep)
    ]
    for searched in now.searches:
        task, more = searched.task, search_trials_left(searched) or 0
        example = replace(trials[0], change="", spec=task.base, opens_test=False, reads_from=None, starts_from=None)
        each = task.base.model_copy(update={"epochs": max(task.generations)}) if task.population else task.base
        trials += [
            replace(example, variant=f"search for {task.variant}", spec=each, key=f"{task.variant} {n}")
            for n in range(more)
        ]
        if task.variant == BEST_FOUND:
            trials += [replace(example, variant=BEST_FOUND, key=f"{BEST_FOUND}, seed {seed}") for seed in sweep.seeds]
    return trials


def trial_seconds(
    trial: Trial, measured: Measured, facts: CorpusFacts, specs: Mapping[str, TrainSpec], epochs_done: int = 0
) -> float:
    """The most that a trial may still take: its epochs, each scored on validation, and both texts at a stage's end.

    Stages that it takes over cost nothing; `specs` holds its source by key.
    """
    epochs = max(0, epochs_to_train(trial, specs) - epochs_done)
    stages = len(trial.spec.stages()) - _taken_over(trial, specs)
    epoch = facts.train_tokens / measured.train_tokens_per_second
    valid = facts.valid_tokens / measured.valid_tokens_per_second
    test = facts.test_tokens / measured.test_tokens_per_second
    return measured.start_seconds + epochs * (epoch + valid) + stages * (valid + test)


def disk_bytes(spec: TrainSpec, measured: Measured, facts: CorpusFacts) -> int:
    """What a settled trial keeps: weights of each trained stage, 6 bytes a scored token, curve and record."""
    stages = stage_epochs(spec)
    trained = sum(name != "cache" for name in stages)
    scored = len(stages) * (facts.valid_tokens + facts.test_tokens) * _TOKEN_BYTES
    return trained * measured.weights_bytes + scored + sum(stages.values()) * _POINT_BYTES + _RECORD_BYTES


def checkpoint_bytes(spec: TrainSpec, measured: Measured) -> int:
    """The two checkpoints of a trial under way: weights, the best ones, the average, Adam's two moments."""
    averages = spec.optimizer.kind == "nt_asgd" or spec.finetune is not None
    return 2 * measured.weights_bytes * (2 + averages + 2 * (spec.optimizer.kind == "adam"))


def makespan(seconds: Iterable[float], jobs: int) -> float:
    """How long trials take that are started longest first, `jobs` at once; who waits for whom is left out."""
    ends = [0.0] * jobs
    for one in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + one)
    return max(ends)


def gpu_share(peak_memory_bytes: int, total_bytes: int) -> int:
    """How many trials of such a peak fit on a GPU at once, with headroom and a context for each; at least 1."""
    return max(1, int(total_bytes / (_HEADROOM * peak_memory_bytes + _CUDA_CONTEXT_BYTES)))


def packing_of(sweep: ScaledSweep, measured: Sequence[Measured]) -> Packing:
    """How many trials at once fit, by the model that needs the most memory, beside the driver itself."""
    peak, gpus = max(found.peak_memory_bytes for found in measured), gpus_of(sweep.resources)
    by_cpus, room, total = int(cpu_count() / sweep.resources.cpus), memory_bytes(), gpu_memory_bytes()
    if not gpus:
        by_memory = None if room is None else max(0, int((room - _DRIVER_BYTES) / (_HEADROOM * peak)))
        return Packing(by_cpus, by_memory, None)
    by_gpus = int(gpu_count() / gpus + 1e-9)
    if total is not None and gpus < 1:
        by_gpus = min(by_gpus, gpu_count() * gpu_share(peak, total))
    return Packing(by_cpus, None, by_gpus)


def _taken_over(trial: Trial, specs: Mapping[str, TrainSpec]) -> int:
    source = specs.get(trial.starts_from or "")
    theirs = {} if source is None else source.stages()
    return sum(theirs.get(name) == spec for name, spec in trial.spec.stages().items())


def _epochs_done(trial: Trial, records: Records) -> int:
    curve = records.curve(trial)
    return curve[-1].epoch if curve else 0


def _variant_cost(
    variant: str, missing: Sequence[Trial], found: Mapping[str, Measured], seconds: Mapping[str, float]
) -> VariantCost:
    own = [trial for trial in missing if trial.variant == variant]
    rates = [found[trial.key].train_tokens_per_second for trial in own]
    peaks = [found[trial.key].peak_memory_bytes for trial in own]
    total = sum(seconds[trial.key] for trial in own)
    return VariantCost(variant, len(own), min(rates, default=math.nan), total, max(peaks, default=0))


def _detectable(sweep: ScaledSweep, outcomes: Mapping[str, tuple[Outcome, ...]]) -> Detectable | None:
    """From the noise of seeds and text in this sweep's own finished trials; None where no variant's seeds differ.

    Of the variants that may be compared once they are complete, at the level of the last look. The text's noise is the
    mean one of their differences to the baseline, None where losses by token are not at hand.
    """
    base = outcomes.get(sweep.baseline.name, ())
    passing = {"not complete", "another budget"}  # what is still to come, and what has an interval too
    compared = {
        name: losses_on_test(group)
        for name, group in outcomes.items()
        if group[0].trial.opens_test
        and {obstacle.reason for obstacle in obstacles(outcomes, [name, sweep.baseline.name])} <= passing
    }
    repeated = [losses.nats for losses in compared.values() if losses.nats.size >= 2]
    if not repeated:
        return None
    squares = sum(float(((nats - nats.mean()) ** 2).sum()) for nats in repeated)
    deviation = math.sqrt(squares / sum(nats.size - 1 for nats in repeated))
    text_error = _text_error(compared, sweep.baseline.name)
    level = 1 - LEVEL_OF_ERROR / len(sweep.looks)
    nats = smallest_detectable(deviation, text_error or 0.0, len(sweep.seeds), len(compared) - 1, level)
    if nats is None:
        return None
    baseline = losses_on_test(base)
    mean = float((baseline.nats if baseline.nats.size else repeated[0]).mean())
    return Detectable(nats, perplexity_change(mean, nats), deviation, text_error, len(sweep.seeds))


def _text_error(compared: Mapping[str, Losses], baseline: str) -> float | None:
    texts_B = {name: losses.blocks.mean(axis=0) for name, losses in compared.items() if losses.blocks is not None}
    if baseline not in texts_B:
        return None
    found = [text_variance(text_B - texts_B[baseline]) for name, text_B in texts_B.items() if name != baseline]
    return math.sqrt(sum(found) / len(found)) if found else None
