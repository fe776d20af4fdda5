"""A sweep at one scale in MLflow: a parent run, one below it for each trial, a second parent for those not planned."""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lm.record import Evaluation, Record, StageResult
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.store import STEP_METRIC, Measure, Run, Store

SUPERSEDED = "superseded"
"""The tag of a run whose trial is no longer planned: the key of the trial in its place, or `true`."""
_PARENT = "mlflow.parentRunId"
_VERDICT = "verdict."
_EARLIER = "Trials that the sweep file no longer plans; the tag `superseded` names the trial in the place of each."
_NO_METRICS = ("stage", "epoch", "averaging", "best")
_STATUSES = {"running": "RUNNING", "complete": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}
_LONGEST_PARAM = 6000
_LONGEST_TAG = 1000
_LONGEST_KEY = 250


@dataclass(frozen=True)
class Planned:
    """What a sweep plans when a command ends: the trials of its table, keys and variants that searches proposed.

    Runs of an `undecided` variant, whose search is not over, stay where they are.
    """

    trials: Sequence[Trial]
    searched: Collection[tuple[str, str]] = ()
    undecided: Collection[str] = ()


class Mirror:
    """Writes what MLflow lacks, found by the runs' tags; for one thread. After an error call `forget`."""

    def __init__(self, store: Store, sweep: ScaledSweep, commit: str | None, records: Records) -> None:
        self._store, self._sweep, self._commit, self._records = store, sweep, commit, records
        self._experiment = ""
        self._parent: Run | None = None
        self._runs: list[Run] = []
        self._by_name: dict[tuple[str, str], Run] = {}

    def forget(self) -> None:
        """Drop what was read of MLflow, after an error that leaves it unsure."""
        self._parent = None

    def sync(self, trial: Trial, points: Iterable[Evaluation] = (), *, running: bool = False) -> bool:
        """Write what MLflow lacks of a trial's record, its curve on disk, and these points; whether it has settled."""
        parent = self._connected()
        run = self._by_name.get((trial.key, trial.variant))
        record = None if running else self._records.find(trial)
        curve = self._curve(trial, points) if record is None else {}
        began, ended = (None, None) if record is None else _milliseconds(record)
        if run is None:
            if record is None and not (running or curve or trial.stopped_early):
                return False
            run = self._create("trial", trial.title, _trial_tags(trial) | {_PARENT: parent.id}, began)
        self._bring_back(run)
        if running:
            self._store.set_status(parent, "RUNNING")
        status = _status(trial, run, record, running=running)
        mirrored = f"{record.status} {record.finished_at}" if record else f"epoch {max(curve, default=0)}"
        if run.status == _STATUSES.get(status, "KILLED") and run.tags.get("mirrored") == mirrored:
            return record is not None
        curve = curve or self._curve(trial, points)
        steps = self._store.steps(run)
        missing = [point for epoch, point in curve.items() if epoch not in steps]
        measures = [measure for point in missing for measure in _curve_measures(point, record)]
        measures += [] if record is None else _final_measures(record)
        self._store.log(run, measures, dict(_params(trial.spec.model_dump(mode="json"))))
        steps.update(curve)
        self._store.tag(run, _trial_tags(trial) | _record_tags(record) | {"status": status, "mirrored": mirrored})
        self._store.set_status(run, _STATUSES.get(status, "KILLED"), ended)
        return record is not None

    def close(self, outcome: str, report: Path | None, findings: Mapping[str, str], planned: Planned | None) -> None:
        """Upload the report, tag its findings, and end the parent and every run that is still RUNNING."""
        parent = self._connected()
        for run in self._runs:
            if run.status == "RUNNING" and run is not parent:
                self._store.tag(run, {"status": "stopped"})
                self._store.set_status(run, "KILLED")
        if planned is not None:
            self._sort_out(planned)
        tags = self._parent_tags(outcome)
        if report is not None:
            tags["report"] = _digest(report)
            tags |= {name: "" for name in parent.tags if name.startswith(_VERDICT)} | dict(findings)
            if parent.tags.get("report") != tags["report"]:
                self._store.upload(parent, report, "report")
        self._store.tag(parent, tags)
        self._store.set_status(parent, _STATUSES.get(outcome, "KILLED"))

    def _connected(self) -> Run:
        """The sweep's parent; all of its runs have been read."""
        if self._parent is None:
            self._experiment = self._store.experiment(self._sweep.name)
            self._runs = self._store.runs(self._experiment, self._sweep.scale)
            self._by_name = {_name(run): run for run in reversed(self._runs) if run.tags.get("role") == "trial"}
            title = f"{self._sweep.name} {self._sweep.scale}"
            self._parent = self._only("sweep", title, self._parent_tags("running"))
        return self._parent

    def _only(self, role: str, title: str, tags: dict[str, str]) -> Run:
        """The run with this role, made if there is none."""
        run = next((run for run in self._runs if run.tags.get("role") == role), None)
        return run or self._create(role, title, tags)

    def _create(self, role: str, title: str, tags: dict[str, str], began: int | None = None) -> Run:
        place = {"role": role, "sweep": self._sweep.name, "scale": self._sweep.scale}
        run = self._store.create(self._experiment, title, place | tags, began)
        self._runs.append(run)
        self._by_name[_name(run)] = run
        return run

    def _parent_tags(self, status: str) -> dict[str, str]:
        tags = {"status": status, "question": self._sweep.question, "mlflow.note.content": self._sweep.question}
        return tags if self._commit is None else tags | {"commit": self._commit}

    def _curve(self, trial: Trial, points: Iterable[Evaluation]) -> dict[int, Evaluation]:
        return {point.epoch: point for point in (*points, *self._records.curve(trial))}

    def _sort_out(self, planned: Planned) -> None:
        """Tag what is no longer planned and move it out of the parent; take back what is planned again."""
        names = {(trial.key, trial.variant) for trial in planned.trials} | set(planned.searched)
        keys = {(trial.variant, str(trial.seed)): trial.key for trial in planned.trials}
        title, note = f"{self._sweep.name} {self._sweep.scale}, superseded", {"mlflow.note.content": _EARLIER}
        for run in [run for run in self._runs if run.tags.get("role") == "trial"]:
            if _name(run) in names:
                self._bring_back(run)
            elif run.tags.get("variant") not in planned.undecided:
                instead = keys.get((run.tags.get("variant", ""), run.tags.get("seed", "")), "true")
                parent = self._only(SUPERSEDED, title, note)
                self._store.set_status(parent, "KILLED")
                self._store.tag(run, {SUPERSEDED: instead, _PARENT: parent.id})

    def _bring_back(self, run: Run) -> None:
        if SUPERSEDED in run.tags:
            self._store.tag(run, {_PARENT: self._connected().id})
            self._store.untag(run, SUPERSEDED)


