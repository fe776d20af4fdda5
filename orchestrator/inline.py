"""Run trials in this process, one after the other: for tests, and so that a breakpoint works."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lm.record import Evaluation
from orchestrator.interrupt import Interrupt, on_interrupt
from orchestrator.records import Records
from orchestrator.trial import Listener, Trial
from orchestrator.work import Grant, work


def run_inline(trials: Sequence[Trial], grant: Grant, listener: Listener, interrupt: Interrupt) -> None:
    """Train the trials in order; the first interrupt ends the epoch under way, unfinished."""
    os.environ["OMP_NUM_THREADS"] = str(grant.threads)
    records = Records(grant.runs)

    def stop() -> None:
        raise KeyboardInterrupt

    for trial in trials:
        if interrupt.signal is not None:
            return
        listener.started(trial)

        def report(evaluation: Evaluation, trial: Trial = trial) -> None:
            listener.evaluated(trial, evaluation)

        try:
            with on_interrupt(interrupt, stop):
                work(trial, grant, report)
        except KeyboardInterrupt:
            pass  # the interrupt holds the signal; the record tells whether the trial settled
        listener.settled(trial, records.find(trial))
