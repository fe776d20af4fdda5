"""A sweep at one scale in MLflow: a parent run, and below it a run for each trial that has something to show.

Runs of trials that are no longer planned move below a second parent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lm.record import Evaluation, Record
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow import contents
from orchestrator.watch.mlflow.store import Run, Store

SUPERSEDED = (
    "superseded"  # the tag of a run whose trial is no longer planned: the key of the trial in its place, or `true`
)
_PARENT = "mlflow.parentRunId"
_EARLIER = "Trials that the sweep file no longer plans; the tag `superseded` names the trial in the place of each."


@dataclass(frozen=True)
class Planned:
    """What a sweep plans when a command ends: the trials of its table, and keys and variants that searches proposed.

    The search of an `undecided` variant is not over, so its runs stay where they are.
    """

    trials: Sequence[Trial]
    searched: Collection[tuple[str, str]] = ()
    undecided: Collection[str] = ()


class Mirror:
    """Writes what MLflow lacks, found by the runs' tags, so that writing twice changes nothing.

    For one thread. Methods raise what MLflow raises; call `forget` then, so that the next one looks again.
    """

    def __init__(self, store: Store, sweep: ScaledSweep, commit: str | None, records: Records) -> None:
        self._store = store
        self._sweep = sweep
        self._commit = commit
        self._records = records
        self._experiment = ""
        self._parent: Run | None = None
        self._runs: list[Run] = []
        self._by_name: dict[tuple[str, str], Run] = {}

    def forget(self) -> None:
        """Drop what was read of MLflow, after an error that leaves it unsure."""
        self._parent = None

    def sync(self, trial: Trial, points: Iterable[Evaluation] = (), *, running: bool = False) -> bool:
        """Write what MLflow lacks of a trial: of its record, of its curve on disk, and of these points.

        Returns whether the trial has settled, and nothing more will come.
        """
        parent = self._connected()
        run = self._by_name.get((trial.key, trial.variant))
        record = None if running else self._records.find(trial)
        curve = self._curve(trial, points) if record is None else {}
        began, ended = (None, None) if record is None else contents.milliseconds(record)
        if run is None:
            if record is None and not (running or curve or trial.stopped_early):
                return False
            run = self._create("trial", trial.title, contents.trial_tags(trial) | {_PARENT: parent.id}, began)
        self._bring_back(run)
        if running:
            self._store.set_status(parent, "RUNNING")
        status, mirrored = _status(trial, run, record, running=running), contents.mirrored(record, curve)
        if run.status == contents.run_status(status) and run.tags.get("mirrored") == mirrored:
            return record is not None
        curve = curve or self._curve(trial, points)
        steps = self._store.steps(run)
        missing = [point for epoch, point in curve.items() if epoch not in steps]
        measures = [measure for point in missing for measure in contents.curve_measures(point, record)]
        measures += [] if record is None else contents.final_measures(record)
        self._store.log(run, measures, contents.params(trial.spec))
        steps.update(curve)
        tags = contents.trial_tags(trial) | contents.record_tags(record)
        self._store.tag(run, tags | {"status": status, "mirrored": mirrored})
        self._store.set_status(run, contents.run_status(status), ended)
        return record is not None

    def close(
        self, outcome: str, report: Path | None, findings: Mapping[str, str], planned: Planned | None = None
    ) -> None:
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
            earlier = [name for name in parent.tags if name.startswith(contents.VERDICT)]
            tags |= {**dict.fromkeys(earlier, ""), **findings}
            if parent.tags.get("report") != tags["report"]:
                self._store.upload(parent, report, "report")
        self._store.tag(parent, tags)
        self._store.set_status(parent, contents.run_status(outcome))

    def _connected(self) -> Run:
        """The sweep's parent; all of its runs have been read."""
        if self._parent is None:
            self._experiment = self._store.experiment(self._sweep.name)
            self._runs = self._store.runs(self._experiment, self._sweep.scale)
            self._by_name = {_name(run): run for run in reversed(self._runs) if run.tags.get("role") == "trial"}
            title = f"{self._sweep.name} {self._sweep.scale}"
            self._parent = self._find("sweep") or self._create("sweep", title, self._parent_tags("running"))
        return self._parent

    def _find(self, role: str) -> Run | None:
        return next((run for run in self._runs if run.tags.get("role") == role), None)

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
        for run in [run for run in self._runs if run.tags.get("role") == "trial"]:
            if _name(run) in names:
                self._bring_back(run)
            elif run.tags.get("variant") not in planned.undecided:
                instead = keys.get((run.tags.get("variant", ""), run.tags.get("seed", "")), "true")
                self._store.tag(run, {SUPERSEDED: instead, _PARENT: self._superseded_parent().id})

    def _bring_back(self, run: Run) -> None:
        if SUPERSEDED in run.tags:
            self._store.tag(run, {_PARENT: self._connected().id})
            self._store.untag(run, SUPERSEDED)

    def _superseded_parent(self) -> Run:
        title = f"{self._sweep.name} {self._sweep.scale}, superseded"
        parent = self._find(SUPERSEDED) or self._create(SUPERSEDED, title, {"mlflow.note.content": _EARLIER})
        self._store.set_status(parent, "KILLED")
        return parent


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
