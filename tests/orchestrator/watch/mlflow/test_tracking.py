"""What MLflow holds of a sweep, against real stores."""

from __future__ import annotations

import getpass
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lm.record import Record, write_curve, write_record
from orchestrator.trials.records import Records
from orchestrator.watch.mlflow import tracker as tracker_module
from orchestrator.watch.mlflow.mirror import Planned
from orchestrator.watch.mlflow.store import tracking_uri
from orchestrator.watch.mlflow.tracker import link
from tests.support.seen import BARE, FULL, Seen, eventually, expected, process_environment
from tests.support.tracking import curve, leave, point, record, score, tracker, trial


def counted(calls: Counter[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def counting(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return call(*args, **kwargs)

    return counting


def test_a_sweep_is_a_parent_with_a_run_for_each_trial(records: Records, report: Path) -> None:
    lost, stopped, waiting = trial("lost"), trial("stopped"), trial("waiting")
    reader = trial("without fine-tuning", batch_size=FULL.spec.batch_size, reads_from=FULL.key)
    mirror = tracker([FULL, reader, lost, stopped, waiting], records)
    for one in (FULL, lost, stopped):
        mirror.started(one)
    for evaluation in curve(FULL):
        mirror.evaluated(FULL, evaluation)
    mirror.settled(FULL, leave(records, FULL, record(FULL)))
    mirror.evaluated(lost, point(1, gradient_norm=float("nan"), valid_nats_per_token=1e9))
    mirror.settled(lost, leave(records, lost, record(lost, "diverged", "loss is nan at step 12"), epochs=0))
    mirror.evaluated(stopped, point(1))
    leave(records, stopped, epochs=1)
    mirror.settled(stopped, None)
    mirror.finish(report, "failed")

    seen = Seen()
    assert set(seen.nested) == {("full", 1), ("without fine-tuning", 1), ("lost", 1), ("stopped", 1)}
    assert seen.statuses() == ["FAILED", "FINISHED", "FAILED", "KILLED", "FINISHED"]
    full = seen.nested["full", 1]
    assert seen.history(("full", 1)) == expected(curve(FULL))
    assert seen.history(("without fine-tuning", 1)) == expected(curve(FULL)[:3])
    params = full.data.params
    assert (params["optimizer.kind"], params["model.hidden_size"], params["penalties"]) == (
        "nt_asgd",
        "[16, 8]",
        "null",
    )
    assert (params["seed"], params["finetune.epochs"]) == ("1", "2")
    metrics = full.data.metrics
    assert metrics["stage/train/test_perplexity"] == pytest.approx(80.0)
    assert metrics["stage/finetune-1/test_perplexity_reference"] == pytest.approx(79.5)
    assert metrics["final/valid_perplexity"] == pytest.approx(89.0)
    assert {name.partition("/")[0] for name in metrics} == {"curve", "final", "progress", "stage"}
    tags = full.data.tags
    names = ("sweep", "scale", "variant", "change", "seed", "trial_key", "commit", "device", "status", "reason")
    assert [tags.get(name, "") for name in names] == [
        *("parts", "laptop", "full", "changes full", "1", FULL.key, "abc123", "cpu (test)", "complete", "")
    ]
    assert tags["corpus_fingerprint"] == "f" * 64
    constants = ("seconds", "peak_memory_bytes", "finetune-1.best_epoch", "mlflow.source.git.commit")
    assert [tags[name] for name in constants] == ["8", "5000000", "2", "abc123"]
    assert (params["parameters"], tags["mlflow.user"]) == ("1234", getpass.getuser())
    assert (tags["mlflow.source.name"], tags["mlflow.source.type"]) == ("sweeps/parts.yaml", "LOCAL")
    [dataset] = full.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("pydoc", "f" * 36)
    assert seen.nested["lost", 1].data.tags["reason"] == "loss is nan at step 12"
    assert {"curve/valid_perplexity", "curve/gradient_norm"}.isdisjoint(seen.nested["lost", 1].data.metrics)
    [parent] = seen.parents
    assert all(run.data.tags["mlflow.parentRunId"] == parent.info.run_id for run in seen.nested.values())
    assert (parent.data.tags["question"], parent.data.tags["commit"]) == ("Which parts matter?", "abc123")
    artifacts = [file.path for file in seen.client.list_artifacts(parent.info.run_id, "report")]
    assert sorted(artifacts) == ["report/curves.png", "report/report.md"]
    assert (Path("mlartifacts") / "parts" / parent.info.run_id).is_dir()
    assert not Path("mlruns").exists()


def test_what_a_head_adds_to_its_loss_and_measures_of_itself_is_there(records: Records) -> None:
    mirror = tracker([BARE], records)
    points = [point(epoch, terms={"augmented": 0.5 / epoch, "load balance": 2.0}) for epoch in (1, 2)]
    mirror.started(BARE)
    for evaluation in points:
        mirror.evaluated(BARE, evaluation)
    whole = record(BARE)
    own = {"valid": {"marginal_nats_per_token": 4.5}, "test": {"marginal_nats_per_token": 4.25}}
    stages = [stage.model_copy(update={"measures": own}) for stage in whole.stages]
    settled = whole.model_copy(update={"stages": tuple(stages)})
    write_curve(records.folder(BARE.key), points)
    write_record(records.folder(BARE.key), settled)
    mirror.settled(BARE, settled)
    mirror.finish(None, "complete")
    seen = Seen()
    name = (BARE.variant, BARE.seed)
    assert seen.history(name, "curve/term.augmented") == [(1, 0.5), (2, 0.25)]
    assert seen.history(name, "curve/term.load balance") == [(1, 2.0), (2, 2.0)]
    metrics = seen.nested[name].data.metrics
    assert metrics["stage/train/valid.marginal_nats_per_token"] == 4.5
    assert metrics["final/test.marginal_nats_per_token"] == 4.25


def test_scales_have_parents_of_their_own(records: Records) -> None:
    leave(records, FULL, record(FULL))
    for scale in ("laptop", "paper", "laptop"):
        tracker([FULL], records, scale=scale).finish(None, "complete")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri())
    runs = client.search_runs([client.get_experiment_by_name("parts").experiment_id])
    roles = sorted((run.data.tags["scale"], run.data.tags["role"]) for run in runs)
    assert roles == [(scale, role) for scale in ("laptop", "paper") for role in ("sweep", "trial")]


def test_a_finished_sweep_again_costs_one_search(
    records: Records, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (FULL, BARE):
        leave(records, one, record(one))
    tracker([FULL, BARE], records).finish(report, "complete")
    before, calls = Seen().everything(), Counter[str]()
    monkeypatch.setattr(tracker_module, "_SYNC_SECONDS", 60.0)  # the command ends before anything is written
    from mlflow import MlflowClient

    for name in ("search_runs", "create_run", "get_metric_history", "log_batch", "set_terminated", "update_run"):
        monkeypatch.setattr(MlflowClient, name, counted(calls, name, getattr(MlflowClient, name)))
    tracker([FULL, BARE], records).finish(report, "complete")
    assert calls == {"search_runs": 1}
    assert Seen().everything() == before
    (report / "report.md").write_text("# Another\n")
    tracker([FULL, BARE], records).finish(report, "complete")
    [parent] = Seen().parents
    changed = Seen().client.download_artifacts(parent.info.run_id, "report/report.md")
    assert Path(changed).read_text() == "# Another\n"


def test_a_resumed_trial_goes_on_in_its_own_run(records: Records) -> None:
    first = tracker([FULL], records)
    first.started(FULL)
    first.evaluated(FULL, point(1))
    first.evaluated(FULL, point(2))
    first.settled(FULL, None)
    leave(records, FULL, epochs=2)
    first.finish(None, "interrupted")
    assert Seen().statuses() == ["KILLED", "KILLED"]
    begun = Seen()

    again = tracker([FULL], records)
    again.started(FULL)
    again.evaluated(FULL, point(2))  # the epoch after the last checkpoint, trained twice
    again.evaluated(FULL, point(3))
    eventually(lambda: Seen().statuses() == ["RUNNING", "RUNNING"] and len(Seen().history(("full", 1))) == 3)
    again.settled(FULL, leave(records, FULL, record(FULL)))
    again.finish(None, "complete")
    seen = Seen()
    assert seen.statuses() == ["FINISHED", "FINISHED"]
    assert seen.parents[0].info.run_id == begun.parents[0].info.run_id
    assert seen.nested["full", 1].info.run_id == begun.nested["full", 1].info.run_id
    assert seen.history(("full", 1)) == expected(curve(FULL))


def test_a_failed_trial_that_succeeds_later_forgets_its_reason(records: Records) -> None:
    leave(records, BARE, record(BARE, "failed", "disk full"), epochs=1)
    tracker([BARE], records).finish(None, "failed")
    assert Seen().nested["without dropout", 2].data.tags["reason"] == "disk full"
    leave(records, BARE, record(BARE))
    tracker([BARE], records).finish(None, "complete")
    assert Seen().statuses() == ["FINISHED", "FINISHED"]
    assert Seen().nested["without dropout", 2].data.tags.get("reason", "") == ""
    assert Seen().history(("without dropout", 2)) == expected(curve(BARE))


def test_the_users_store_is_honoured(
    records: Records, migrated: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / "mine.db"
    elsewhere.parent.mkdir()
    shutil.copy(migrated, elsewhere)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}")
    leave(records, FULL, record(FULL))
    tracker([FULL], records).finish(None, "complete")
    assert Seen().experiment is None
    assert Seen(f"sqlite:///{elsewhere}").statuses() == ["FINISHED", "FINISHED"]
    assert (
        Seen(f"sqlite:///{elsewhere}").experiment.artifact_location == (elsewhere.parent / "mlartifacts/parts").as_uri()
    )


def test_importing_the_tracker_imports_no_mlflow() -> None:
    code = "import sys, orchestrator.watch.mlflow; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=process_environment(), check=False).returncode == 0


def test_a_trial_that_nobody_planned_gets_its_run_and_keeps_it(records: Records, report: Path) -> None:
    found = trial("found", 7)
    leave(records, found, epochs=1)
    for number in (1, 2):
        mirror = tracker([], records)
        if number == 1:
            mirror.started(found)
            mirror.evaluated(found, point(1))
        mirror.settled(replace(found, stopped_early=True), None)
        mirror.finish(report, "complete")
        seen = Seen()
        assert set(seen.nested) == {("found", 7)}
        run = seen.nested["found", 7]
        assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "stopped early")


def test_verdicts_and_answer_are_tags_of_the_parent_that_can_be_filtered_by(records: Records, report: Path) -> None:
    leave(records, FULL, record(FULL))
    (report / "report.html").write_text("<p>")
    found = {
        "no dropout": "raises",
        "no AR/TAR": "lowers",
        "a'b/../<c>\n": "not decided",
        "x" * 400: "not decided",
        "../up": "not decided",
    }
    tracker([FULL], records).finish(report, "complete", "It hurts.", found)
    seen = Seen()
    (parent,) = seen.parents
    assert seen.experiment is not None

    def having(query: str) -> list[str]:
        return [run.info.run_id for run in seen.client.search_runs([seen.experiment.experiment_id], query)]

    assert having("tags.\"verdict.no dropout\" = 'raises'") == having("tags.\"verdict.no AR/TAR\" = 'lowers'")
    assert having("tags.\"verdict.no dropout\" = 'raises'") == [parent.info.run_id]
    assert having("tags.\"verdict.no dropout\" = 'lowers'") == []
    assert parent.data.tags["answer"] == "It hurts."
    others = [name for name, value in parent.data.tags.items() if value == "not decided"]
    assert len(others) == 3 and all(len(name) <= 250 for name in others)
    assert any(name.startswith("verdict.a_b_.._") for name in others)
    files = [file.path for file in seen.client.list_artifacts(parent.info.run_id, "report")]
    assert sorted(files) == ["report/curves.png", "report/report.html", "report/report.md"]


def test_a_verdict_that_is_no_longer_given_is_no_tag(records: Records, report: Path) -> None:
    leave(records, FULL, record(FULL))
    tracker([FULL], records).finish(report, "complete", "a", {"b": "raises", "c": "lowers"})
    tracker([FULL], records).finish(None, "stopped")
    assert Seen().parents[0].data.tags["verdict.b"] == "raises", "without a report nothing is known anew"
    tracker([FULL], records).finish(report, "complete", "a", {"b": "lowers"})
    tags = Seen().parents[0].data.tags
    assert (tags["verdict.b"], tags["verdict.c"]) == ("lowers", "")


def later(of: Record, seconds: int, **changed: float) -> Record:
    """The record as of a trial that settled so much later, with these perplexities."""
    settled = datetime.fromisoformat(of.finished_at) + timedelta(seconds=seconds)
    stage = of.stages[-1].model_copy(update={split: score(value) for split, value in changed.items()})
    return of.model_copy(update={"finished_at": settled.isoformat(), "stages": (*of.stages[:-1], stage)})


def test_the_sweeps_run_shows_how_far_it_is_and_what_each_variant_reached(records: Records, report: Path) -> None:
    other = trial("full", 2, finetune=2)
    leave(records, FULL, later(record(FULL), 30, valid=95.0, test=100.0))
    leave(records, other, later(record(other), 10, valid=90.0, test=81.0))
    leave(records, BARE, later(record(BARE), 20, valid=99.0, test=77.0))
    mirror = tracker([FULL, other, BARE], records)
    mirror.finish(report, "complete", "It helps.", {}, Planned([FULL, other, BARE]))
    seen = Seen()
    [parent] = seen.parents
    numbers = {
        "curve/trials_done": 3.0,
        "curve/best_valid_perplexity": pytest.approx(90.0),
        "full/test_perplexity": pytest.approx(90.5),  # the mean over seeds, as on the page
        "without dropout/test_perplexity": pytest.approx(77.0),
    }
    assert parent.data.metrics == numbers

    def history(name: str) -> list[tuple[int, float]]:
        points = seen.client.get_metric_history(parent.info.run_id, f"curve/{name}")
        return [(p.timestamp // 1000, round(p.value, 6)) for p in sorted(points, key=lambda p: p.step)]

    first = int(datetime.fromisoformat(record(FULL).finished_at).timestamp())
    assert history("trials_done")[:2] == [(first + 10, 1), (first + 20, 2)]
    assert [value for _, value in history("trials_done")] == [1, 2, 3]
    assert [value for _, value in history("best_valid_perplexity")] == [90.0, 90.0, 90.0]
    note = parent.data.tags["mlflow.note.content"].split("\n\n")
    assert note == ["Which parts matter?", "It helps.", f"Page: `{report}/report.md`, also under Artifacts."]
    experiment = seen.experiment
    assert experiment.tags["mlflow.note.content"] == "Which parts matter?"
    place = f"#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning&compareRunsMode=CHART"
    assert mirror.link == f"mlflow ui, then http://127.0.0.1:5000/{place}"

    tracker([FULL, other], records).finish(report, "complete", planned=Planned([FULL, other]))
    [metrics] = [run.data.metrics for run in Seen().parents if run.data.tags["role"] == "sweep"]
    assert math.isnan(metrics.pop("without dropout/test_perplexity")), "its trials are superseded"
    assert metrics == {name: numbers[name] for name in metrics} | {"curve/trials_done": 2.0}
    tracker([FULL, other, BARE], records).finish(report, "complete", planned=Planned([FULL, other, BARE]))
    [metrics] = [run.data.metrics for run in Seen().parents if run.data.tags["role"] == "sweep"]
    assert metrics == numbers


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://me:secret@host:5000/", "http://***@host:5000/#/experiments/7/runs?"),
        ("sqlite:////else where/x.db", "mlflow ui --backend-store-uri 'sqlite:////else where/x.db', then http://127."),
    ],
)
def test_the_link_opens_the_store_that_was_written(uri: str, shown: str) -> None:
    assert link(uri, "7").startswith(shown)


def test_a_settled_trials_files_are_artifacts(records: Records) -> None:
    leave(records, FULL, record(FULL))
    log = records.folder(FULL.key) / "log.txt"
    log.write_text("begins\n")
    reader = trial("without fine-tuning", batch_size=FULL.spec.batch_size, reads_from=FULL.key)
    tracker([FULL, reader], records).finish(None, "complete")
    seen = Seen()
    for run in seen.nested.values():
        names = [file.path for file in seen.client.list_artifacts(run.info.run_id)]
        assert names == ["curve.parquet", "log.txt", "record.json"]
        assert Path(seen.client.download_artifacts(run.info.run_id, "log.txt")).read_text() == "begins\n"


def test_a_trial_that_a_scheduler_stopped_is_finished_and_pruned_with_its_times(records: Records) -> None:
    found = replace(trial("found", 7), number=4, stopped_early=True)
    leave(records, found, epochs=2)  # 1.5 seconds an epoch
    os.utime(records.folder(found.key) / "curve.parquet", (1_700_000_000, 1_700_000_000))
    mirror = tracker([FULL], records)
    mirror.settled(found, None)
    mirror.finish(None, "stopped")
    run = Seen().nested["found", 7]
    assert (run.info.status, run.data.tags["pruned"]) == ("FINISHED", "true")
    assert (run.info.start_time, run.info.end_time) == (1_699_999_997_000, 1_700_000_000_000)
    assert "curve/trials_done" not in Seen().parents[0].data.metrics, "it was never judged"
