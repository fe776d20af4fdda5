"""Run a course on Ray Tune until it has ended or an interrupt stopped it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import ray
from ray import tune

from lm.record import Evaluation
from lm.spec import Corpus
from orchestrator.course import Course
from orchestrator.interrupt import Interrupt, on_interrupt
from orchestrator.quiet import quiet
from orchestrator.schedule.bridge import MOST_WORKER_DEATHS, EarlyStop, Events, Queue, as_result, unpack
from orchestrator.schedule.nodes import check_nodes, shipped
from orchestrator.schedule.session import fitting, our_sigterm, session_folder, slots, start_ray
from orchestrator.trial import Listener
from orchestrator.work import Grant, work


def run_on_ray(
    course: Course,
    grant: Grant,
    listener: Listener,
    interrupt: Interrupt,
    *,
    jobs: int | None = None,
    address: str | None = None,
    corpora: Collection[Corpus] = (),
    verbose: bool = False,
) -> None:
    """Train what the course says, at most `jobs` at once; return when it has ended or an interrupt stopped it.

    A worker that dies is started again from its trial's checkpoint, three times at most; then the trial is recorded as
    failed. A second interrupt raises KeyboardInterrupt. Raises CannotStartError if no node could ever hold a trial, or
    one of a cluster differs from this machine, in its `corpora` too.
    """
    queue = Queue(course, grant, listener)
    with session_folder() as session, quiet(verbose), our_sigterm():
        try:
            if address is None:
                start_ray(session, None, verbose)
            else:
                with shipped(corpora) as code_and_texts:
                    start_ray(session, address, verbose, code_and_texts)
                check_nodes(grant, corpora, [node for node, _ in slots(grant)])
            fit(queue, _trainable, interrupt, session=session, at_once=fitting(grant, jobs))
        except KeyboardInterrupt:
            interrupt.signal = interrupt.signal or signal.SIGINT
        finally:
            ray.shutdown()
    if interrupt.insisted:
        raise KeyboardInterrupt
    for trial in queue.running.values():
        if trial.key in queue.begun:
            listener.settled(trial, queue.record(trial))


def fit(
    queue: Queue,
    trainable: Callable[[dict[str, Any]], None],
    interrupt: Interrupt,
    *,
    session: Path,
    at_once: int,
) -> None:
    """Give every trial of the queue to `trainable` in a worker, at most `at_once` at a time."""
    grant = queue.grant
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": grant.cpus, "gpu": grant.gpus}),
        tune_config=tune.TuneConfig(
            search_alg=queue,
            scheduler=EarlyStop(queue),
            num_samples=-1,
            max_concurrent_trials=at_once,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(session / "tune"),
            verbose=0,
            callbacks=[Events(queue)],
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
        tune.report(as_result(evaluation))

    lost = work(unpack(config["trial"]), Grant(**config["grant"]), report)
    if lost is not None:
        tune.report({"lost": lost})
