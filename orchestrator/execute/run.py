"""A sweep from plan to report: make sure that it can be trained, train what is missing, write the page, mirror it."""

from __future__ import annotations

import errno
import math
import shlex
import signal
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Literal

from lm.checkout import commit
from lm.data import load
from lm.files import WriteError, check_writable, make_folder
from orchestrator.agenda.expand import SweepState, disk_failure, expand, selected, trials_to_train, unsettled
from orchestrator.agenda.standing import ended
from orchestrator.agenda.trial_source import InTurn, TrialSource
from orchestrator.errors import CannotStartError, command_line
from orchestrator.execute.estimate import at_most, yet_to_come
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.machine import SMALL_SCALE, check_machine, gpus_of, granted, has_gpu
from orchestrator.execute.measuring import Measuring
from orchestrator.execute.pages import Interim, LastMade, ask, questions
from orchestrator.execute.run_trial import Allotment, run_inline
from orchestrator.execute.watchdog import forget_stalls
from orchestrator.report import report_sweep, sweep_command
from orchestrator.report.files.folder import Report
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.scaled import text_warnings
from orchestrator.trials.plan import millions, state_of
from orchestrator.trials.records import Records
from orchestrator.trials.storage import Storage, exchange, fetch_unsettled
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.mirror import Planned
from orchestrator.watch.mlflow.tracker import Tracker
from orchestrator.watch.progress import Listeners, Progress
from orchestrator.words import counted, in_words, may_be_unread, print_table, seconds_in

Executor = Literal["ray", "inline"]
Ending = Literal["complete", "stopped", "failed"]
_TO_GO_ON = "; nothing finished is lost. To go on:\n  "


