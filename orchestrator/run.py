"""A sweep from plan to report: what is missing is trained, everything is mirrored and told."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lm.data import load
from orchestrator.interrupt import Interrupt
from orchestrator.machine import has_gpu
from orchestrator.plan import plan
from orchestrator.progress import Listeners, Progress
from orchestrator.published import Published, published_numbers
from orchestrator.records import Records
from orchestrator.sweep import ScaledSweep
from orchestrator.tracking import Tracker
from orchestrator.trial import Trial
from orchestrator.work import Grant

Executor = Literal["ray", "inline"]
_log = logging.getLogger(__name__)


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
    with Progress(trials, records, missing) as progress:
        tracker = Tracker(
            sweep=sweep.name, question=sweep.question, scale=sweep.scale, trials=trials, records=records
        )
        try:
            if missing:
                _execute(missing, grant, Listeners(progress, tracker), interrupt, options)
        finally:
            left = unsettled(trials, records)
            report = report_sweep(sweep, options, trials, records)
            complete = all((record := records.find(trial)) and record.status == "complete" for trial in trials)
            outcome = "complete" if complete else "stopped" if left else "failed"
            tracker.finish(report.parent, outcome)
    if interrupt.exit_code is not None:
        print(f"Interrupted; nothing finished is lost. To go on:\n  {command(sweep, options)}")
    print(report)
    return interrupt.exit_code or int(not complete)


def report_sweep(sweep: ScaledSweep, options: Options, trials: Sequence[Trial], records: Records) -> Path:
    """Write the report of what the records hold now; its page."""
    from orchestrator.report import write_report

    published, note = _published(sweep, options.file.parent / "published")
    return write_report(
        name=sweep.name,
        question=sweep.question,
        scale=sweep.scale,
        published_scale=sweep.published_scale,
        trials=trials,
        records=records,
        published=published,
        published_note=note,
        folder=options.reports / sweep.name / sweep.scale,
        command=command(sweep, options),
    )


def unsettled(trials: Sequence[Trial], records: Records) -> list[Trial]:
    """The trials that have to train: without a record, or with one that failed; those read from others are not."""
    return [
        trial
        for trial in trials
        if trial.reads_from is None and ((record := records.find(trial)) is None or record.status == "failed")
    ]


def command(sweep: ScaledSweep, options: Options) -> str:
    """The line that makes this sweep again."""
    return shlex.join(["python", "-m", "orchestrator", "sweep", str(options.file), "--scale", sweep.scale])


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


def _published(sweep: ScaledSweep, folder: Path) -> tuple[dict[str, Published], str]:
    """The papers' numbers on this scale's corpus, or else on the one of the sweep's base; and what they are."""
    for dataset in (sweep.baseline.spec.corpus.name, sweep.published_corpus):
        numbers = published_numbers(sweep.published, dataset, folder)
        if numbers:
            return numbers, f"{', '.join(sweep.published)}, on {dataset}"
    return {}, ""
