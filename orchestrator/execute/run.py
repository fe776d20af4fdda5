"""A sweep from plan to report: what is missing is trained, everything is mirrored and told."""

from __future__ import annotations

import math
import shlex
import signal
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lm.checkout import commit
from lm.data import load
from lm.files import check_writable, make_folder
from lm.record import CorpusFacts
from lm.spec import TrainSpec
from orchestrator.agenda.expand import SweepState, expand, trial_source, unsettled
from orchestrator.agenda.trial_source import StopOnStorageError, UntilDeadline
from orchestrator.errors import CannotStartError
from orchestrator.execute.cost import Measuring, core_hours
from orchestrator.execute.finished import LastMade
from orchestrator.execute.interim import Interim
from orchestrator.execute.interrupt import Interrupt, on_interrupt
from orchestrator.execute.machine import check_machine, check_utf8, gpus_of, has_gpu
from orchestrator.execute.options import Options
from orchestrator.execute.packing import granted, multi_process_service
from orchestrator.execute.run_trial import Allotment
from orchestrator.execute.watchdog import forget_stalls
from orchestrator.report import Report
from orchestrator.report.report_sweep import report_sweep, sweep_command
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.storage import Storage, exchange
from orchestrator.watch.mlflow import Planned, Tracker
from orchestrator.watch.progress import Listeners, Progress
from orchestrator.words import seconds_in


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start: what is left to train as far as it is known, and how.

    The report is of the `whole` sweep, also where only some of its variants are run. Its resources are the file's.
    """

    sweep: ScaledSweep
    whole: ScaledSweep
    options: Options
    state: SweepState
    records: Records
    allotment: Allotment


def prepare(sweep: ScaledSweep, options: Options, *, whole: ScaledSweep | None = None, fresh: bool = False) -> Prepared:
    """Plan, and make sure that what is missing can be trained here; nothing is started.

    `sweep` may be a part of the `whole`; with `fresh` all of it is to train, whatever has a record.
    Raises CannotStartError where CPUs, a GPU or the text for one trial are missing, CorpusError for a corpus.
    """
    check_utf8(Path.cwd(), options.runs.resolve(), options.reports.resolve())
    if options.executor == "inline" and (options.address is not None or (options.jobs or 1) > 1):
        raise CannotStartError(
            "--executor inline: trials train here, one after the other; --address and --jobs need ray"
        )
    whole = whole or sweep
    sweep = replace(sweep, resources=granted(sweep.resources, options.cpus, options.gpus))
    records = Records(options.runs.resolve(), own_only=fresh)
    if options.storage is not None:
        if fresh:
            raise CannotStartError("--fresh: the storage would give the old records back; take another --storage")
        exchange(Storage(options.storage), lambda: expand(sweep, Records(records.root)).trials, records)
    now = expand(sweep, records)
    missing = [trial for trial in now.table if trial.reads_from is None] if fresh else unsettled(now.table, records)
    specs = {trial.variant: trial.spec for trial in missing} | {s.task.variant: s.task.base for s in now.searches}
    allotment = Allotment(
        runs=records.root,
        cpus=sweep.resources.cpus,
        gpus=gpus_of(sweep.resources),
        checkpoint_seconds=options.checkpoint_seconds,
        storage=options.storage,
        stall_seconds=_stall_seconds(sweep, options),
    )
    if missing or now.searching:
        if options.address is None:
            check_machine(allotment.cpus, allotment.gpus, sweep.scales_without_gpu)
        elif sweep.resources.gpus == "auto" and not has_gpu():
            raise CannotStartError(
                "resources.gpus: auto asks whether this machine has a GPU, and it has none; for the cluster at "
                f"{options.address} say --gpus 0.25, another share that a trial needs, or --gpus 0"
            )
    for variant, spec in specs.items():  # a corpus is found or fetched, and encoded once, before eight workers want it
        _check_columns(variant, spec, load(spec.corpus).facts)
    for folder in (options.runs, options.reports):  # found out now, and not after hours of training
        make_folder(folder)
        check_writable(folder)
    return Prepared(sweep, whole, options, now, records, allotment)


def run_sweep(prepared: Prepared) -> tuple[int, Path | None]:
    """Train what is missing, write the report, bring MLflow up to date; the exit code, and the page if there is one.

    0 all complete, 1 some failed or diverged, 3 the budget was spent before all had settled, 130 or 143 interrupted.
    Raises RayLostError (exit code 4) if Ray was lost and could not be started again, WriteError (5) if the disk is full
    or a folder cannot be written.
    """
    interrupt = Interrupt()
    try:
        with on_interrupt(interrupt, _raise):
            return _run(prepared, interrupt)
    except BaseException as error:
        # A second Ctrl-C may meet an import of compiled code, which makes another error of it.
        if not interrupt.insisted and not isinstance(error, KeyboardInterrupt):
            raise
        print(_to_go_on(prepared))
        return interrupt.exit_code or 128 + signal.SIGINT, None


def _run(prepared: Prepared, interrupt: Interrupt) -> tuple[int, Path]:
    sweep, records, options, now = prepared.sweep, prepared.records, prepared.options, prepared.state
    missing = {trial.key for trial in unsettled(now.table, records)}
    done = {trial.key for trial in now.table if trial.reads_from is None} - missing
    last = LastMade(prepared.whole, options.file, options.reports / sweep.name / sweep.scale, records)
    train = bool(missing) or now.searching
    report = last.report(now) if not (train or options.only) else None
    budget_spent = False
    if train and prepared.whole.resources.gpus and not prepared.allotment.gpus:
        print(_on_cpus(prepared), file=sys.stderr)
    with Progress(now.table, done=done, records=records if train else None) as progress:
        if report is None or not last.is_mirrored:
            now, report, budget_spent = _make(prepared, progress, interrupt, last, report, train=train)
    records.note_checked()
    outcome = _outcome(now, records)
    unfinished = budget_spent and outcome == "stopped" and interrupt.exit_code is None
    if interrupt.exit_code is not None or unfinished:
        print(_to_go_on(prepared, f"The budget of {options.budget} is spent" if unfinished else "Interrupted"))
    if report.beside is not None:
        print(report.beside)
    print(report.page)
    if outcome == "stopped" and interrupt.exit_code is None and not unfinished:
        check_writable(records.root)  # a trial that could not even record its failure: the folder may be the reason
    return interrupt.exit_code or (3 if unfinished else int(outcome != "complete")), report.page


def _make(
    prepared: Prepared,
    progress: Progress,
    interrupt: Interrupt,
    last: LastMade,
    report: Report | None,
    *,
    train: bool,
) -> tuple[SweepState, Report, bool]:
    """Train, write the report unless it stands, mirror: what the sweep consists of then, the report, whether the
    budget was spent.
    """
    sweep, whole, records, now = prepared.sweep, prepared.whole, prepared.records, prepared.state
    options, budget_spent = prepared.options, False

    def write(now: SweepState) -> Report:
        return report_sweep(whole, options.file, now, records, options.reports, if_fuller="write beside")

    tracker = Tracker(sweep=sweep, trials=now.table, records=records, commit=commit())
    try:
        if train:
            with (
                multi_process_service(options.mps),
                closing(Interim(lambda: expand(whole, records), write, records, progress.say)) as interim,
            ):
                budget_spent = _execute(prepared, Listeners(progress, tracker, interim), interrupt)
        now = expand(sweep, records)
        reported = expand(whole, records) if options.only else now
        if report is None:
            report = write(reported)
    finally:
        outcome = _outcome(now, records)
        if report is None:
            tracker.finish(None, outcome)
        else:
            planned = _planned(reported)
            mirrored = tracker.finish(report.page.parent, outcome, report.answer, report.verdicts, planned)
    if not options.only:
        last.write(now, report, mirrored=mirrored)
    return now, report, budget_spent


def _outcome(now: SweepState, records: Records) -> Literal["complete", "stopped", "failed"]:
    """Whether every trial is complete; `stopped` where some can go on, `failed` where the others diverged or failed.

    A search without any complete trial counts as failed too: what it was to find is not in the table.
    """
    found = [(trial, records.find(trial)) for trial in now.trials]
    failed = [record is not None and record.status == "failed" for _, record in found]
    settled = [is_settled(trial, record) for trial, record in found]
    if now.searching or not all(a or b for a, b in zip(failed, settled, strict=True)):
        return "stopped"
    searched = all(searched.best is not None for searched in now.searches)
    return "complete" if searched and all(r is not None and r.status == "complete" for _, r in found) else "failed"


def _planned(now: SweepState) -> Planned:
    searched = [(found.key, one.task.variant) for one in now.searches for found in one.trials if found.key is not None]
    return Planned(now.trials, searched, [one.task.variant for one in now.searches if not one.ended])


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
    if 60 * minutes <= options.checkpoint_seconds:
        raise CannotStartError(
            f"resources.stall_minutes = {minutes:g} must exceed the {options.checkpoint_seconds / 60:g} minutes "
            "between checkpoints (--checkpoint-minutes), when nothing is written within an epoch"
        )
    return 60 * minutes


def _to_go_on(prepared: Prepared, why: str = "Interrupted") -> str:
    """What a command that ended early says: the line that goes on, with every option that was not its default."""
    line = sweep_command(prepared.sweep, prepared.options.file) + prepared.options.in_words()
    return f"{why}; nothing finished is lost. To go on:\n  {line}"


def _on_cpus(prepared: Prepared) -> str:
    """What is said before trials that the file gives a GPU train without: how long, and the line of a part."""
    sweep, options = prepared.sweep, prepared.options
    line = sweep_command(sweep, options.file)
    hours = core_hours(sweep, prepared.state, prepared.records, Measuring.granted(sweep.resources))
    if hours is None:
        asked = options.in_words(("runs", "cpus", "gpus"))
        told = f"{line.replace(' sweep ', ' plan ', 1)} --estimate{asked}"
        said = f"no GPU: trials train on CPUs; how many core-hours they take is told by\n  {told}"
    else:
        said = f"no GPU: trials train on CPUs and take at most {hours:,.1f} core-hours"
    if not options.only and len(sweep.variants) > 1:
        part = shlex.join(["--only", sweep.variants[1].name])
        said += f"\na part of it, {sweep.variants[1].name} and the baseline:\n  {line}{options.in_words()} {part}"
    return said


def _raise() -> None:
    raise KeyboardInterrupt


def _execute(prepared: Prepared, listener: Listeners, interrupt: Interrupt) -> bool:
    """Train all that is missing, or what the budget allows; whether it was spent."""
    options, now = prepared.options, prepared.state
    forget_stalls(prepared.records.root)
    training = StopOnStorageError(trial_source(prepared.sweep, prepared.records))
    within = UntilDeadline(training, math.inf if options.budget is None else seconds_in(options.budget))
    if options.executor == "inline":
        from orchestrator.execute.inline import run_inline

        run_inline(within, prepared.allotment, listener, interrupt)
        return within.is_over
    from orchestrator.execute.ray import run_on_ray

    run_on_ray(
        within,
        prepared.allotment,
        listener,
        interrupt,
        jobs=options.jobs,
        address=options.address,
        corpora={trial.spec.corpus for trial in now.trials} | {found.task.base.corpus for found in now.searches},
        verbose=options.verbose,
    )
    return within.is_over
