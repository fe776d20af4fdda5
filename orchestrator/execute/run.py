"""A sweep from plan to report: train what is missing, write the page, mirror all of it to MLflow."""

from __future__ import annotations

import math
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lm.checkout import commit
from lm.files import check_writable
from orchestrator.agenda.expand import SweepState, expand, trial_source, unsettled
from orchestrator.agenda.trial_source import StopOnStorageError, TrialSource, UntilDeadline
from orchestrator.execute.cost import Measuring, core_hours
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.pages import Interim, LastMade
from orchestrator.execute.prepare import Prepared
from orchestrator.execute.run_trial import run_inline
from orchestrator.execute.watchdog import forget_stalls
from orchestrator.report import Report
from orchestrator.report.report_sweep import report_sweep
from orchestrator.trials.records import Records, is_settled
from orchestrator.watch.mlflow import Planned, Tracker
from orchestrator.watch.progress import Listeners, Progress
from orchestrator.words import seconds_in

Outcome = Literal["complete", "stopped", "failed"]


@dataclass(frozen=True)
class _End:
    """What a sweep consists of after a command, its report, and whether the command spent its budget."""

    state: SweepState
    report: Report
    budget_spent: bool


def run_sweep(prepared: Prepared) -> tuple[int, Path | None]:
    """Train what is missing, write the report, bring MLflow up to date; the exit code, and the page if there is one.

    0 all complete, 1 some failed or diverged, 3 the budget was spent before all had settled, 130 or 143 interrupted.
    Raises RayLostError (exit code 4) if Ray was lost and could not be started again, WriteError (5) if the disk is full
    or a folder cannot be written.
    """
    interrupt = Interrupt()
    try:
        with interrupt.handled():
            return _run(prepared, interrupt)
    except BaseException as error:
        if not interrupt.caused(error):
            raise
        print(_to_go_on(prepared, "Interrupted"))
        return interrupt.exit_code or 128 + signal.SIGINT, None


def outcome(state: SweepState, records: Records) -> Outcome:
    """Whether every trial is complete; `stopped` if some can go on, `failed` if the others diverged or failed.

    A search without any complete trial counts as failed too: what it was to find is not in the table.
    """
    ended = [(trial, records.find(trial)) for trial in state.trials]
    if state.searching or any(
        not is_settled(trial, record) and (record is None or record.status != "failed") for trial, record in ended
    ):
        return "stopped"
    complete = all(record is not None and record.status == "complete" for _, record in ended)
    return "complete" if complete and all(search.best is not None for search in state.searches) else "failed"


def _run(prepared: Prepared, interrupt: Interrupt) -> tuple[int, Path]:
    state, records, options = prepared.state, prepared.records, prepared.options
    missing = {trial.key for trial in unsettled(state.table, records)}
    done = {trial.key for trial in state.table if trial.reads_from is None} - missing
    train = bool(missing) or state.searching
    folder = options.reports / prepared.sweep.name / prepared.sweep.scale
    last = LastMade(prepared.whole, options.file, folder, records)
    report = None if train or options.only else last.report(state)
    if train and prepared.whole.resources.gpus and not prepared.allotment.gpus:
        print(_without_gpu(prepared), file=sys.stderr)
    with Progress(state.table, done=done, records=records if train else None) as progress:
        if report is not None and last.is_mirrored:
            end = _End(state, report, budget_spent=False)
        else:
            end = _make(prepared, progress, interrupt, last, report, train=train)
    records.note_checked()
    report, how = end.report, outcome(end.state, records)
    out_of_budget = end.budget_spent and how == "stopped" and interrupt.exit_code is None
    if interrupt.exit_code is not None or out_of_budget:
        print(_to_go_on(prepared, f"The budget of {options.budget} is spent" if out_of_budget else "Interrupted"))
    if report.beside is not None:
        print(report.beside)
    print(report.page)
    if how == "stopped" and interrupt.exit_code is None and not out_of_budget:
        check_writable(records.root)  # a trial could not even record its failure: the folder may be the reason
    return interrupt.exit_code or (3 if out_of_budget else int(how != "complete")), report.page


