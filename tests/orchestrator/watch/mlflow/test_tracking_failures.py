"""What MLflow holds whatever happened to the driver or the server, and what that costs the sweep."""

from __future__ import annotations

import contextlib
import http.server
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow import tracker as tracker_module
from orchestrator.watch.mlflow.mirror import Mirror
from orchestrator.watch.mlflow.store import Run
from tests.support.seen import (
    AT_ONCE,
    BARE,
    FULL,
    SECONDS,
    Seen,
    closed_port,
    eventually,
    expected,
    process_environment,
)
from tests.support.tracking import curve, leave, point, record, tracker, trial

KILLED_DRIVER = """
import time
from pathlib import Path
from orchestrator.trials.records import Records
from tests.support.tracking import leave, point, record, tracker, trial
full, bare, dropped = trial("full", finetune=2), trial("without dropout", 2), trial("dropped")
records = Records(Path("runs"))
mirror = tracker([full, bare, dropped], records)
for one in (full, bare, dropped):
    mirror.started(one)
    mirror.evaluated(one, point(1))
time.sleep(60)
"""


def test_the_command_after_a_killed_driver_leaves_nothing_running(records: Records) -> None:
    driver = subprocess.Popen([sys.executable, "-c", KILLED_DRIVER], env=process_environment())
    try:
        eventually(lambda: len(Seen().nested) == 3 and all(r.data.metrics for r in Seen().nested.values()), 30)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert Seen().statuses() == ["RUNNING"] * 4
    again = tracker([FULL, BARE], records)  # `dropped` is no longer in the sweep's file
    again.settled(FULL, leave(records, FULL, record(FULL)))
    again.finish(None, "budget")
    seen = Seen()
    assert {name: run.info.status for name, run in seen.nested.items()} == {
        ("full", 1): "FINISHED",
        ("without dropout", 2): "KILLED",
        ("dropped", 1): "KILLED",
    }
    assert seen.nested["dropped", 1].data.tags["status"] == "stopped"
    assert seen.parents[0].info.status == "KILLED"
    assert seen.history(("full", 1)) == expected(curve(FULL))


def test_a_server_that_is_down_costs_nothing_and_is_filled_in_later(
    records: Records, report: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed_port()}")
    mirror = tracker([FULL, BARE], records)
    began, worked = time.monotonic(), time.thread_time()
    points = [point(1) for _ in range(500)]
    making = time.thread_time() - worked
    for one in (FULL, BARE):
        mirror.started(one)
        worked = time.thread_time()
        for each in points:
            mirror.evaluated(one, each)
        assert time.thread_time() - worked < making, "to tell of a point costs more than to make one"
        mirror.settled(one, leave(records, one, record(one)))
    assert time.monotonic() - began < AT_ONCE
    mirror.finish(report, "complete")
    assert time.monotonic() - began < SECONDS
    [warning] = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert "MLflow" in warning.getMessage() and "\n" not in warning.getMessage()

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    tracker([FULL, BARE], records).finish(report, "complete")
    assert Seen().statuses() == ["FINISHED"] * 3
    assert Seen().history(("full", 1)) == expected(curve(FULL))


def test_a_server_that_never_answers_holds_up_the_end_for_seconds(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "_FINISH_SECONDS", 1.0)
    leave(records, FULL, record(FULL))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        mirror = tracker([FULL], records)
        mirror.started(FULL)
        mirror.evaluated(FULL, point(1))
        began = time.monotonic()
        mirror.finish(None, "complete")
        assert 0.9 < time.monotonic() - began < SECONDS


