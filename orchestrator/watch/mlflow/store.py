"""MLflow itself: where it keeps things, and the few calls that a mirror needs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

STEP_METRIC = "progress/seconds"
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
_MOST_RUNS = 50_000  # the most that MLflow gives at once
_LONGEST_DIGEST = 36


class Measure(NamedTuple):
    """One number of one metric, in the order of MLflow's `Metric`."""

    name: str
    value: float
    milliseconds: int
    step: int


@dataclass
class Run:
    """A run as MLflow has it, with the last values of its metrics; `ended` in milliseconds."""

    id: str
    status: str
    tags: dict[str, str]
    params: set[str] = field(default_factory=set)
    metrics: dict[str, float] = field(default_factory=dict)
    ended: int | None = None


def tracking_uri(uri: str | None = None) -> str:
    """This one, or else `MLFLOW_TRACKING_URI`, or else what a plain `mlflow ui` in the working directory opens."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite database; None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


class Store:
    """One tracking store. Building it creates a local database, under a lock. Methods raise what MLflow raises."""

    def __init__(self, uri: str | None = None) -> None:
        uri = tracking_uri(uri)
        database = sqlite_file(uri)
        home = Path.cwd() if database is None else database.parent
        self._artifacts = None if uri.startswith(("http://", "https://")) else home / "mlartifacts"
        if database is None:
            self._client = _client(uri)
        else:  # two processes that create the same database at once leave a broken file
            home.mkdir(parents=True, exist_ok=True)
            with FileLock(database.with_name(f"{database.name}.lock"), timeout=_LOCK_SECONDS):
                self._client = _client(uri, home)

    def experiment(self, name: str, note: str = "") -> str:
        """The id of the experiment with this name, restored if needed, or created with a note."""
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            # By default MLflow puts artifacts into `mlruns` of whatever the working directory is.
            location = None if self._artifacts is None else (self._artifacts / name).as_uri()
            return str(self._client.create_experiment(name, location, {"mlflow.note.content": note}))
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def runs(self, experiment: str, scale: str) -> list[Run]:
        """All runs of an experiment that carry the tag of this scale, oldest first."""
        quote = '"' if "'" in scale else "'"
        query, order = f"tags.scale = {quote}{scale}{quote}", ["attributes.start_time ASC"]
        return [
            Run(info.run_id, info.status, data.tags, set(data.params), dict(data.metrics), info.end_time)
            for run in self._client.search_runs([experiment], query, max_results=_MOST_RUNS, order_by=order)
            for info, data in [(run.info, run.data)]
        ]

    def create(self, experiment: str, name: str, tags: Mapping[str, str], began: int | None = None) -> Run:
        """A new run, RUNNING; `began` in milliseconds, by default the present time."""
        run = self._client.create_run(experiment, start_time=began, tags=dict(tags), run_name=name)
        return Run(run.info.run_id, "RUNNING", dict(tags))

    def steps(self, run: Run) -> set[int]:
        """The steps of its curve that MLflow holds."""
        return {point.step for point in self._client.get_metric_history(run.id, STEP_METRIC)}

    def log(
        self,
        run: Run,
        measures: Sequence[Measure] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add numbers, the parameters that the run lacks, and tags that it lacks or has with other values.

        A tag that it lacks is not set to nothing.
        """
        from mlflow.entities import Metric, Param, RunTag

        lacking = {name: value for name, value in (params or {}).items() if name not in run.params}
        changed = {name: value for name, value in (tags or {}).items() if run.tags.get(name, "") != value}
        if measures or lacking or changed:
            metrics, texts = [Metric(*measure) for measure in measures], [Param(*item) for item in lacking.items()]
            self._client.log_batch(run.id, metrics, texts, [RunTag(*item) for item in changed.items()])
        run.metrics |= {measure.name: measure.value for measure in measures}
        run.params |= lacking.keys()
        run.tags |= changed

    def untag(self, run: Run, tag: str) -> None:
        """Remove a tag that the run has."""
        self._client.delete_tag(run.id, tag)
        del run.tags[tag]

    def set_status(self, run: Run, status: str, ended: int | None = None) -> None:
        """Bring a run to a status that it does not have; `ended` in milliseconds, by default the present time."""
        if run.status != status and status == "RUNNING":
            self._client.update_run(run.id, status=status)
        elif run.status != status:
            self._client.set_terminated(run.id, status=status, end_time=ended)
        run.status, run.ended = status, ended

    def set_dataset(self, run: Run, name: str, fingerprint: str, facts: Mapping[str, object]) -> None:
        """Say what the run was trained on."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        digest, source, profile = fingerprint[:_LONGEST_DIGEST], json.dumps({"name": name}), json.dumps(facts)
        dataset = Dataset(name, digest, source_type="corpus", source=source, profile=profile)
        self._client.log_inputs(run.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])

    def upload(self, run: Run, path: Path, target: str | None = None) -> None:
        """Copy a file, or a folder's files, to the run's artifacts, below `target`."""
        copy = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        copy(run.id, str(path), target)


def _client(uri: str, home: Path | None = None) -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    # MLflow sets its loggers up when it is imported, and logs every table that it creates. An error it also raises.
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if home is not None and home.as_uri() != f"file://{home}":
        # MLflow's own SQL fails on a default folder for artifacts with quotes in its path, but not on its URI.
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        SqlAlchemyStore(uri, (home / "mlartifacts").as_uri())  # type: ignore[no-untyped-call]
    return MlflowClient(tracking_uri=uri)