def _status(trial: Trial, run: Run, record: Record | None, *, running: bool) -> str:
    if running or record is not None:
        return "running" if record is None else record.status
    return "stopped early" if trial.stopped_early or run.tags.get("status") == "stopped early" else "stopped"


def _name(run: Run) -> tuple[str, str]:
    return run.tags.get("trial_key", ""), run.tags.get("variant", "")


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def findings(answer: str, verdicts: Mapping[str, str]) -> dict[str, str]:
    """The tags `answer` and `verdict.<variant>` of a sweep."""
    tags = {_verdict_key(variant): verdict[:_LONGEST_TAG] for variant, verdict in verdicts.items()}
    return tags | {"answer": answer[:_LONGEST_TAG]}


def _verdict_key(variant: str) -> str:
    """A key that MLflow takes; eight digits of the name's hash keep two changed names apart."""
    key = _VERDICT + variant
    plain = re.sub(r"[^\w.\- :/]", "_", key)
    if posixpath.normpath(plain) != plain:  # MLflow reads a key as a path, and wants one spelling of it
        plain = plain.replace("/", "_")
    if plain == key and len(key) <= _LONGEST_KEY:
        return key
    return f"{plain[: _LONGEST_KEY - 9]}-{hashlib.sha256(variant.encode()).hexdigest()[:8]}"


def _params(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """A spec's values under dotted names, each as YAML would write it."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _params(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", (value if isinstance(value, str) else json.dumps(value))[:_LONGEST_PARAM]


def _curve_measures(evaluation: Evaluation, record: Record | None) -> list[Measure]:
    """The finite numbers of one evaluation, the epoch as step; of a settled trial at the time they were made."""
    numbers = {name: float(value) for name, value in evaluation.as_metrics().items() if name not in _NO_METRICS}
    numbers[STEP_METRIC] = numbers.pop(STEP_METRIC)  # last, so that MLflow holds the whole point if it holds this
    at = int(time.time() * 1000)
    if record is not None:
        at = _milliseconds(record)[0] + int(1000 * min(evaluation.seconds, record.seconds))
    return _finite(numbers, at, evaluation.epoch)


def _final_measures(record: Record) -> list[Measure]:
    """The results of a settled trial: `<stage>/...` of every finished stage, `final/...` of the trial."""
    _, at = _milliseconds(record)
    measures, epochs = list[Measure](), 0
    for stage in record.stages:
        epochs += stage.epochs
        measures += _finite({f"{stage.name}/{name}": value for name, value in _scores(stage).items()}, at, epochs)
    names = ("seconds", "tokens_per_second", "peak_memory_bytes", "parameters")
    final = {name: float(getattr(record, name)) for name in names}
    if record.status == "complete":
        final |= _scores(record.stages[-1])
    return measures + _finite({f"final/{name}": value for name, value in final.items()}, at, epochs)


def _scores(stage: StageResult) -> dict[str, float]:
    """A stage's perplexities, and what its head measures of itself, by split: `test.marginal_nats_per_token`."""
    scores = {f"{split}.{name}": value for split, values in stage.measures.items() for name, value in values.items()}
    for split, score in (("valid", stage.valid), ("test", stage.test)):
        if score is not None:
            scores[f"{split}_perplexity"] = score.perplexity
            scores[f"{split}_perplexity_reference"] = score.perplexity_reference
    fitted = {f"fitted.{name}": value for name, value in stage.fitted.items()}
    return scores | fitted | {"best_epoch": stage.best_epoch}


def _finite(values: Mapping[str, float], milliseconds: int, step: int) -> list[Measure]:
    return [Measure(name, value, milliseconds, step) for name, value in values.items() if math.isfinite(value)]


def _trial_tags(trial: Trial) -> dict[str, str]:
    tags = {"variant": trial.variant, "change": trial.change, "seed": str(trial.seed), "trial_key": trial.key}
    return {name: value[:_LONGEST_TAG] for name, value in tags.items()}


def _record_tags(record: Record | None) -> dict[str, str]:
    if record is None:
        return {"reason": ""}  # in the place of an earlier one
    tags = {"device": record.device, "corpus_fingerprint": record.corpus.fingerprint, "commit": record.commit or ""}
    return tags | {"reason": (record.reason or "")[:_LONGEST_TAG]}


def _milliseconds(record: Record) -> tuple[int, int]:
    """When the trial began and settled; always the same, so that MLflow keeps one of two equal numbers."""
    settled = int(datetime.fromisoformat(record.finished_at).timestamp() * 1000)
    return settled - int(1000 * record.seconds), settled
