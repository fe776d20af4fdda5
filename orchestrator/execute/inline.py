"""Run trials in this process, one after the other: for tests, and so that a breakpoint works."""

from __future__ import annotations

import os
from dataclasses import replace

from lm.record import Evaluation
from orchestrator.agenda.trial_source import TrialSource
from orchestrator.execute.interrupt import Interrupt, on_interrupt
from orchestrator.execute.run_trial import Allotment, fetch, run_trial, write_failure
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Listener, Trial


class _StoppedEarly(BaseException):
    """The source wants no more of a trial; no Exception, so that the trial does not count as failed."""


def run_inline(source: TrialSource, allotment: Allotment, listener: Listener, interrupt: Interrupt) -> None:
    """Train what the source says; the first interrupt ends the epoch under way, unfinished."""
    os.environ["OMP_NUM_THREADS"] = str(allotment.threads)
    records = Records(allotment.runs)

    def stop() -> None:
        raise KeyboardInterrupt

    while interrupt.signal is None and (trial := source.next()) is not None:
        listener.started(trial)

        def report(evaluation: Evaluation, trial: Trial = trial) -> None:
            listener.evaluated(trial, evaluation)
            if not source.goes_on(trial, evaluation):
                raise _StoppedEarly

        stopped_early = False
        try:
            with on_interrupt(interrupt, stop):
                lost = run_trial(trial, allotment, report)
            if lost is not None:
                write_failure(trial, allotment, lost)
        except KeyboardInterrupt:
            if interrupt.insisted:
                raise
            # the interrupt holds the signal; the record tells whether the trial settled
        except _StoppedEarly:
            stopped_early = True
        fetch(trial, allotment)
        record = records.find(trial)
        source.settled(trial, record)
        listener.settled(replace(trial, stopped_early=stopped_early), record)
