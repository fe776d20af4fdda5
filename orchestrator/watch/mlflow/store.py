"""MLflow itself: where it keeps things, a client of it, and one of its runs."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow would wait 120 s for an answer and ask 8 times; a mirror that lags is better than one that hangs.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
_LOCK_SECONDS = 120


class MetricPoint(NamedTuple):
    """One number of one metric, in the order of MLflow's `Metric`."""

    name: str
    value: float
    milliseconds: int
    step: int


class Run:
    """A run as MLflow has it, with the last values of its metrics; `ended` in milliseconds."""

    def __init__(self, client: Any, run: Any) -> None:
        self.client = client
        self.id: str = run.info.run_id
        self.status: str = run.info.status
        self.ended: int | None = run.info.end_time
        self.tags: dict[str, str] = run.data.tags
        self.params: set[str] = {*run.data.params}
        self.metrics: dict[str, float] = dict(run.data.metrics)

    def log(
        self,
        measures: Sequence[MetricPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add numbers, the parameters that it lacks, and tags that it lacks or has with other values.

        A tag that it lacks is not set to nothing.
        """
        from mlflow.entities import Metric, Param, RunTag

        lacking = {name: value for name, value in (params or {}).items() if name not in self.params}
        changed = {name: value for name, value in (tags or {}).items() if self.tags.get(name, "") != value}
        if measures or lacking or changed:
            metrics, texts = [Metric(*measure) for measure in measures], [Param(*item) for item in lacking.items()]
            self.client.log_batch(self.id, metrics, texts, [RunTag(*item) for item in changed.items()])
        self.metrics |= {measure.name: measure.value for measure in measures}
        self.params |= lacking.keys()
        self.tags |= changed

    def set_status(self, status: str, ended: int | None = None) -> None:
        """Bring it to a status that it does not have; `ended` in milliseconds, by default the present time."""
        if self.status != status and status == "RUNNING":
            self.client.update_run(self.id, status=status)
        elif self.status != status:
            self.client.set_terminated(self.id, status=status, end_time=ended)
        self.status, self.ended = status, ended


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, or else what a plain `mlflow ui` in the working directory opens."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite database; None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def artifacts_folder(uri: str) -> Path | None:
    """Where artifacts go; None if the server decides. By default MLflow takes `mlruns` of any working directory."""
    database = sqlite_file(uri)
    home = Path.cwd() if database is None else database.parent
    return None if uri.startswith(("http://", "https://")) else home / "mlartifacts"


def connect(uri: str) -> Any:
    """A client of a tracking store, whose local database is created under a lock. Raises what MLflow raises."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    # MLflow sets its loggers up when it is imported, and logs every table that it creates. An error it also raises.
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if (database := sqlite_file(uri)) is None:
        return MlflowClient(tracking_uri=uri)
    if database.is_dir():  # MLflow would try for a minute
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(database))
    database.parent.mkdir(parents=True, exist_ok=True)
    # Two processes that create the same database at once leave a broken file.
    with FileLock(database.with_name(f"{database.name}.lock"), timeout=_LOCK_SECONDS):
        if (folder := database.parent.as_uri()) != f"file://{database.parent}":
            # MLflow's own SQL fails on a default folder for artifacts with quotes in its path, but not on its URI.
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            SqlAlchemyStore(uri, f"{folder}/mlartifacts")  # type: ignore[no-untyped-call]
        return MlflowClient(tracking_uri=uri)
