"""A sweep at one scale in MLflow: one parent run, and below it a run for each trial that has something to show.

Runs whose trials are no longer planned move below a second parent, because they are none of what the first one says.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lm.record import Evaluation, Record
from orchestrator.errors import redacted
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow import contents
from orchestrator.watch.mlflow.planned import SUPERSEDED, Planned
from orchestrator.watch.mlflow.store import Run, Store

_log = logging.getLogger(__name__)

_PARENT = "mlflow.parentRunId"
_EARLIER = "Trials that the sweep file no longer plans; the tag `superseded` names the trial in the place of each."


@dataclass(frozen=True)
class Title:
    """What the parent run says of the sweep."""

    sweep: str
    question: str
    scale: str
    commit: str | None


class Mirror:
    """Writes what MLflow lacks, found by the runs' tags, so that writing twice changes nothing.

    For one thread. Methods raise what MLflow raises; then `forget` makes the next one look again.
    """

    def __init__(self, store: Store, title: Title, trials: Sequence[Trial], records: Records) -> None:
        self._store = store
        self._title = title
        self._trials = {_name(trial): trial for trial in trials}
        self._records = records
        self._experiment = ""
        self._parent: Run | None = None
        self._runs: dict[tuple[str, str], Run] = {}
        self._strays: list[Run] = []
        self._earlier: Run | None = None
        self._touched: set[tuple[str, str]] = set()
        self._unreadable: set[tuple[str, str]] = set()

    def forget(self) -> None:
        """Drop what was believed about MLflow, after an error that leaves it unsure."""
        self._parent = None

    def write(self, trial: Trial, status: str, points: Iterable[Evaluation] = (), record: Record | None = None) -> None:
        """Bring a trial's run up to this state; the first and the last time also with the curve that is on disk."""
        parent, name = self._connected(), _name(trial)
        self._know(trial)
        if status != "running" or name not in self._touched:
            points = [*self._curve(trial), *points]
        curve = {point.epoch: point for point in points}
        run = self._runs.get(name) or self._create(parent, trial, status, record)
        self._bring_back(run)
        if run.steps is None:
            run.steps = self._store.steps(run)
        fresh = [point for epoch, point in curve.items() if epoch not in run.steps]
        measures = [measure for point in fresh for measure in contents.curve_measures(point, record)]
        tags = self._tags(trial, status) | contents.settled_tags(record)
        if status != "running":
            tags["mirrored"] = contents.marker(record, curve)
        if record is not None and run.tags.get("mirrored") != tags["mirrored"]:
            measures += contents.final_measures(record)
        params = {key: value for key, value in contents.params(trial.spec).items() if key not in run.params}
        self._store.log(run, measures, params, _news(tags, run))
        run.steps |= curve.keys()
        self._set_status(run, status, None if record is None else contents.finished_milliseconds(record))
        if status == "running":
            self._set_status(parent, status)
        self._touched.add(name)

    def catch_up(self, trial: Trial, *, final: bool) -> None:
        """Fill in a settled trial from its record; at the end an unfinished one too, as far as it came."""
        self._connected()
        self._know(trial)
        run = self._runs.get(_name(trial))
        try:
            record = self._records.find(trial)
        except Exception as error:
            self._complain(trial, error)
            return
        early = trial.stopped_early or (run is not None and run.tags.get("status") == "stopped early")
        status = record.status if record is not None else "stopped early" if early else "stopped"
        curve = self._curve(trial) if record is None and final else []
        marker = contents.marker(record, [point.epoch for point in curve])
        if run is not None and run.status == contents.run_status(status) and run.tags.get("mirrored") == marker:
            return
        if record is not None or (final and (run is not None or curve)):
            self.write(trial, status, (), record)

    def close(
        self, outcome: str, report: Path | None, findings: Mapping[str, str], planned: Planned | None = None
    ) -> None:
        """Upload the report, tag what it found and end the parent, with every run that is still RUNNING.

        Runs whose trials are not `planned` move out of the parent; None moves none.
        """
        parent = self._connected()
        for run in (*self._runs.values(), *self._strays):
            if run.status == "RUNNING":
                self._store.log(run, (), {}, {"status": "stopped"})
                self._set_status(run, "stopped")
        if planned is not None:
            self._sort_out(planned)
        tags = self._parent_tags(outcome)
        if report is not None:
            tags["report"] = _digest(report)
            earlier = [name for name in parent.tags if name.startswith(contents.VERDICT)]
            tags |= {**dict.fromkeys(earlier, ""), **findings}
            if parent.tags.get("report") != tags["report"]:
                self._store.upload(parent, report, "report")
        self._store.log(parent, (), {}, _news(tags, parent))
        self._set_status(parent, outcome)

    def _connected(self) -> Run:
        if self._parent is not None:
            return self._parent
        title = self._title
        self._experiment = self._store.experiment(title.sweep)
        self._runs, self._strays, self._touched, self._earlier = {}, [], set(), None
        parents: list[Run] = []
        for run in self._store.runs(self._experiment, title.scale):
            name = _run_name(run)
            if run.tags.get("role") == "sweep":
                parents.append(run)
            elif run.tags.get("role") == SUPERSEDED:
                self._earlier = run
            elif name in self._trials and name not in self._runs:
                self._runs[name] = run
            elif run.tags.get("role") == "trial":
                self._strays.append(run)
        if not parents:
            tags = self._parent_tags("running")
            parents.append(self._store.create(self._experiment, f"{title.sweep} {title.scale}", tags))
        self._parent = parents[0]
        return self._parent

    def _know(self, trial: Trial) -> None:
        """A trial proposed while the sweep ran: the run that an earlier command gave it is no stray."""
        name = _name(trial)
        if name not in self._trials:
            self._trials[name] = trial
            own = next((run for run in self._strays if _run_name(run) == name), None)
            if own is not None:
                self._strays.remove(own)
                self._runs[name] = own

    def _sort_out(self, planned: Planned) -> None:
        """Tag what is no longer planned and move it out of the parent; take back what is planned again."""
        for run in (*self._runs.values(), *self._strays):
            if planned.has(run.tags) or _run_name(run) in self._touched:
                self._bring_back(run)
            elif (instead := planned.instead(run.tags)) is not None:
                tags = {SUPERSEDED: instead, _PARENT: self._parent_of_earlier().id}
                self._store.log(run, (), {}, _news(tags, run))

    def _bring_back(self, run: Run) -> None:
        if SUPERSEDED in run.tags:
            self._store.log(run, (), {}, _news({_PARENT: self._connected().id}, run))
            self._store.untag(run, SUPERSEDED)

    def _parent_of_earlier(self) -> Run:
        if self._earlier is None:
            title = self._title
            tags = {"role": SUPERSEDED, "sweep": title.sweep, "scale": title.scale, "mlflow.note.content": _EARLIER}
            name = f"{title.sweep} {title.scale}, superseded"
            self._earlier = self._store.create(self._experiment, name, tags)
        self._set_status(self._earlier, "stopped")
        return self._earlier

    def _create(self, parent: Run, trial: Trial, status: str, record: Record | None) -> Run:
        tags = self._tags(trial, status) | {_PARENT: parent.id}
        began = None if record is None else contents.finished_milliseconds(record) - int(1000 * record.seconds)
        run = self._store.create(self._experiment, trial.title, tags, began)
        self._runs[_name(trial)] = run
        return run

    def _tags(self, trial: Trial, status: str) -> dict[str, str]:
        place = {"role": "trial", "sweep": self._title.sweep, "scale": self._title.scale}
        return place | contents.trial_tags(trial) | {"status": status}

    def _parent_tags(self, status: str) -> dict[str, str]:
        title = self._title
        place = {"role": "sweep", "sweep": title.sweep, "scale": title.scale, "status": status}
        commit = {} if title.commit is None else {"commit": title.commit}
        return place | commit | {"question": title.question, "mlflow.note.content": title.question}

    def _set_status(self, run: Run, status: str, ended: int | None = None) -> None:
        if run.status != contents.run_status(status):
            self._store.set_status(run, contents.run_status(status), ended)

    def _curve(self, trial: Trial) -> list[Evaluation]:
        try:
            return self._records.curve(trial)
        except Exception as error:
            self._complain(trial, error)
            return []

    def _complain(self, trial: Trial, error: Exception) -> None:
        if _name(trial) not in self._unreadable:
            self._unreadable.add(_name(trial))
            _log.warning("%s, seed %d: not mirrored in MLflow: %s", trial.variant, trial.seed, redacted(error))


def _name(trial: Trial) -> tuple[str, str]:
    return trial.key, trial.variant


def _run_name(run: Run) -> tuple[str, str]:
    return run.tags.get("trial_key", ""), run.tags.get("variant", "")


def _news(tags: Mapping[str, str], run: Run) -> dict[str, str]:
    return {name: value for name, value in tags.items() if run.tags.get(name, "") != value}


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
