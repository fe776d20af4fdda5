"""MLflow itself: where it keeps things, and the few calls that a mirror needs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from filelock import FileLock

from orchestrator.watch.mlflow.unusable import OUT_OF_DATE, UpgradeError, sqlite_file

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

STEP_METRIC = "seconds"
"""Every point of a curve has it, so its history tells which steps MLflow holds."""

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow would wait 120 s for an answer and ask 8 times; a mirror that lags is better than one that hangs.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
_LOCK_SECONDS = 120
_METRICS_A_CALL = 1000
_PARAMS_A_CALL = 100


class Measure(NamedTuple):
    """One number of one metric."""

    name: str
    value: float
    step: int
    milliseconds: int


@dataclass
class Run:
    """What is known of one MLflow run; `steps` is None until the store was asked for them."""

    id: str
    status: str
    tags: dict[str, str]
    params: set[str]
    steps: set[int] | None


def tracking_uri(uri: str | None = None) -> str:
    """This one, or else `MLFLOW_TRACKING_URI`, or else what a plain `mlflow ui` in the working directory opens."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


class Store:
    """One tracking store. Creates or migrates a local database when built, under a lock.

    Every method raises what MLflow raises; building it also UpgradeError.
    """

    def __init__(self, uri: str | None = None) -> None:
        self.uri = tracking_uri(uri)
        database = sqlite_file(self.uri)
        remote = self.uri.startswith(("http://", "https://"))
        home = Path.cwd() if database is None else database.parent
        self._artifacts = None if remote else home / "mlartifacts"
        self._client = _client(self.uri) if database is None else _client_of_file(self.uri, database)

    def experiment(self, name: str) -> str:
        """The id of the experiment with this name, made or brought back where needed."""
        found = self._client.get_experiment_by_name(name)
        if found is None:
            # Left alone, MLflow puts artifacts into `mlruns` of whatever the working directory is.
            location = None if self._artifacts is None else (self._artifacts / name).as_uri()
            return str(self._client.create_experiment(name, artifact_location=location))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def runs(self, experiment: str, scale: str) -> list[Run]:
        """All runs of an experiment that carry the tag of this scale, oldest first."""
        quote = '"' if "'" in scale else "'"
        query = f"tags.scale = {quote}{scale}{quote}"
        found: list[Run] = []
        token: str | None = None
        while True:
            page = self._client.search_runs(
                [experiment], query, max_results=1000, order_by=["attributes.start_time ASC"], page_token=token
            )
            found += [
                Run(run.info.run_id, run.info.status, dict(run.data.tags), set(run.data.params), None) for run in page
            ]
            token = page.token
            if not token:
                return found

    def create(self, experiment: str, name: str, tags: Mapping[str, str], began: int | None = None) -> Run:
        """A new run, RUNNING; `began` in milliseconds, now by default."""
        run = self._client.create_run(experiment, start_time=began, tags=dict(tags), run_name=name)
        return Run(run.info.run_id, "RUNNING", dict(tags), set(), set())

    def steps(self, run: Run) -> set[int]:
        """The steps of its curve that MLflow holds."""
        return {point.step for point in self._client.get_metric_history(run.id, STEP_METRIC)}

    def log(self, run: Run, measures: Sequence[Measure], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add numbers, parameters and tags; the tags last, since they say what is complete."""
        from mlflow.entities import Metric, Param, RunTag

        for some in _chunks([Param(name, value) for name, value in params.items()], _PARAMS_A_CALL):
            self._client.log_batch(run.id, params=some)
        for some in _chunks([Metric(m.name, m.value, m.milliseconds, m.step) for m in measures], _METRICS_A_CALL):
            self._client.log_batch(run.id, metrics=some)
        if tags:
            self._client.log_batch(run.id, tags=[RunTag(name, value) for name, value in tags.items()])
        run.params |= params.keys()
        run.tags |= tags

    def untag(self, run: Run, tag: str) -> None:
        """Take a tag that the run has away."""
        self._client.delete_tag(run.id, tag)
        del run.tags[tag]

    def set_status(self, run: Run, status: RunStatus, ended: int | None = None) -> None:
        """Say where a run stands; `ended` in milliseconds, now by default."""
        if status == "RUNNING":
            self._client.update_run(run.id, status=status)
        else:
            self._client.set_terminated(run.id, status=status, end_time=ended)
        run.status = status

    def upload(self, run: Run, folder: Path, target: str) -> None:
        """Copy a folder's files to the run's artifacts, below `target`."""
        self._client.log_artifacts(run.id, str(folder), artifact_path=target)


def _chunks(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _client(uri: str) -> Any:
    _set_up()
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def _set_up() -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401

    # MLflow sets its loggers up when it is imported, and logs every table that it creates. An error it also raises.
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _client_of_file(uri: str, database: Path) -> Any:
    # Two processes that create the same database at once leave a broken file behind.
    database.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(database.with_name(f"{database.name}.lock"), timeout=_LOCK_SECONDS):
        try:
            _prepare(uri, database.parent)
            return _client(uri)
        except Exception as error:
            if OUT_OF_DATE not in str(error):
                raise
        before = database.with_name(f"{database.name}.before-upgrade")
        shutil.copy2(database, before)
        upgrade = [sys.executable, "-m", "mlflow", "db", "upgrade", uri]
        try:
            ran = subprocess.run(upgrade, check=False, capture_output=True, stdin=subprocess.DEVNULL, text=True)
            if ran.returncode:
                raise UpgradeError(_reason(ran.stderr) or f"exit code {ran.returncode}")
        except BaseException:  # an interrupt too
            before.replace(database)  # as it was: a part of the steps may have been taken
            raise
        return _client(uri)


def _reason(stderr: str) -> str:
    """The line of a traceback that names the exception, without the exception's type."""
    named = [line for line in stderr.splitlines() if re.match(r"[\w.]+(Error|Exception): ", line)]
    return named[-1].partition(": ")[2][:200] if named else ""


def _prepare(uri: str, home: Path) -> None:
    """Create the database where the folder's path would break MLflow's own SQL, which quotes it as Python does."""
    if home.as_uri() == f"file://{home}":
        return
    _set_up()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(uri, (home / "mlartifacts").as_uri())  # type: ignore[no-untyped-call]
