"""A sweep at one scale in MLflow: a parent run, one below it for each trial, a second parent for those not planned."""

from __future__ import annotations

import getpass
import json
import math
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lm.hashes import CURVE, RECORD
from lm.kept import say_once
from lm.record import CorpusFacts, Evaluation, Record
from lm.trial_log import LOG
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow import store
from orchestrator.watch.mlflow.store import MetricPoint, Run, artifacts_folder, connect, sqlite_file

SUPERSEDED = "superseded"
"""The tag of a run whose trial is no longer planned: the key of the trial in its place, or `true`."""
PLACE = "runs_folder"
"""The tag of a run that says on which machine, and in which folder there, its trial was last trained or found."""
_PARENT, _NOTE, _COMMIT = "mlflow.parentRunId", "mlflow.note.content", "mlflow.source.git.commit"
_LONGEST_NOTE = 20_000
"""Of an experiment: MLflow refuses a longer one. Those of runs it cuts."""
_EARLIER = "Trials that the sweep file no longer plans; the tag `superseded` names the trial in the place of each."
_EARLY = "stopped early"
_STATUSES = {
    "running": "RUNNING",
    "complete": "FINISHED",
    "diverged": "FAILED",
    "failed": "FAILED",
    _EARLY: "FINISHED",
}
_MOST_RUNS = 50_000  # the most that MLflow gives at once
_LONGEST_DIGEST = 36
_FORM = 3  # a trial that was mirrored in an earlier form, as with two trainings in a run, is mirrored once more


@dataclass(frozen=True)
class Planned:
    """What a sweep plans when a command ends: the trials of its table, keys and variants that searches proposed.

    Runs of an `undecided` variant, whose search is not over, stay where they are. `known` are the trials of which
    MLflow is to have what the records have.
    """

    trials: Sequence[Trial]
    searched: Collection[tuple[str, str]] = ()
    undecided: Collection[str] = ()
    known: Sequence[Trial] = ()


