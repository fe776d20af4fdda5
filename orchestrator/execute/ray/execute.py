"""What runs on Ray Tune: the queue's trials, and one trial in a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune

from lm.record import Evaluation
from orchestrator.execute.ray.bridge import MOST_WORKER_DEATHS, EarlyStop, Events, Queue, as_result, unpack
from orchestrator.execute.run_trial import Allotment, run_trial


def fit(
    queue: Queue,
    trainable: Callable[[dict[str, Any]], None],
    *,
    session: Path,
    at_once: int,
) -> None:
    """Give every trial of the queue to `trainable` in a worker, at most `at_once` at a time."""
    allotment = queue.allotment
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": allotment.cpus, "gpu": allotment.gpus}),
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
    tuner.fit()


def train_in_worker(config: dict[str, Any]) -> None:
    """One trial in a Ray worker."""

    def report(evaluation: Evaluation) -> None:
        tune.report(as_result(evaluation))

    lost = run_trial(unpack(config["trial"]), Allotment(**config["allotment"]), report)
    if lost is not None:
        tune.report({"lost": lost})