@dataclass(frozen=True)
class Options:
    """How a sweep is run; none of it changes a number.

    CannotStartError if they contradict each other, or `budget` is no span of time such as `8h`.
    """

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
    notify: str | None = None

    def __post_init__(self) -> None:
        if self.executor == "inline" and (self.address is not None or (self.jobs or 1) > 1):
            why = "trials train in this process, one after the other; --address and --jobs need ray"
            raise CannotStartError(f"--executor inline: {why}")
        try:
            if self.budget is not None:
                seconds_in(self.budget)
        except ValueError as error:
            raise CannotStartError(f"--budget: {error}") from error


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start; the report is about the `whole`, even if `sweep` has only some of its variants."""

    sweep: ScaledSweep
    whole: ScaledSweep
    options: Options
    state: SweepState
    records: Records
    allotment: Allotment

    def line(self, command: str = "sweep", options: Collection[str] | None = None) -> str:
        """The command line for this sweep, with the `options` that differ from their defaults (None: all of them)."""
        words = [sweep_command(self.sweep, self.options.file, command)]
        for field in fields(Options)[1:]:
            value, option = getattr(self.options, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default and (options is None or field.name in options):
                items = value if isinstance(value, tuple) else (value,)
                words += [option if item is True else command_line([option, str(item)]) for item in items]
        return " ".join(words)


def prepare(whole: ScaledSweep, options: Options, *, fresh: bool = False) -> Prepared:
    """Plan, and make sure that what is missing, with `fresh` all of it, can be trained; nothing is started.

    Raises CannotStartError if CPUs, a GPU or the text for one trial are missing, CorpusError for a corpus.
    """
    sweep = selected(whole, options.only)
    sweep = replace(sweep, resources=granted(sweep.resources, options.cpus, options.gpus))
    records = Records(options.runs.resolve())
    if options.storage is not None:
        if fresh:
            raise CannotStartError("--fresh: the storage would give the old records back; take another --storage")
        exchange(Storage(options.storage), lambda: expand(sweep, Records(records.root)).trials, records)
    state = expand(sweep, records)
    missing = state.trained if fresh else unsettled(state.table, records)
    stall = None if options.executor == "inline" else sweep.resources.stall_minutes  # it would end this process too
    if stall is not None and stall <= options.checkpoint_minutes:
        raise CannotStartError(
            f"resources.stall_minutes = {stall:g} must exceed the {options.checkpoint_minutes:g} minutes "
            "between checkpoints (--checkpoint-minutes), because nothing else is written within an epoch"
        )
    allotment = Allotment(
        runs=records.root,
        cpus=sweep.resources.cpus,
        gpus=gpus_of(sweep.resources),
        checkpoint_seconds=60 * options.checkpoint_minutes,
        storage=options.storage,
        stall_seconds=stall and 60 * stall,
    )
    specs = [trial.spec for trial in missing] + [search.task.base for search in state.searches]
    specs += [variant.spec for variant in sweep.variants if variant.name in state.waiting]
    if missing or state.waiting:
        if options.address is None:
            check_machine(sweep, specs)
        elif sweep.resources.gpus == "auto" and not has_gpu():
            raise CannotStartError(
                "resources.gpus: auto asks whether this machine has a GPU, and it has none; for the cluster at "
                f"{options.address} say --gpus 0.25, another share that a trial needs, or --gpus 0"
            )
    for corpus in {spec.corpus: None for spec in specs}:  # fetched and encoded before eight workers want it
        load(corpus)
    written = (".stages", ".old") if fresh else (".stages",)
    in_runs = (folder for name in written if (folder := records.root / name).exists())
    for folder in (options.runs, options.reports, *in_runs):  # rather now than after hours of training
        make_folder(folder)
        check_writable(folder)
    return Prepared(sweep, whole, options, state, records, allotment)


def run_prepared(prepared: Prepared) -> tuple[int, Report | None]:
    """Train what is missing, write the report, bring MLflow up to date; the exit code, and the report if there is one.

    0 all complete, 1 some failed or diverged, 3 the budget was spent before all had settled, 130 or 143 interrupted.
    Raises RayLostError (exit code 4) if Ray did not start, or died twice, WriteError (5) if a file cannot be written.
    """
    interrupt = Interrupt()
    try:
        with interrupt.handled():
            return _run(prepared, interrupt)
    except BaseException as error:
        # A second Ctrl-C may become another error, in an import of compiled code.
        if not (interrupt.insisted or isinstance(error, KeyboardInterrupt)):
            raise
        print(f"Interrupted{_TO_GO_ON}{prepared.line()}")
        return interrupt.exit_code or 128 + signal.SIGINT, None


def ending(state: SweepState, records: Records) -> Ending:
    """`stopped` if some trials can go on, `failed` if the others, or all trials of a search, failed or diverged."""
    states = {state_of(trial, records) for trial in state.trials}
    if state.waiting or states - {"done", "diverged", "failed"}:
        return "stopped"
    return "complete" if states <= {"done"} and all(search.best is not None for search in state.searches) else "failed"


def _run(prepared: Prepared, interrupt: Interrupt) -> tuple[int, Report]:
    options, records = prepared.options, prepared.records
    report, how, link, budget_spent = _train_and_report(prepared, interrupt)
    out_of_budget = budget_spent and how == "stopped" and interrupt.exit_code is None
    with may_be_unread():
        print(report.answer)
        if report.verdicts:
            rows = [(variant, report.changes.get(variant, ""), verdict) for variant, verdict in report.verdicts.items()]
            print_table(("variant", "change of test perplexity", "verdict"), rows)
        if interrupt.exit_code is not None or out_of_budget:
            why = f"The budget of {options.budget} is spent" if out_of_budget else "Interrupted"
            print(f"{why}{_TO_GO_ON}{prepared.line()}")
        print(*filter(None, (link and f"MLflow: {link}", report.beside, report.page)), sep="\n")
    if how != "complete" and interrupt.exit_code is None and not out_of_budget:
        if (full := disk_failure(expand(prepared.sweep, records), records)) is not None:
            raise WriteError(errno.ENOSPC, full.reason, str(records.root / full.key))
        check_writable(records.root)  # a trial could not even record its failure: the folder may be the reason
    return interrupt.exit_code or (3 if out_of_budget else int(how != "complete")), report


def _train_and_report(prepared: Prepared, interrupt: Interrupt) -> tuple[Report, Ending, str, bool]:
    """Train what is missing, then write the report and update MLflow unless both are up to date.

    Returns the report, how the sweep stands, how a browser gets to MLflow, and whether the budget is spent.
    """
    sweep, whole, options, records = prepared.sweep, prepared.whole, prepared.options, prepared.records
    state, file, reports, budget_spent = prepared.state, options.file, options.reports, False
    done = ended(state, records)
    train = bool(state.waiting or {trial.key for trial in state.trained} - done.keys())
    last = LastMade(whole, file, reports / sweep.name / sweep.scale, records)
    anything = train or options.only or questions(whole, state.table, records)
    report = None if anything else last.report(state)
    for said in _before_training(prepared) if train else ():
        print(said, file=sys.stderr)
    write = partial(report_sweep, whole, file, records=records, reports=reports, if_fuller="write beside")
    best = {search.task.title: so_far for search in state.searches if (so_far := search.best_so_far) is not None}
    progress = Progress(state.table, done=done, records=records if train else None, best=best)
    _expect(progress, sweep, state, records)
    with progress:
        if report is not None and (link := last.link) is not None:
            return report, ending(state, records), link, False
        tracker = Tracker(sweep, state.tracked, records, commit=commit(), source=str(file))
        try:
            if train:
                interim = Interim(lambda: expand(whole, records), write, records, progress.say)
                budget_spent = _train(prepared, Listeners(progress, tracker, interim), interrupt, progress)
            state = expand(sweep, records)
            _expect(progress, sweep, state, records)
            reported = expand(whole, records) if options.only else state
            if interrupt.exit_code is None:
                ask(questions(whole, reported.table, records), progress.say)
            if report is None:
                report = write(reported)
        except BaseException:
            if not interrupt.insisted:  # a second signal waits for nothing; the next command ends what is RUNNING
                tracker.finish(None, ending(state, records))
            raise
        searched = [(trial.key, trial.variant) for trial in reported.tracked]
        planned = Planned(reported.trials, searched, sorted(reported.waiting), state.tracked)
        how = ending(state, records)
        mirrored = tracker.finish(report.page.parent, how, report.answer, report.verdicts, planned)
        if not options.only:
            last.write(state, report, mirrored=mirrored, link=tracker.link)
    return report, how, tracker.link, budget_spent


def _train(prepared: Prepared, listener: Listeners, interrupt: Interrupt, progress: Progress) -> bool:
    """Train all that is missing, or what the budget allows; whether it was spent, and no error ended the command."""
    options, state = prepared.options, prepared.state
    forget_stalls(prepared.records.root)
    deadline = time.monotonic() + (math.inf if options.budget is None else seconds_in(options.budget))
    storage = None if options.storage is None else Storage(options.storage)  # once: where it is silent, opening fails

    def fetch(trial: Trial) -> None:
        if storage is not None:
            fetch_unsettled(storage, trial.key, prepared.records)

    def expect(state: SweepState) -> None:
        _expect(progress, prepared.sweep, state, prepared.records)

    sources = list[InTurn]()

    def source() -> TrialSource:
        sources.append(trials_to_train(prepared.sweep, prepared.records, deadline - time.monotonic(), fetch, expect))
        return sources[-1]

    if options.executor == "inline":
        run_inline(source(), prepared.allotment, listener, interrupt)
    else:
        from orchestrator.execute.ray import Order, run_on_ray

        corpora = {trial.spec.corpus for trial in state.trials} | {s.task.base.corpus for s in state.searches}
        corpora |= {variant.spec.corpus for variant in prepared.sweep.variants}
        order = Order(prepared.allotment, options.jobs, options.address, tuple(corpora), options.verbose)
        run_on_ray(source, order, listener, interrupt, progress.say)
    return time.monotonic() >= deadline and not any(source.failed for source in sources)


def _expect(progress: Progress, sweep: ScaledSweep, state: SweepState, records: Records) -> None:
    """Count what comes next, and as ended what an earlier command has trained of what a search has found since."""
    to_come, left = yet_to_come(sweep, state, records)
    searched = [trial for trial in left if trial.number is not None]
    progress.expect(to_come, [*state.table, *searched], ended(state, records))


def _before_training(prepared: Prepared) -> Iterator[str]:
    """What is said before trials train: of a short text, of CPUs in place of GPUs, of hours that nobody asked for."""
    sweep, line = prepared.sweep, prepared.line
    yield from (f"warning: {warning}" for warning in text_warnings(sweep))
    without_gpu = bool(prepared.whole.resources.gpus) and not prepared.allotment.gpus
    if not without_gpu and sweep.alternatives is None:
        return
    at_once = 1 if prepared.options.executor == "inline" else prepared.options.jobs
    left = at_most(sweep, prepared.state, prepared.records, Measuring.granted(sweep.resources), at_once)
    if left.seconds is None or left.core_hours is None:
        plan = f"they take:\n  {line('plan', ('only', 'runs', 'cpus', 'gpus'))} --estimate"
        time_left, cores = f"; to see how long {plan}", f"; to see how many core-hours {plan}"
    else:
        time_left, cores = f", at most {in_words(left.seconds)}", f" and take at most {left.core_hours:,.1f} core-hours"
    if sweep.alternatives is not None and (left.seconds is None or left.seconds > 3600):
        size = f"with up to {millions(left.parameters)} parameters each"
        yield f"to train: up to {counted(left.trials, 'trial')}{sweep.at_scale} {size}{time_left}"
        if SMALL_SCALE in sweep.alternatives and not sweep.scale.startswith(SMALL_SCALE):
            yield f"a smaller one:\n  {replace(prepared, sweep=replace(sweep, scale=SMALL_SCALE)).line()}"
    if without_gpu:
        yield f"no GPU: trials train on CPUs{cores}"
        if not prepared.options.only and len(sweep.variants) > 1:
            variant = sweep.variants[1].name
            yield f"to train only {variant} and the baseline:\n  {line()} {shlex.join(['--only', variant])}"
