"""Run trials on Ray Tune until every one has settled or an interrupt stopped them."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune

from lm.record import Evaluation
from orchestrator.interrupt import Interrupt, on_interrupt
from orchestrator.quiet import quiet
from orchestrator.records import Records
from orchestrator.schedule.bridge import MOST_WORKER_DEATHS, Events, Queue, unpack
from orchestrator.schedule.session import fitting, session_folder, start_ray
from orchestrator.trial import Listener, Trial
from orchestrator.work import Grant, work


def run_on_ray(
    trials: Sequence[Trial],
    grant: Grant,
    listener: Listener,
    interrupt: Interrupt,
    *,
    jobs: int | None = None,
    address: str | None = None,
    verbose: bool = False,
) -> None:
    """Train the trials, at most `jobs` at once; return when all have ended or an interrupt stopped them.

    A worker that dies is started again from its trial's checkpoint, three times at most; then the trial is recorded as
    failed. Raises CannotStartError if no node could ever hold a trial.
    """
    records = Records(grant.runs)
    begun: set[str] = set()
    with session_folder() as session, quiet(verbose):
        try:
            start_ray(session, address, verbose)
            at_once = fitting(grant, jobs)
            left = list(trials)
            # Tune gives a trial up at once, whatever its retries, when the idle worker it reuses turns out dead.
            for _ in range(1 + MOST_WORKER_DEATHS):
                if left and interrupt.signal is None:
                    events = Events(left, grant, listener, begun)
                    _fit(left, grant, events, interrupt, session=session, at_once=at_once)
                    left = [trial for trial in left if records.find(trial) is None]
        except KeyboardInterrupt:
            interrupt.signal = interrupt.signal or signal.SIGINT
        finally:
            ray.shutdown()
    for trial in trials:
        if trial.key in begun and records.find(trial) is None:
            listener.settled(trial, None)


def _fit(
    trials: Sequence[Trial],
    grant: Grant,
    events: Events,
    interrupt: Interrupt,
    *,
    session: Path,
    at_once: int,
) -> None:
    tuner = tune.Tuner(
        tune.with_resources(_trainable, {"cpu": grant.cpus, "gpu": grant.gpus}),
        tune_config=tune.TuneConfig(
            search_alg=Queue(trials, grant), num_samples=-1, max_concurrent_trials=at_once, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name=f"round-{time.monotonic_ns()}",  # a name used again would mix both rounds in one folder
            storage_path=str(session / "tune"),
            verbose=0,
            callbacks=[events],
            failure_config=tune.FailureConfig(max_failures=MOST_WORKER_DEATHS),
        ),
    )

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)  # Tune's own word for a graceful stop

    def not_yet_fitting(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, not_yet_fitting)  # until Tune installs its handler
    with on_interrupt(interrupt, stop):
        tuner.fit()


def _trainable(config: dict[str, Any]) -> None:
    """One trial in a Ray worker."""

    def report(evaluation: Evaluation) -> None:
        tune.report(dataclasses.asdict(evaluation))

    work(unpack(config["trial"]), Grant(**config["grant"]), report)
