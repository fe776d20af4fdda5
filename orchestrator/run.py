"""A sweep from plan to report: what is missing is trained, everything is mirrored and told."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from lm.checkout import commit
from lm.data import load
from lm.record import CorpusFacts
from orchestrator.budget import seconds_in
from orchestrator.course import Course, Planned, Within
from orchestrator.interrupt import Interrupt, on_interrupt
from orchestrator.machine import CannotStartError, check_machine
from orchestrator.packing import granted_gpus, multi_process_service
from orchestrator.plan import plan
from orchestrator.progress import Listeners, Progress
from orchestrator.records import Records
from orchestrator.report_sweep import report_sweep, sweep_command
from orchestrator.sweep import ScaledSweep
from orchestrator.timing import epochs_to_train
from orchestrator.tracking import Tracker
from orchestrator.trial import Trial
from orchestrator.work import Grant

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
    verbose: bool = False
    checkpoint_seconds: float = 600.0
    budget: str | None = None
    mps: bool = False


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start: its trials, and those of them that have to train, longest first."""

    sweep: ScaledSweep
    options: Options
    trials: list[Trial]
    missing: list[Trial]
    records: Records
    grant: Grant


def prepare(sweep: ScaledSweep, options: Options) -> Prepared:
    """Plan, and make sure that what is missing can be trained here; nothing is started.

    Raises CannotStartError where CPUs, a GPU or the text for one trial are missing, CorpusError for a corpus.
    """
    trials = plan(sweep)
    records = Records(options.runs.resolve())
    missing = unsettled(trials, records)
    gpus = granted_gpus(sweep.resources, (trial.spec for trial in missing))
    grant = Grant(records.root, sweep.resources.cpus, gpus, options.checkpoint_seconds)
    if missing and options.address is None:
        check_machine(grant.cpus, grant.gpus)
    for trial in missing:  # a corpus is found or fetched, checked and encoded once, before eight workers want it
        _check_columns(trial, load(trial.spec.corpus).facts)
    for folder in (options.runs, options.reports):
        folder.mkdir(parents=True, exist_ok=True)
    return Prepared(sweep, options, trials, missing, records, grant)


def run_sweep(prepared: Prepared) -> int:
    """Train what is missing, write the report, bring MLflow up to date; the exit code.

    0 all complete, 1 some failed or diverged, 3 the budget was spent before all had settled, 130 or 143 interrupted.
    """
    interrupt = Interrupt()
    try:
        with on_interrupt(interrupt, _raise):
            return _run(prepared, interrupt)
    except KeyboardInterrupt:
        print(_to_go_on(prepared))
        return interrupt.exit_code or 128 + signal.SIGINT


def _run(prepared: Prepared, interrupt: Interrupt) -> int:
    sweep, trials, records, options = prepared.sweep, prepared.trials, prepared.records, prepared.options
    done = {t.key for t in trials if t.reads_from is None} - {t.key for t in prepared.missing}
    report: Path | None = None
    with Progress(trials, done=done) as progress:
        tracker = Tracker(
            sweep=sweep.name,
            question=sweep.question,
            scale=sweep.scale,
            trials=trials,
            records=records,
            commit=commit(),
        )
        try:
            if prepared.missing:
                with multi_process_service(options.mps):
                    _execute(prepared, Listeners(progress, tracker), interrupt)
            report = report_sweep(sweep, options.file, trials, records, options.reports)
        finally:
            settled = [records.find(trial) for trial in trials]
            complete = all(record is not None and record.status == "complete" for record in settled)
            tracker.finish(
                report and report.parent, "complete" if complete else "stopped" if None in settled else "failed"
            )
    unfinished = options.budget is not None and None in settled and interrupt.exit_code is None
    if interrupt.exit_code is not None or unfinished:
        print(_to_go_on(prepared, f"The budget of {options.budget} is spent" if unfinished else "Interrupted"))
    print(report)
    return interrupt.exit_code or (3 if unfinished else int(not complete))


def unsettled(trials: Sequence[Trial], records: Records) -> list[Trial]:
    """The trials that have to train, without a record or with one that failed; those read from others do not.

    The longest come first, so that no worker idles at the end while another begins a long one.
    """
    specs = {trial.key: trial.spec for trial in trials}
    missing = [
        trial
        for trial in trials
        if trial.reads_from is None and ((record := records.find(trial)) is None or record.status == "failed")
    ]
    return sorted(missing, key=lambda trial: trial.parameters * epochs_to_train(trial, specs), reverse=True)


def _check_columns(trial: Trial, facts: CorpusFacts) -> None:
    scoring = trial.spec.scoring
    for key, tokens, count in (
        ("batch_size", facts.train_tokens, trial.spec.batch_size),
        ("scoring.valid_columns", facts.valid_tokens, scoring.valid_columns),
        ("scoring.test_columns", facts.test_tokens, scoring.test_columns),
    ):
        if tokens // count < 3:
            raise CannotStartError(
                f"{trial.variant}: {key} = {count} cuts {tokens} tokens into columns of {tokens // count}; "
                "at least 3 are needed"
            )


def _to_go_on(prepared: Prepared, why: str = "Interrupted") -> str:
    """What a command that ended early says: the line that goes on, with every option that was not its default."""
    options = prepared.options
    line = sweep_command(prepared.sweep, options.file)
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name != "file" and value != field.default:
            name, value = {"checkpoint_seconds": ("checkpoint_minutes", options.checkpoint_seconds / 60)}.get(
                field.name, (field.name, value)
            )
            line += f" --{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
    return f"{why}; nothing finished is lost. To go on:\n  {line}"


def _raise() -> None:
    raise KeyboardInterrupt


def _execute(prepared: Prepared, listener: Listeners, interrupt: Interrupt) -> None:
    options = prepared.options
    course: Course = Planned(prepared.missing)
    if options.budget is not None:
        course = Within(course, seconds_in(options.budget))
    if options.executor == "inline":
        from orchestrator.inline import run_inline

        run_inline(course, prepared.grant, listener, interrupt)
        return
    from orchestrator.schedule import run_on_ray

    run_on_ray(
        course,
        prepared.grant,
        listener,
        interrupt,
        jobs=options.jobs,
        address=options.address,
        verbose=options.verbose,
    )