def test_a_database_that_takes_connections_and_never_answers_holds_up_the_start_for_seconds(
    records: Records, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()

    def silent(*_: object) -> None:
        ended.wait()
        raise ConnectionError

    monkeypatch.setattr(tracker_module, "_OPEN_SECONDS", 0.3)
    monkeypatch.setattr(tracker_module, "Mirror", silent)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://127.0.0.1/lab")
    began = time.monotonic()
    mirror = tracker([FULL], records)
    mirror.started(FULL)
    assert not mirror.finish(None, "complete")
    assert time.monotonic() - began < SECONDS
    assert warned(caplog).startswith("MLflow is behind (it has not answered for 0.3 seconds); the sweep goes on")
    ended.set()


def test_a_database_that_was_moved_keeps_files_in_the_old_place_and_says_so(
    records: Records, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker([FULL], records).finish(None, "complete")
    here = Path.cwd()
    assert not caplog.text
    (tmp_path / "moved").mkdir()
    (here / "mlflow.db").rename(tmp_path / "moved/mlflow.db")
    monkeypatch.chdir(tmp_path / "moved")
    tracker([FULL], records).finish(None, "complete")
    old, new = here / "mlartifacts/parts", tmp_path / "moved/mlartifacts/parts"
    assert warned(caplog) == f"MLflow puts the files of parts into {old}, where they began, not into {new}"


def test_the_end_waits_for_a_part_of_a_long_backlog_and_ends_the_parent(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "_FILL_SECONDS", 0.5)
    synced: list[str] = []

    def slow(self: Mirror, trial: Trial, *_: Any, **__: Any) -> None:
        synced.append(trial.key)
        time.sleep(0.1)

    monkeypatch.setattr(Mirror, "sync", slow)
    mirror = tracker([trial("full", seed) for seed in range(100)], records)
    eventually(lambda: synced)
    began = time.monotonic()
    assert not mirror.finish(None, "complete")
    assert time.monotonic() - began < SECONDS
    assert len(synced) < 50
    assert Seen().statuses() == ["FINISHED"]


def test_what_was_missed_while_the_server_was_away_is_filled_in(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, away, refused = Run.log, [False], [0]

    def sometimes(self: Run, *args: Any, **tags: Any) -> None:
        if away[0]:
            refused[0] += 1
            raise ConnectionError("away")
        log(self, *args, **tags)

    monkeypatch.setattr(Run, "log", sometimes)
    mirror = tracker([FULL], records)
    mirror.started(FULL)
    mirror.evaluated(FULL, point(1))
    eventually(lambda: Seen().nested and Seen().history(("full", 1)))
    away[0] = True
    leave(records, FULL, epochs=2)
    mirror.evaluated(FULL, point(2))
    eventually(lambda: refused[0])
    away[0] = False
    mirror.evaluated(FULL, point(3))
    eventually(lambda: Seen().history(("full", 1)) == expected(curve(FULL)[:3]))
    mirror.finish(None, "budget")
    assert Seen().statuses() == ["KILLED", "KILLED"]


def test_a_run_deleted_by_hand_does_not_take_the_others_along(records: Records) -> None:
    mirror = tracker([FULL, BARE], records)
    for one in (FULL, BARE):
        mirror.started(one)
        mirror.evaluated(one, point(1))
    eventually(lambda: len(Seen().nested) == 2 and Seen().history(("without dropout", 2)))
    Seen().client.delete_run(Seen().nested["full", 1].info.run_id)
    for one in (FULL, BARE):
        mirror.evaluated(one, point(2))
        mirror.settled(one, leave(records, one, record(one)))
    mirror.finish(None, "complete")
    seen = Seen()
    assert seen.statuses() == ["FINISHED"] * 3
    assert seen.history(("full", 1)) == expected(curve(FULL))
    assert seen.history(("without dropout", 2)) == expected(curve(BARE))


def test_a_record_that_cannot_be_read_is_told_and_left_out(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    for one in (FULL, BARE):
        leave(records, one, record(one))
    (records.folder(FULL.key) / "record.json").write_text("{")
    tracker([FULL, BARE], records).finish(None, "failed")
    assert set(Seen().nested) == {("without dropout", 2)}
    [warning] = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert warning.getMessage().startswith(f"{records.folder(FULL.key)}/record.json: not a record of this version")


def warned(caplog: pytest.LogCaptureFixture) -> str:
    """The one warning."""
    [warning] = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    return warning.getMessage()


def sql(*statements: str) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        with contextlib.closing(sqlite3.connect(file)) as database, database:
            for statement in statements:
                database.execute(statement)

    return change


NEXT_COMMAND = """
from pathlib import Path
from orchestrator.trials.records import Records
from tests.support.seen import FULL
from tests.support.tracking import tracker
tracker([FULL], Records(Path("runs"))).finish(None, "complete")
"""
BEHIND = "MLflow is behind ("
NEXT = "); the sweep goes on, and the next command fills in what is missing"
REPAIR = ", or makes a new FILE if you move a damaged one away"
CLOSED = "MLflow cannot be opened ("
WITHOUT = "); the sweep goes on without it; a command that can open it fills in what is missing"
MOVE = ". If FILE is damaged, move it away: the next command makes a new one"


@pytest.mark.parametrize(
    ("change", "why", "before", "after"),
    [
        (lambda file: file.write_text("no database"), "file is not a database", CLOSED, WITHOUT + MOVE),
        (lambda file: os.truncate(file, 40 * 4096), "database disk image is malformed", CLOSED, WITHOUT + MOVE),
        (sql("DROP TABLE runs"), "no such column: runs.deleted_time", BEHIND, NEXT + REPAIR),
    ],
    ids=["text", "cut off", "without a table"],
)
def test_a_damaged_database_is_named_with_what_to_do(
    records: Records,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], object],
    why: str,
    before: str,
    after: str,
) -> None:
    database = Path("mlflow.db")
    change(database)
    leave(records, FULL, record(FULL))
    mirror = tracker([FULL, BARE], records)
    mirror.started(BARE)
    mirror.evaluated(BARE, point(1))
    mirror.finish(None, "complete")
    after = after.replace("FILE", str(database.absolute()))
    assert warned(caplog).startswith(before) and why in warned(caplog).removesuffix(after)
    assert warned(caplog).endswith(after)
    database.rename("away.db")
    following = subprocess.run(  # in this process MLflow keeps its connections to the file that was moved
        [sys.executable, "-c", NEXT_COMMAND], env=process_environment(), check=True, capture_output=True, text=True
    )
    assert following.stderr == ""
    assert Seen(f"sqlite:///{Path.cwd()}/./mlflow.db").history(("full", 1)) == expected(curve(FULL))


def test_a_file_that_is_no_database_is_left_as_it_is(records: Records) -> None:
    Path("mlflow.db").write_text("no database")
    tracker([FULL], records).finish(None, "complete")
    assert Path("mlflow.db").read_text() == "no database"


def test_a_folder_in_its_place_is_named_at_once(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    Path("mlflow.db").unlink()
    Path("mlflow.db").mkdir()
    begun = time.monotonic()
    tracker([FULL], records).finish(None, "complete")
    assert "Is a directory: '" in warned(caplog) and time.monotonic() - begun < 30.0


def test_a_database_damaged_in_mid_sweep_is_named_once(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    mirror = tracker([FULL], records)
    mirror.started(FULL)
    mirror.evaluated(FULL, point(1))
    eventually(lambda: Seen().nested and Seen().history(("full", 1)))
    with Path("mlflow.db").open("r+b") as file:
        file.write(b"no database" * 4096)
    for epoch in (2, 3):
        mirror.evaluated(FULL, point(epoch))
        time.sleep(0.1)
    mirror.settled(FULL, leave(records, FULL, record(FULL)))
    began = time.monotonic()
    mirror.finish(None, "complete")
    assert time.monotonic() - began < SECONDS
    assert warned(caplog).startswith(BEHIND)


@pytest.mark.parametrize("version", ["ffffffffffff", "OLDER"])
def test_a_database_of_another_schema_is_named_with_what_to_do_and_left_as_it_was(
    records: Records, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    revisions = list(ScriptDirectory.from_config(_get_alembic_config("sqlite://")).walk_revisions())
    version = version.replace("OLDER", revisions[-3].revision)
    sql(f"UPDATE alembic_version SET version_num = '{version}'")(Path("mlflow.db"))
    before = Path("mlflow.db").read_bytes()
    tracker([FULL], records).finish(None, "complete")
    assert f"out-of-date database schema (found version {version}, but expected " in warned(caplog)
    assert f"run 'mlflow db upgrade sqlite:///{Path.cwd()}/mlflow.db' to migrate" in warned(caplog)
    assert "latest schema.); the sweep goes on" in warned(caplog)
    assert Path("mlflow.db").read_bytes() == before


def test_a_server_that_answers_with_an_error_is_behind_and_nobodys_file_is_named(
    records: Records, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(400, explain="(sqlite3.DatabaseError) file is not a database")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
            mirror = tracker([FULL], records)
            mirror.finish(None, "complete")
        finally:
            server.shutdown()
    assert warned(caplog).startswith(BEHIND)
    assert warned(caplog).endswith(NEXT)


def test_the_writer_rests_for_most_of_the_time(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "_REST", 50)
    writes: list[float] = []

    def slow(self: Mirror, *_: Any, **__: Any) -> None:
        writes.append(time.monotonic())
        time.sleep(0.01)

    monkeypatch.setattr(Mirror, "sync", slow)
    mirror = tracker([FULL], records)

    def wrote_often() -> bool:
        mirror.evaluated(FULL, point(1))
        return len(writes) >= 4

    eventually(wrote_often, 60)
    mirror.finish(None, "complete")
    assert min(after - before for before, after in pairwise(writes[:4])) >= 50 * 0.01
