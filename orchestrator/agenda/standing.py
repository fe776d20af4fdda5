"""Where a sweep stands, from records, curves and locks; also while another process runs it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lm.hashes import CURVE, RECORD
from lm.record import perplexity
from lm.spec import TrainSpec
from orchestrator.agenda.expand import SweepState, unsettled
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.searches import Tune
from orchestrator.trials.locks import Holder, is_held, lock_path, read_holder, sweep_locks
from orchestrator.trials.plan import Facts, PlanStatus, state_in_words, state_of
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, budget_of
from orchestrator.words import counted, listed, number, value_in_words


@dataclass(frozen=True)
class TrialStanding:
    """How far a trial has come, of at most `epochs` in all; `running` is one whose folder a process holds.

    Times in ISO 8601, None before there is one. The perplexities are the curve's last and its best, without a cache.
    """

    variant: str
    seed: int
    key: str
    state: PlanStatus | Literal["running"]
    state_in_words: str
    stage: str | None
    epoch: int
    epochs: int
    valid_perplexity: float | None
    best_valid_perplexity: float | None
    last_epoch_at: str | None
    finished_at: str | None


@dataclass(frozen=True)
class TriedStanding:
    """How far a trial of a search has come: the values that it tries, in words, and its best perplexity so far."""

    number: int
    tries: str
    epochs: int
    valid_perplexity: float | None


@dataclass(frozen=True)
class SearchStanding:
    """How far a search has come; `trials` is None if time decides, `best_values` for a schedule, which changes.

    `running` are its trials under way, or, if `counts` has them `to resume`, those that an interrupt left so.
    """

    variant: str
    asked: int
    trials: int | None
    counts: dict[str, int]
    best_valid_perplexity: float | None
    best_values: dict[str, Any] | None
    running: tuple[TriedStanding, ...] = ()

    def in_words(self) -> str:
        """A line of the terminal, and one for each trial that runs."""
        of = "" if self.trials is None else f" of {self.trials}"
        text = f"search for {self.variant}: {self.asked}{of} trials{': ' if self.counts else ''}"
        text += ", ".join(f"{count} {state}" for state, count in self.counts.items())
        if self.best_valid_perplexity is not None:
            values = ", ".join(f"{key} {value_in_words(value)}" for key, value in (self.best_values or {}).items())
            with_values = f", with {values}" if values else ""
            text += f"; best {number(self.best_valid_perplexity)} validation perplexity{with_values}"
        now = "to resume" if "to resume" in self.counts else "running"
        for trial in self.running:
            text += f"\n  {now}: trial {trial.number} ({trial.tries}), {counted(trial.epochs, 'epoch')}"
            if trial.valid_perplexity is not None:
                text += f", {number(trial.valid_perplexity)} validation perplexity"
        return text


@dataclass(frozen=True)
class SweepStanding:
    """A sweep's trials, who runs it (None if nobody does), its counts by state, and its best trial so far."""

    sweep: str
    scale: str
    held_by: Holder | None
    is_running: bool
    counts: dict[str, int]
    best: TrialStanding | None
    trials: tuple[TrialStanding, ...]
    searches: tuple[SearchStanding, ...]


def search_standings(searches: Iterable[SearchState]) -> tuple[SearchStanding, ...]:
    """Where each of these searches stands, and whether a command runs it."""
    return tuple(search_standing(search, _is_running(search)) for search in searches)


def search_standing(search: SearchState, is_running: bool = True) -> SearchStanding:
    """Where a search stands; unless a command runs it, what was under way is to resume."""
    best, task = search.best, search.task
    return SearchStanding(
        variant=task.title,
        asked=len(search.trials),
        trials=task.trials,
        counts=dict(Counter(_state(trial, is_running) for trial in search.trials)),
        best_valid_perplexity=None if best is None else best.valid_perplexity,
        best_values=None if best is None or task.population else dict(best.values),
        running=tuple(
            TriedStanding(trial.number, task.in_words(trial.values), trial.epochs, trial.valid_perplexity)
            for trial in search.trials
            if trial.state == "running"
        ),
    )


def _is_running(search: SearchState) -> bool:
    return is_held(search.ledger.with_suffix(".lock"))


def _state(trial: SearchTrial, is_running: bool) -> str:
    return "to resume" if trial.state == "running" and not is_running else trial.state


def sweep_standing(sweep: ScaledSweep, state: SweepState, records: Records) -> SweepStanding:
    """Where a sweep stands; ValueError if a record cannot be read."""
    names = {trial.key: trial.variant for trial in state.trained}
    trials = tuple(_standing(trial, names, records) for trial in state.table)
    scored = (trial for trial in trials if trial.best_valid_perplexity is not None)
    lock = lock_path(records.root, sweep.name, sweep.scale)
    running = is_held(lock)
    return SweepStanding(
        sweep=sweep.name,
        scale=sweep.scale,
        held_by=read_holder(lock) if running else None,
        is_running=running,
        counts=dict(Counter(trial.state for trial in trials)),
        best=min(scored, key=lambda trial: trial.best_valid_perplexity or math.inf, default=None),
        trials=trials,
        searches=search_standings(state.searches),
    )


@dataclass(frozen=True)
class TrialLine:
    """A trial in short: its variant, or with the `number` of a search's trial what that tries; its best perplexity."""

    name: str
    number: int | None
    seed: int
    epoch: int
    epochs: int
    valid_perplexity: float | None
    state: str


