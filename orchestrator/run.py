"""A sweep from plan to report: what is missing is trained, everything is mirrored and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lm.data import load
from orchestrator.interrupt import Interrupt
from orchestrator.machine import has_gpu
from orchestrator.plan import plan
from orchestrator.progress import Listeners, Progress
from orchestrator.records import Records
from orchestrator.report_sweep import report_sweep, sweep_command
from orchestrator.sweep import ScaledSweep
from orchestrator.timing import stage_epochs
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


def run_sweep(sweep: ScaledSweep, options: Options) -> int:
    """Train what has no record yet, write the report, and return the exit code.

    0 all complete, 1 some failed or diverged, 130 or 143 interrupted. Raises ValueError (CorpusError, ScheduleError)
    before anything starts where a corpus, a GPU or the room for one trial is missing.
    """
    trials = plan(sweep)
    records = Records(options.runs.resolve())
    grant = Grant(records.root, sweep.resources.cpus, sweep.resources.gpus, options.checkpoint_seconds)
    missing = unsettled(trials, records)
    _check_means(missing, grant, options)
    interrupt = Interrupt()
    done = {trial.key for trial in trials if trial.reads_from is None} - {trial.key for trial in missing}
    with Progress(trials, done=done) as progress:
        tracker = Tracker(sweep=sweep.name, question=sweep.question, scale=sweep.scale, trials=trials, records=records)
        try:
            if missing:
                _execute(missing, grant, Listeners(progress, tracker), interrupt, options)
        finally:
            left = unsettled(trials, records)
            report = report_sweep(sweep, options.file, trials, records, options.reports)
            complete = all((record := records.find(trial)) and record.status == "complete" for trial in trials)
            outcome = "complete" if complete else "stopped" if left else "failed"
            tracker.finish(report.parent, outcome)
    if interrupt.exit_code is not None:
        print(f"Interrupted; nothing finished is lost. To go on:\n  {sweep_command(sweep, options.file)}")
    print(report)
    return interrupt.exit_code or int(not complete)


def unsettled(trials: Sequence[Trial], records: Records) -> list[Trial]:
    """The trials that have to train, without a record or with one that failed; those read from others do not.

    The longest come first, so that no worker idles at the end while another begins a long one.
    """
    missing = [
        trial
        for trial in trials
        if trial.reads_from is None and ((record := records.find(trial)) is None or record.status == "failed")
    ]
    return sorted(missing, key=_reckoned_cost, reverse=True)


def _reckoned_cost(trial: Trial) -> int:
    """Parameters times epochs: good enough for an order. One that goes on from another's stages counts as short."""
    return 0 if trial.starts_from else trial.parameters * sum(stage_epochs(trial.spec).values())


def _check_means(missing: Sequence[Trial], grant: Grant, options: Options) -> None:
    for corpus in {trial.spec.corpus for trial in missing}:
        load(corpus)  # found or fetched, checked and encoded once, before eight workers want it
    if missing and grant.gpus and options.address is None and not has_gpu():
        raise ValueError(
            f"resources: a trial asks for {grant.gpus:g} GPU, and this machine has none; "
            "take a scale without (--scale laptop), or --address of a cluster that has some"
        )


def _execute(
    missing: Sequence[Trial], grant: Grant, listener: Listeners, interrupt: Interrupt, options: Options
) -> None:
    if options.executor == "inline":
        from orchestrator.inline import run_inline

        run_inline(missing, grant, listener, interrupt)
        return
    from orchestrator.schedule import run_on_ray

    run_on_ray(
        missing,
        grant,
        listener,
        interrupt,
        jobs=options.jobs,
        address=options.address,
        verbose=options.verbose,
    )