class Mirror:
    """Writes what MLflow lacks, found by the runs' tags; for one thread. After an error call `forget`.

    Building it creates a local database; `uri` is that of the tracking store, `source` the sweep file.
    """

    def __init__(self, uri: str, sweep: ScaledSweep, commit: str | None, records: Records, source: str = "") -> None:
        self._client, self._artifacts = connect(uri), artifacts_folder(uri)
        self._here = None if sqlite_file(uri) is None else self._artifacts  # others share a server's database
        self._sweep, self._commit, self._records = sweep, commit, records
        # The driver that holds the sweep in this folder is the only one there; elsewhere, others may train.
        self._place = records.root.resolve().as_uri().replace("//", f"//{socket.gethostname()}", 1)
        self._source = {"mlflow.source.name": source, "mlflow.source.type": "LOCAL"} if source else {}
        with suppress(OSError, KeyError):  # a container's user may have no name
            self._source["mlflow.user"] = getpass.getuser()
        self._title = f"{sweep.name} {sweep.named_scale}".strip()
        self.experiment = ""
        self._parent: Run | None = None
        self._runs: list[Run] = []
        self._by_name: dict[tuple[str, str], Run] = {}

    def forget(self) -> None:
        """Drop what was read of MLflow, after an error that leaves it unsure."""
        self._parent = None

    def sync(self, trial: Trial, points: Iterable[Evaluation] = (), *, running: bool = False) -> None:
        """Write what MLflow lacks of a trial's record, its curve on disk, and these points.

        A run that has numbers of another training is deleted, and a new one takes its place.
        """
        parent = self._connected()
        run = self._by_name.get((trial.key, trial.variant))
        record = None if running else self._records.find(trial)
        mirrored = f"{record.status} {record.finished_at}, form {_FORM}" if record else ""
        of_all = {"status": _EARLY} if trial.stopped_early and not record else {"mirrored": mirrored or "never"}
        if run is not None and run.status != "RUNNING" and not running and of_all.items() <= run.tags.items():
            self._bring_back(run)
            return
        if running:  # another driver may have ended them
            for known in filter(None, (parent, run)):
                known.read_again()
        curve = {point.epoch: point for point in (*points, *self._records.curve(trial))}
        times = None if running else self._times(trial, record)
        began, ended = times or (None, None)
        is_heard_of = bool(running or record or curve or trial.stopped_early)
        if not is_heard_of and (run is None or self._is_live_elsewhere(run)):
            return
        results = [] if record is None or ended is None else store.final_measures(record, ended)
        steps = set() if run is None else self._steps(run)
        if (
            run is not None
            and not (running and self._is_live_elsewhere(run))  # if two drivers train one trial, they share its run
            and self._is_of_another_training(run, steps, curve, record, results)
        ):
            self._client.delete_run(run.id)
            self._runs.remove(run)
            run, steps = None, set()
        if run is None:
            run = self._create("trial", trial.title, store.trial_tags(trial) | {_PARENT: parent.id}, began)
        self._bring_back(run)
        if running:
            parent.set_status("RUNNING")
        missing = [point for epoch, point in curve.items() if epoch not in steps]
        measures = [measure for point in missing for measure in store.curve_measures(point, times)]
        measures += results
        if record is not None:
            self._client.log_inputs(run.id, [_dataset(record.corpus)])
        run.log(measures, store.params(trial), {PLACE: self._place})
        early = trial.stopped_early or run.tags.get("status") == _EARLY
        status = record.status if record else "running" if running else _EARLY if early else "stopped"
        if record is not None or status == _EARLY:
            folder = self._records.folder(self._records.holder(trial))
            for name in (RECORD, CURVE, LOG):
                if (folder / name).exists():
                    self._client.log_artifact(run.id, folder / name)
        run.set_status(_STATUSES.get(status, "KILLED"), ended)
        tags = {"status": status, "mirrored": mirrored, "pruned": "true" if status == _EARLY else ""}
        run.log(tags=store.trial_tags(trial) | store.record_tags(record) | tags)

    def sum_up(self) -> None:
        """Bring the numbers of the sweep's own run up to date with those of its trials."""
        parent = self._connected()
        complete = [run for run in self._runs if run.status == "FINISHED" and store.JUDGED in run.metrics]
        planned = [run for run in complete if run.tags.get(_PARENT) == parent.id]
        parent.log(store.sweep_numbers(planned, parent.metrics, len(complete)))

    def close(self, outcome: str, report: Path | None, findings: Mapping[str, str], planned: Planned | None) -> None:
        """Upload the report, tag its findings, and end the parent and the runs that this folder left RUNNING."""
        parent = self._connected()
        for run in self._runs:
            if run.status == "RUNNING" and run is not parent and not self._is_live_elsewhere(run):
                run.log(tags={"status": "stopped"})
                run.set_status("KILLED")
        if planned is not None:
            self._sort_out(planned)
        self.sum_up()
        tags = self._parent_tags(outcome)
        if report is not None:
            tags |= {name: "" for name in parent.tags if name.startswith(store.VERDICT)} | dict(findings)
            page = f"Page: `{report / 'report.md'}`, also under Artifacts."
            tags[_NOTE] = "\n\n".join(filter(None, (self._sweep.question, findings.get("answer"), page)))
            self._client.log_artifacts(parent.id, report, "report")
        parent.log(tags=tags)
        parent.set_status(_STATUSES.get(outcome, "KILLED"))

    def _connected(self) -> Run:
        """The sweep's parent; all of its runs have been read."""
        if self._parent is None:
            self.experiment = self._experiment()
            query, order = f"tags.scale = '{self._sweep.scale}'", ["attributes.start_time ASC"]
            of_scale = self._client.search_runs([self.experiment], query, max_results=_MOST_RUNS, order_by=order)
            self._runs = [Run(self._client, run) for run in of_scale]
            self._by_name = {_name(run): run for run in reversed(self._runs) if run.tags.get("role") == "trial"}
            self._parent = self._only(
                "sweep", self._title, self._parent_tags("running") | {_NOTE: self._sweep.question}
            )
        return self._parent

    def _experiment(self) -> str:
        """The id of the sweep's experiment, restored if needed, or created."""
        name = self._sweep.name
        location = None if self._artifacts is None else (self._artifacts / name).as_uri()
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            note = self._sweep.question[:_LONGEST_NOTE]
            return str(self._client.create_experiment(name, location, {_NOTE: note}))
        kept = urlsplit(experiment.artifact_location)
        if self._here is not None and kept.scheme == "file":
            folder, here = Path(url2pathname(kept.path)).resolve(), (self._here / name).resolve()
            if folder != here:
                say_once(f"MLflow puts the files of {name} into {folder}, where they began, not into {here}")
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _only(self, role: str, title: str, tags: dict[str, str]) -> Run:
        """The run with this role, made if there is none."""
        run = next((run for run in self._runs if run.tags.get("role") == role), None)
        return run or self._create(role, title, tags)

    def _create(self, role: str, title: str, tags: dict[str, str], began: int | None = None) -> Run:
        tags |= {"role": role, "sweep": self._sweep.name, "scale": self._sweep.scale, PLACE: self._place} | self._source
        created = self._client.create_run(self.experiment, start_time=began, tags=tags, run_name=title)
        run = Run(self._client, created)
        self._runs.append(run)
        self._by_name[_name(run)] = run
        return run

    def _parent_tags(self, status: str) -> dict[str, str]:
        tags = {"status": status, "question": self._sweep.question}
        return tags if self._commit is None else tags | {"commit": self._commit, _COMMIT: self._commit}

    def _times(self, trial: Trial, record: Record | None) -> tuple[int, int] | None:
        """When it began and ended, in milliseconds; always the same, so that MLflow keeps one of two equal numbers."""
        times = self._records.times(self._records.holder(trial), record)
        return None if times is None else (int(1000 * times[0].timestamp()), int(1000 * times[1].timestamp()))

    def _sort_out(self, planned: Planned) -> None:
        """Tag what is no longer planned and move it out of the parent; take back what is planned again."""
        names = {(trial.key, trial.variant) for trial in planned.trials} | set(planned.searched)
        planned_keys = {key for key, _ in names}
        keys = {(trial.variant, str(trial.seed)): trial.key for trial in planned.trials}
        title, note = f"{self._title}, superseded", {_NOTE: _EARLIER}
        for run in [run for run in self._runs if run.tags.get("role") == "trial"]:
            if _name(run) in names:
                self._bring_back(run)
            elif run.tags.get("variant") not in planned.undecided and not self._is_live_elsewhere(run):
                of_name = keys.get((run.tags.get("variant", ""), run.tags.get("seed", "")), "true")
                own_key = run.tags.get("trial_key", "")  # if the variant has another name since
                instead = own_key if own_key in planned_keys else of_name
                parent = self._only(SUPERSEDED, title, note)
                parent.set_status("KILLED")
                run.log(tags={SUPERSEDED: instead, _PARENT: parent.id})

    def _steps(self, run: Run) -> set[int]:
        """The steps of the curve that MLflow holds whole."""
        return {point.step for point in self._client.get_metric_history(run.id, store.STEP_METRIC)}

    def _is_of_another_training(
        self,
        run: Run,
        steps: set[int],
        curve: Mapping[int, Evaluation],
        record: Record | None,
        results: Sequence[MetricPoint],
    ) -> bool:
        """Whether a run has numbers that the trial's curve or, if it has a record, its results have not."""
        held = {point.step: point.value for point in self._client.get_metric_history(run.id, store.LOSS_METRIC)}
        for step in steps & curve.keys():
            loss = curve[step].valid_nats_per_token
            if held.get(step) != (loss if math.isfinite(loss) else None):
                return True
        if record is None:
            return False
        shown = {name: value for name, value in run.metrics.items() if name.startswith(store.RESULTS)}
        if not shown.items() <= {measure.name: measure.value for measure in results}.items():
            return True
        return record.status != "failed" and not steps <= curve.keys()  # a failed trial's curve may lie elsewhere

    def _is_live_elsewhere(self, run: Run) -> bool:
        """Whether a driver on another machine, or of another folder, may be training it, which alone knows."""
        return run.status == "RUNNING" and run.tags.get(PLACE) != self._place

    def _bring_back(self, run: Run) -> None:
        if SUPERSEDED in run.tags:
            run.log(tags={_PARENT: self._connected().id})
            self._client.delete_tag(run.id, SUPERSEDED)
            del run.tags[SUPERSEDED]


def _name(run: Run) -> tuple[str, str]:
    return run.tags.get("trial_key", ""), run.tags.get("variant", "")


def _dataset(corpus: CorpusFacts) -> Any:
    """What a run was trained on, as MLflow says it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = json.dumps({"name": corpus.name})
    profile = json.dumps({"rule": corpus.vocabulary_rule, "train_tokens": corpus.train_tokens})
    dataset = Dataset(corpus.name, corpus.fingerprint[:_LONGEST_DIGEST], "corpus", source, profile=profile)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])