def trial_lines(standing: SweepStanding, searches: Sequence[SearchState]) -> list[TrialLine]:
    """A line for each trial: those of searches first, as they were trained, then those of the table."""
    lines = []
    for search in searches:
        task, seed, is_running = search.task, search.task.searching.training_seed, _is_running(search)
        for t in search.trials:
            name = f"{task.title}: {task.in_words(t.values)}"
            spec, _ = search.generations.spec(t.values, t.parent)
            epochs = (spec or task.base).most_epochs
            state = _state(t, is_running)
            lines.append(TrialLine(name, t.number, seed, t.epochs, epochs, t.valid_perplexity, state))
    return lines + [
        TrialLine(t.variant, None, t.seed, t.epoch, t.epochs, t.best_valid_perplexity, t.state_in_words)
        for t in standing.trials
    ]


def last_commands(runs: Path) -> list[tuple[Holder, Literal["running", "ended", "killed"]]]:
    """The last command of every sweep that was run with this folder, and what became of it, the latest first.

    OSError if they cannot be listed.
    """
    notes = filter(None, map(read_holder, sweep_locks(runs)))
    return [
        (of, "running" if is_held(lock_path(runs, of.sweep, of.scale)) else "ended" if of.until else "killed")
        for of in sorted(notes, key=lambda holder: holder.since, reverse=True)
    ]


def _standing(trial: Trial, names: Mapping[str, str], records: Records) -> TrialStanding:
    folder, record = records.folder(trial.key), records.find(trial)
    planned = state_of(trial, records)
    running = is_held(folder / ".lock") and not (folder / RECORD).exists()
    curve = records.curve_table(trial, ("stage", "epoch", "valid_nats_per_token"))
    stages, epochs, nats = (column.to_pylist() for column in curve.columns)
    written = None if record is None else record.finished_at  # a copied curve has a new time
    with suppress(FileNotFoundError, NotADirectoryError):
        changed = datetime.fromtimestamp((folder / CURVE).stat().st_mtime, UTC)
        written = written or changed.isoformat(timespec="seconds")
    return TrialStanding(
        variant=trial.variant,
        seed=trial.seed,
        key=trial.key,
        state="running" if running else planned,
        state_in_words="running" if running else state_in_words(trial, planned, names),
        stage=stages[-1] if stages else None,
        epoch=epochs[-1] if epochs else 0,
        epochs=trial.spec.most_epochs,
        valid_perplexity=perplexity(nats[-1]) if nats else None,
        best_valid_perplexity=perplexity(min(nats)) if nats else None,
        last_epoch_at=written,
        finished_at=None if record is None else record.finished_at,
    )


def ended(state: SweepState, records: Records) -> dict[str, Literal["done", "diverged"]]:
    """How each trial of the table stands that needs no more training, by key."""
    missing = {trial.key for trial in unsettled(state.table, records)}
    settled = [trial for trial in state.trained if trial.key not in missing]
    return {trial.key: "diverged" if state_of(trial, records) == "diverged" else "done" for trial in settled}


def no_verdicts(sweep: ScaledSweep, trials: Sequence[Trial]) -> str | None:
    """Which of the planned variants will get no verdict, and why; None if all may get one.

    Known before anything is trained are those of one seed, those with a neural cache, and those with another test text
    or another budget than the baseline: the rule is that of `comparison.obstacles`.
    """
    baseline = {trial.seed: trial.spec for trial in trials if trial.variant == sweep.baseline.name}
    others = [trial for trial in trials if trial.variant != sweep.baseline.name and trial.seed in baseline]
    if not others:
        return None
    if max(Counter(trial.variant for trial in others).values()) == 1:
        return "with one seed no change gets an interval or a verdict, because the noise of seeds is unknown"
    adapts, full = "adapts to the text that is scored", sweep.baseline.name
    if sweep.baseline.spec.cache is not None:
        return f"no verdict on any change: the neural cache of {full} {adapts}"
    reasons: dict[str, dict[str, None]] = {
        f"a neural cache {adapts}": {},
        f"another test text, or other columns of it, than {full}": {},
        f"other epochs, or another training text, than {full}": {},
    }
    cached, other_text, other_budget = reasons.values()
    fingerprint = Facts().fingerprint

    def test_text(spec: TrainSpec) -> tuple[str, int]:
        return fingerprint(spec.corpus), spec.scoring.test_columns

    for trial in others:
        spec, control = trial.spec, baseline[trial.seed]
        if spec.cache is not None:
            cached[trial.variant] = None
        elif test_text(spec) != test_text(control):
            other_text[trial.variant] = None
        elif budget_of(spec) != budget_of(control):
            other_budget[trial.variant] = None
    lines = [f"no verdict on {listed(list(names))}: {reason}" for reason, names in reasons.items() if names]
    return "\n".join(lines) or None


def seeds_advice(sweep: ScaledSweep, trials: Sequence[Trial]) -> str | None:
    """What more seeds of the baseline alone would bring; None if it has more, is in few comparisons, or lists others.

    None also if each seed has a search of its own, which is given as many seeds for all variants.

    The best number of seeds for what all others are compared with is that of one times the root of the others' number
    (Dunnett 1955, "A multiple comparison procedure for comparing several treatments with a control", JASA 50).
    """
    seeds, others = len(sweep.seeds), len({trial.variant for trial in trials} - {sweep.baseline.name})
    more = min(2 * seeds, round(seeds * math.sqrt(others)))
    counted_up = sweep.seeds == sweep.variant_seeds == tuple(range(1, seeds + 1))  # as the numbers of the advice are
    searches_each = isinstance(sweep.searching, Tune) and sweep.searching.repeats > 1
    if seeds < 2 or others < 3 or len(sweep.looks) > 1 or not counted_up or searches_each:
        return None
    narrower = 1 - math.sqrt((1 / more + 1 / seeds) / (2 / seeds))
    return (
        f"the baseline is in all {others} comparisons: 'seeds: {{baseline: {more}, variants: {seeds}}}' makes "
        f"intervals up to {narrower:.0%} narrower for {counted(more - seeds, 'trial')} more"
    )
