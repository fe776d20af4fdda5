"""MLflow itself: where it keeps things, a client of it, and what it shows of a trial and of a sweep.

MLflow draws a chart for every name, in sections by what stands before the last slash, in alphabetical order:

curve/     by epoch: losses, perplexity, learning rate, gradient norm
final/     the trial's perplexities
progress/  by epoch: steps, tokens, seconds, speed
stage/     the perplexities of each stage: stage/train/test_perplexity

What is one number for a whole trial, and not a score, is a parameter or a tag.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import posixpath
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from lm.record import Evaluation, Record, StageResult
from orchestrator.trials.plan import flattened
from orchestrator.trials.trial import Trial

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow would wait 120 s for an answer and ask 8 times; a mirror that lags is better than one that hangs.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
_LOCK_SECONDS = 120
VERDICT = "verdict."
STEP_METRIC = "progress/seconds"
"""Every point of a curve has it, so its history tells which steps MLflow holds."""
LOSS_METRIC = "curve/valid_nats_per_token"
"""Two trainings of a trial differ in it, also where the perplexity is infinite; a time differs after a break too."""
RESULTS = ("final/", "stage/")
DONE, BEST, JUDGED = "curve/trials_done", "curve/best_valid_perplexity", "final/valid_perplexity"
_TEST = "/test_perplexity"
_NO_METRICS = ("stage", "epoch", "averaging", "best")
_PROGRESS = ("step", "tokens", "seconds", "tokens_per_second")


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
        self._take(run)

    def _take(self, run: Any) -> None:
        self.status: str = run.info.status
        self.ended: int | None = run.info.end_time
        self.tags: dict[str, str] = run.data.tags
        self.params: set[str] = {*run.data.params}
        self.metrics: dict[str, float] = dict(run.data.metrics)

    def read_again(self) -> None:
        """Take what others have made of it."""
        self._take(self.client.get_run(self.id))

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
        if self.status == status:
            return
        if status == "RUNNING":
            ended = None
            self.client.update_run(self.id, status=status)
        else:
            ended = ended or int(1000 * time.time())
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
        if not database.exists():
            _create(database)
        return MlflowClient(tracking_uri=uri)


def _create(database: Path) -> None:
    """Make a SQLite database beside its place and move it there whole.

    MLflow takes seconds to make its tables, and never opens a database whose making was interrupted.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    whole = database.resolve()  # the file that a link names
    new = whole.with_name(f"{whole.name}.new")
    for left in (new, new.with_name(f"{new.name}-journal")):  # by a command that was interrupted
        left.unlink(missing_ok=True)
    # MLflow's own SQL fails on a default folder for artifacts with quotes in its path, but not on its URI.
    artifacts = f"{database.parent.as_uri()}/mlartifacts"
    store = SqlAlchemyStore(f"sqlite:///{new}", artifacts)  # type: ignore[no-untyped-call]
    store.engine.dispose()
    new.replace(whole)


def findings(answer: str, verdicts: Mapping[str, str]) -> dict[str, str]:
    """The tags `answer` and `verdict.<variant>` of a sweep."""
    return {_key(VERDICT, variant): verdict for variant, verdict in verdicts.items()} | {"answer": answer}


def _key(before: str, variant: str, after: str = "") -> str:
    """A key that MLflow takes, which reads it as a path; eight digits of its hash keep two changed names apart."""
    key = before + variant + after
    if re.fullmatch(r"(?!/|\.\.)[\w.\- :/]{1,250}", key) and posixpath.normpath(key) == key:
        return key
    plain, digest = re.sub(r"^\.+|[^\w.\- :]", "_", variant), hashlib.sha256(key.encode()).hexdigest()
    return f"{before}{plain[:200]}-{digest[:8]}{after}"


def params(trial: Trial) -> dict[str, str]:
    """A spec's values under dotted names, each as YAML would write it, and the number of parameters."""
    values = dict(flattened(trial.spec.model_dump(mode="json")))
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return texts | {"parameters": str(trial.parameters)}


