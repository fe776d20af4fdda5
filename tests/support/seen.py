"""What the tests of tracking share: two trials, and what MLflow shows of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.tracking import trial

REPOSITORY = Path(__file__).parents[2]
FULL, BARE = trial("full", finetune=2), trial("without dropout", 2)
# What bounds a wait in tests: a machine that is busy with other work must keep to them too.
AT_ONCE = 5.0
"""What never waits for MLflow: a request to a server that hangs takes twice as long, a thousand refused ones too."""
SECONDS = 30.0
"""What waits for MLflow for a second or two."""


def process_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"PYTHONPATH": str(REPOSITORY)}


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def expected(points: list[Any]) -> list[tuple[int, float]]:
    return [(p.epoch, round(p.valid_perplexity, 6)) for p in points]


class Seen:
    """What MLflow shows, read by its own client."""

    def __init__(self, uri: str | None = None, experiment: str = "parts") -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(uri or f"sqlite:///{Path.cwd() / 'mlflow.db'}")
        self.experiment = self.client.get_experiment_by_name(experiment)
        found = [] if self.experiment is None else self.client.search_runs([self.experiment.experiment_id])
        self.parents = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
        self.nested = {
            (run.data.tags["variant"], int(run.data.tags["seed"])): run for run in found if run not in self.parents
        }
        assert len(self.parents) + len(self.nested) == len(found), "two runs for one trial"

    def statuses(self) -> list[str]:
        return [run.info.status for run in (*self.parents, *(self.nested[name] for name in sorted(self.nested)))]

    def history(self, name: tuple[str, int], metric: str = "curve/valid_perplexity") -> list[tuple[int, float]]:
        points = self.client.get_metric_history(self.nested[name].info.run_id, metric)
        return sorted((p.step, round(p.value, 6)) for p in points)

    def everything(self) -> object:
        """All that a repeated mirroring could change, points that were written twice included."""
        runs = (*self.parents, *self.nested.values())
        points = {
            (run.info.run_id, key): [
                (p.step, p.value, p.timestamp) for p in self.client.get_metric_history(run.info.run_id, key)
            ]
            for run in runs
            for key in run.data.metrics
        }
        return points, sorted(str((run.info, run.data.params, run.data.tags)) for run in runs)