def _make(
    prepared: Prepared,
    progress: Progress,
    interrupt: Interrupt,
    last: LastMade,
    report: Report | None,
    *,
    train: bool,
) -> _End:
    """Train, write the report unless it stands, and mirror."""
    sweep, whole, records, options = prepared.sweep, prepared.whole, prepared.records, prepared.options
    state, budget_spent = prepared.state, False

    def write(state: SweepState) -> Report:
        return report_sweep(whole, options.file, state, records, options.reports, if_fuller="write beside")

    tracker = Tracker(
        sweep=sweep.name,
        question=sweep.question,
        scale=sweep.scale,
        trials=state.table,
        records=records,
        commit=commit(),
    )
    try:
        if train:
            interim = Interim(lambda: expand(whole, records), write, records, progress.say)
            budget_spent = _train(prepared, Listeners(progress, tracker, interim), interrupt)
        state = expand(sweep, records)
        reported = expand(whole, records) if options.only else state
        if report is None:
            report = write(reported)
    except BaseException:
        tracker.finish(None, outcome(state, records))
        raise
    mirrored = tracker.finish(
        report.page.parent, outcome(state, records), report.answer, report.verdicts, _planned(reported)
    )
    if not options.only:
        last.write(state, report, mirrored=mirrored)
    return _End(state, report, budget_spent)


def _train(prepared: Prepared, listener: Listeners, interrupt: Interrupt) -> bool:
    """Train all that is missing, or what the budget allows; whether it was spent."""
    options, state = prepared.options, prepared.state
    forget_stalls(prepared.records.root)
    deadline = time.monotonic() + (math.inf if options.budget is None else seconds_in(options.budget))

    def source() -> TrialSource:
        trials = StopOnStorageError(trial_source(prepared.sweep, prepared.records))
        return UntilDeadline(trials, deadline - time.monotonic())

    if options.executor == "inline":
        run_inline(source(), prepared.allotment, listener, interrupt)
    else:
        from orchestrator.execute.ray import Order, run_on_ray

        corpora = {trial.spec.corpus for trial in state.trials} | {s.task.base.corpus for s in state.searches}
        order = Order(prepared.allotment, options.jobs, options.address, tuple(corpora), options.verbose)
        run_on_ray(source, order, listener, interrupt)
    return time.monotonic() >= deadline


def _planned(state: SweepState) -> Planned:
    searched = [(trial.key, search.task.variant) for search in state.searches for trial in search.trials if trial.key]
    return Planned.of(state.trials, searched, [search.task.variant for search in state.searches if not search.ended])


def _to_go_on(prepared: Prepared, why: str) -> str:
    """What a command that ended early prints: the line that goes on, with all of its options."""
    line = prepared.command + prepared.options.on_command_line()
    return f"{why}; nothing finished is lost. To go on:\n  {line}"


def _without_gpu(prepared: Prepared) -> str:
    """What is printed before trials that could use a GPU train on CPUs: the core-hours, and the line of a part."""
    sweep, options = prepared.sweep, prepared.options
    hours = core_hours(sweep, prepared.state, prepared.records, Measuring.granted(sweep.resources))
    if hours is None:
        line = prepared.command.replace(" sweep ", " plan ", 1)
        asked = options.on_command_line(("runs", "cpus", "gpus"))
        text = f"no GPU: trials train on CPUs; to see how many core-hours they take:\n  {line} --estimate{asked}"
    else:
        text = f"no GPU: trials train on CPUs and take at most {hours:,.1f} core-hours"
    if not options.only and len(sweep.variants) > 1:
        line = prepared.command + options.on_command_line()
        variant = sweep.variants[1].name
        text += f"\na part of it, {variant} and the baseline:\n  {line} {shlex.join(['--only', variant])}"
    return text