def curve_measures(evaluation: Evaluation, times: tuple[int, int] | None) -> list[MetricPoint]:
    """The finite numbers of one evaluation, the epoch as step, at its time within the `times` of the trial."""
    values = {name: float(value) for name, value in evaluation.as_metrics().items() if name not in _NO_METRICS}
    numbers = {f"{'progress' if name in _PROGRESS else 'curve'}/{name}": value for name, value in values.items()}
    numbers = dict(sorted(numbers.items()))  # as MLflow lists them
    numbers[STEP_METRIC] = numbers.pop(STEP_METRIC)  # last, so that MLflow holds the whole point if it holds this
    at = int(time.time() * 1000) if times is None else min(times[1], times[0] + int(1000 * evaluation.seconds))
    return _finite(numbers, at, evaluation.epoch)


def final_measures(record: Record, at: int) -> list[MetricPoint]:
    """The results of a settled trial: `stage/<stage>/...` of every finished stage, `final/...` of a complete trial."""
    measures, epochs = list[MetricPoint](), 0
    for stage in record.stages:
        epochs += stage.epochs
        measures += _finite({f"stage/{stage.name}/{name}": value for name, value in _scores(stage).items()}, at, epochs)
    final = _scores(record.stages[-1]) if record.status == "complete" else {}
    return measures + _finite({f"final/{name}": value for name, value in final.items()}, at, epochs)


def _scores(stage: StageResult) -> dict[str, float]:
    """A stage's perplexities, and what its head measures of itself, by split: `test.marginal_nats_per_token`."""
    scores = {f"{split}.{name}": value for split, values in stage.measures.items() for name, value in values.items()}
    for split, score in (("valid", stage.valid), ("test", stage.test)):
        if score is not None:
            scores[f"{split}_perplexity"] = score.perplexity
            scores[f"{split}_perplexity_reference"] = score.perplexity_reference
    return scores


def _finite(values: Mapping[str, float], milliseconds: int, step: int) -> list[MetricPoint]:
    return [MetricPoint(name, value, milliseconds, step) for name, value in values.items() if math.isfinite(value)]


def trial_tags(trial: Trial) -> dict[str, str]:
    """What is known of a trial before it runs."""
    return {"variant": trial.variant, "change": trial.change, "seed": str(trial.seed), "trial_key": trial.key}


def record_tags(record: Record | None) -> dict[str, str]:
    """What a settled trial was, where it ran, and what it took."""
    if record is None:
        return {"reason": ""}  # in the place of an earlier one
    tags = {"device": record.device, "corpus_fingerprint": record.corpus.fingerprint, "commit": record.commit or ""}
    tags |= {name: f"{getattr(record, name):.6g}" for name in ("seconds", "tokens_per_second")}
    tags |= {"peak_memory_bytes": str(record.peak_memory_bytes), "mlflow.source.git.commit": record.commit or ""}
    for stage in record.stages:
        chosen = {"best_epoch": stage.best_epoch} | stage.fitted
        tags |= {f"{stage.name}.{name}": f"{value:.6g}" for name, value in chosen.items()}
    return tags | {"reason": record.reason or ""}


def sweep_numbers(runs: Sequence[Run], known: Mapping[str, float], step: int) -> list[MetricPoint]:
    """What a sweep's run lacks: trials done and the best of them by time, and `<variant>/test_perplexity`.

    `runs` are those of complete trials, `known` the last values that the sweep's run has; the last step is `step`. A
    perplexity is the mean over seeds, as on the page; one whose variant is gone becomes NaN.
    """
    runs, measures = sorted(runs, key=lambda run: run.ended or 0), list[MetricPoint]()
    best = list(accumulate((run.metrics[JUDGED] for run in runs), min))
    for place in range(int(known.get(DONE, 0)), len(runs) - 1):
        numbers = {DONE: place + 1.0, BEST: best[place]}
        measures += _finite(numbers, runs[place].ended or 0, step - len(runs) + place + 1)
    perplexities = defaultdict[str, list[float]](list)
    for run in runs:
        if (perplexity := run.metrics.get(f"final{_TEST}")) is not None:
            perplexities[_key("", run.tags.get("variant", ""), _TEST)].append(perplexity)
    numbers = {name: statistics.fmean(values) for name, values in perplexities.items()}
    numbers |= {DONE: float(len(runs)), BEST: best[-1]} if runs else dict.fromkeys(known.keys() & {DONE}, 0.0)
    numbers |= {name: math.nan for name, value in known.items() if name not in numbers and not math.isnan(value)}
    now = int(1000 * time.time())
    return measures + [
        MetricPoint(name, value, now, step) for name, value in numbers.items() if known.get(name) != value
    ]
