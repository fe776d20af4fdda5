"""Before a sweep starts: how it is to run, what is left to train, and whether it can be trained."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from lm.data import load
from lm.files import check_writable, make_folder
from lm.record import CorpusFacts
from lm.spec import TrainSpec
from orchestrator.agenda.expand import SweepState, expand, unsettled
from orchestrator.errors import CannotStartError
from orchestrator.execute.machine import check_machine, gpus_of, granted, has_gpu
from orchestrator.execute.run_trial import Allotment
from orchestrator.report.report_sweep import sweep_command
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records
from orchestrator.trials.storage import Storage, exchange

Executor = Literal["ray", "inline"]


@dataclass(frozen=True)
class Options:
    """How a sweep is run; none of it changes a number."""

    file: Path
    runs: Path = Path("runs")
    reports: Path = Path("reports")
    executor: Executor = "ray"
    jobs: int | None = None
    address: str | None = None
    storage: str | None = None
    verbose: bool = False
    checkpoint_minutes: float = 10.0
    only: tuple[str, ...] = ()
    budget: str | None = None
    cpus: float | None = None
    gpus: float | str | None = None


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start.

    The report is about the `whole` sweep, even if `sweep` has only some of its variants.
    """

    sweep: ScaledSweep
    whole: ScaledSweep
    options: Options
    state: SweepState
    records: Records
    allotment: Allotment

    def line(self, command: str = "sweep", options: Collection[str] | None = None) -> str:
        """The command line for this sweep, with the `options` that differ from their defaults (None: all of them)."""
        words = [sweep_command(self.sweep, self.options.file).replace(" sweep ", f" {command} ", 1)]
        for field in fields(Options)[1:]:
            value, option = getattr(self.options, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default and (options is None or field.name in options):
                for item in value if isinstance(value, tuple) else (value,):
                    words.append(option if item is True else f"{option} {shlex.quote(str(item))}")
        return " ".join(words)


def prepare(sweep: ScaledSweep, options: Options, *, whole: ScaledSweep | None = None, fresh: bool = False) -> Prepared:
    """Plan, and make sure that what is missing can be trained; nothing is started.

    `sweep` may be a part of the `whole`; with `fresh` all of it is to train, even if it has records.
    Raises CannotStartError if CPUs, a GPU or the text for one trial are missing, CorpusError for a corpus.
    """
    if options.executor == "inline" and (options.address is not None or (options.jobs or 1) > 1):
        raise CannotStartError(
            "--executor inline: trials train in this process, one after the other; --address and --jobs need ray"
        )
    whole = whole or sweep
    sweep = replace(sweep, resources=granted(sweep.resources, options.cpus, options.gpus))
    records = Records(options.runs.resolve(), own_only=fresh)
    if options.storage is not None:
        if fresh:
            raise CannotStartError("--fresh: the storage would give the old records back; take another --storage")
        exchange(Storage(options.storage), lambda: expand(sweep, Records(records.root)).trials, records)
    state = expand(sweep, records)
    missing = [trial for trial in state.table if trial.reads_from is None] if fresh else unsettled(state.table, records)
    allotment = Allotment(
        runs=records.root,
        cpus=sweep.resources.cpus,
        gpus=gpus_of(sweep.resources),
        checkpoint_seconds=60 * options.checkpoint_minutes,
        storage=options.storage,
        stall_seconds=_stall_seconds(sweep, options),
    )
    if missing or state.searching:
        if options.address is None:
            check_machine(allotment.cpus, allotment.gpus, sweep.scales_without_gpu)
        elif sweep.resources.gpus == "auto" and not has_gpu():
            raise CannotStartError(
                "resources.gpus: auto asks whether this machine has a GPU, and it has none; for the cluster at "
                f"{options.address} say --gpus 0.25, another share that a trial needs, or --gpus 0"
            )
    specs = {trial.variant: trial.spec for trial in missing} | {s.task.variant: s.task.base for s in state.searches}
    for variant, spec in specs.items():  # fetches and encodes each corpus once, before eight workers want it
        _check_columns(variant, spec, load(spec.corpus).facts)
    for folder in (options.runs, options.reports):  # rather now than after hours of training
        make_folder(folder)
        check_writable(folder)
    return Prepared(sweep, whole, options, state, records, allotment)


def _check_columns(variant: str, spec: TrainSpec, facts: CorpusFacts) -> None:
    scoring = spec.scoring
    for key, tokens, count in (
        ("batch_size", facts.train_tokens, spec.batch_size),
        ("scoring.valid_columns", facts.valid_tokens, scoring.valid_columns),
        ("scoring.test_columns", facts.test_tokens, scoring.test_columns),
    ):
        if tokens // count < 3:
            raise CannotStartError(
                f"{variant}: {key} = {count} cuts {tokens} tokens into columns of {tokens // count}; "
                "at least 3 are needed"
            )


def _stall_seconds(sweep: ScaledSweep, options: Options) -> float | None:
    """The stall limit; none for trials in this process, which it would end with them."""
    minutes = sweep.resources.stall_minutes
    if minutes is None or options.executor == "inline":
        return None
    if minutes <= options.checkpoint_minutes:
        raise CannotStartError(
            f"resources.stall_minutes = {minutes:g} must exceed the {options.checkpoint_minutes:g} minutes "
            "between checkpoints (--checkpoint-minutes), because nothing else is written within an epoch"
        )
    return 60 * minutes
