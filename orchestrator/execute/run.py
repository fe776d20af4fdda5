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
from orchestrator.trials.plan import state_of
from orchestrator.trials.records import Records
from orchestrator.watch.mlflow import Planned, Tracker
from orchestrator.watch.progress import Listeners, Progress
from orchestrator.words import seconds_in

Ending = Literal["complete", "stopped", "failed"]


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


def ending(state: SweepState, records: Records) -> Ending:
    """Whether every trial is complete; `stopped` if some can go on, `failed` if the others diverged or failed.

    A search without any complete trial counts as failed too: what it was to find is not in the table.
    """
    states = {state_of(trial, records) for trial in state.trials}
    if state.searching or states - {"done", "diverged", "failed"}:
        return "stopped"
    return "complete" if states <= {"done"} and all(search.best is not None for search in state.searches) else "failed"


def _run(prepared: Prepared, interrupt: Interrupt) -> tuple[int, Path]:
    options, records = prepared.options, prepared.records
    end = _train_and_report(prepared, interrupt)
    records.note_checked()
    report, how = end.report, ending(end.state, records)
    out_of_budget = end.budget_spent and how == "stopped" and interrupt.exit_code is None
    if interrupt.exit_code is not None or out_of_budget:
        print(_to_go_on(prepared, f"The budget of {options.budget} is spent" if out_of_budget else "Interrupted"))
    if report.beside is not None:
        print(report.beside)
    print(report.page)
    if how == "stopped" and interrupt.exit_code is None and not out_of_budget:
        check_writable(records.root)  # a trial could not even record its failure: the folder may be the reason
    return interrupt.exit_code or (3 if out_of_budget else int(how != "complete")), report.page


def _train_and_report(prepared: Prepared, interrupt: Interrupt) -> _End:
    """Train what is missing, write the report unless it stands, and mirror unless that stands too."""
    sweep, whole, options, records = prepared.sweep, prepared.whole, prepared.options, prepared.records
    state, budget_spent = prepared.state, False
    missing = {trial.key for trial in unsettled(state.table, records)}
    done = {trial.key for trial in state.table if trial.reads_from is None} - missing
    train = bool(missing) or state.searching
    last = LastMade(whole, options.file, options.reports / sweep.name / sweep.scale, records)
    report = None if train or options.only else last.report(state)
    if train and whole.resources.gpus and not prepared.allotment.gpus:
        print(_without_gpu(prepared), file=sys.stderr)

    def write(state: SweepState) -> Report:
        return report_sweep(whole, options.file, state, records, options.reports, if_fuller="write beside")

    with Progress(state.table, done=done, records=records if train else None) as progress:
        if report is not None and last.is_mirrored:
            return _End(state, report, budget_spent)
        tracker = Tracker(sweep, state.table, records, commit=commit())
        try:
            if train:
                interim = Interim(lambda: expand(whole, records), write, records, progress.say)
                budget_spent = _train(prepared, Listeners(progress, tracker, interim), interrupt)
            state = expand(sweep, records)
            reported = expand(whole, records) if options.only else state
            if report is None:
                report = write(reported)
        except BaseException:
            tracker.finish(None, ending(state, records))
            raise
        searches = reported.searches
        searched = [(trial.key, search.task.variant) for search in searches for trial in search.trials if trial.key]
        undecided = [search.task.variant for search in searches if not search.ended]
        planned = Planned(reported.trials, searched, undecided)
        how = ending(state, records)
        mirrored = tracker.finish(report.page.parent, how, report.answer, report.verdicts, planned)
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


def _to_go_on(prepared: Prepared, why: str) -> str:
    """What a command that ended early prints: the line that goes on."""
    return f"{why}; nothing finished is lost. To go on:\n  {prepared.line()}"


def _without_gpu(prepared: Prepared) -> str:
    """What is printed before trials that could use a GPU train on CPUs: the core-hours, and the line of a part."""
    sweep = prepared.sweep
    hours = core_hours(sweep, prepared.state, prepared.records, Measuring.granted(sweep.resources))
    if hours is None:
        line = f"{prepared.line('plan', ('runs', 'cpus', 'gpus'))} --estimate"
        text = f"no GPU: trials train on CPUs; to see how many core-hours they take:\n  {line}"
    else:
        text = f"no GPU: trials train on CPUs and take at most {hours:,.1f} core-hours"
    if not prepared.options.only and len(sweep.variants) > 1:
        variant = sweep.variants[1].name
        line = f"{prepared.line()} {shlex.join(['--only', variant])}"
        text += f"\na part of it, {variant} and the baseline:\n  {line}"
    return text
