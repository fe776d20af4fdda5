"""A sweep's mirror over HTTP, against a real `mlflow server` that hangs, is killed and comes back; and PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.trials.records import Records
from orchestrator.watch.mlflow import tracker as tracker_module
from tests.support.seen import AT_ONCE, BARE, FULL, Seen, closed_port, eventually, expected, process_environment
from tests.support.tracking import curve, leave, point, record, tracker

pytestmark = pytest.mark.slow
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)


@contextmanager
def server(port: int, database: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real server, answering."""
    line = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with Path(f"server-{time.time_ns()}.log").open("wb") as log:
        process = subprocess.Popen(
            [*line, "--backend-store-uri", database, "--artifacts-destination", "artifacts"],
            env=process_environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(lambda: process.poll() is not None or _answers(port), 180)
        assert process.poll() is None, "the server ended: see its log"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture
def uri(records: Records, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server to be; the tracker tries again at once."""
    address = f"http://127.0.0.1:{closed_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    yield address


def test_a_server_killed_in_mid_sweep_and_restarted_holds_everything_in_the_end(records: Records, uri: str) -> None:
    port, database = int(uri.rsplit(":", 1)[1]), f"sqlite:///{Path.cwd() / 'mlflow.db'}"
    with server(port, database):
        mirror = tracker([FULL, BARE], records)
        mirror.started(FULL)
        mirror.evaluated(FULL, point(1))
        eventually(lambda: Seen(uri).nested and Seen(uri).history(("full", 1)), 60)
    began = time.monotonic()
    for epoch in (2, 3):
        mirror.evaluated(FULL, point(epoch))
    mirror.settled(FULL, leave(records, FULL, record(FULL)))
    assert time.monotonic() - began < AT_ONCE
    time.sleep(3)  # it finds out
    with server(port, database):
        mirror.settled(BARE, leave(records, BARE, record(BARE)))
        mirror.finish(None, "complete")
        tracker([FULL, BARE], records).finish(None, "complete")  # the next command, should the end have come too soon
        seen = Seen(uri)
        assert seen.statuses() == ["FINISHED"] * 3
        assert seen.history(("full", 1)) == expected(curve(FULL))
        assert seen.history(("without dropout", 2)) == expected(curve(BARE))


def test_a_server_that_hangs_costs_seconds_and_the_next_command_fills_in(records: Records, uri: str) -> None:
    port, database = int(uri.rsplit(":", 1)[1]), f"sqlite:///{Path.cwd() / 'mlflow.db'}"
    with server(port, database) as process:
        mirror = tracker([FULL], records)
        mirror.started(FULL)
        eventually(lambda: Seen(uri).nested, 60)
        os.killpg(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        mirror.evaluated(FULL, point(1))
        mirror.settled(FULL, leave(records, FULL, record(FULL)))
        assert time.monotonic() - began < AT_ONCE
        mirror.finish(None, "complete")
        assert time.monotonic() - began < tracker_module._FINISH_SECONDS
        os.killpg(process.pid, signal.SIGCONT)
        eventually(lambda: _answers(port), 60)
        tracker([FULL], records).finish(None, "complete")
        assert Seen(uri).statuses() == ["FINISHED"] * 2
        assert Seen(uri).history(("full", 1)) == expected(curve(FULL))


@pytest.mark.skipif(POSTGRES is None, reason="needs the programs of a PostgreSQL server")
def test_postgresql_keeps_a_sweep(records: Records, uri: str, tmp_path: Path) -> None:
    assert POSTGRES is not None
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}  # its server refuses to be root's
    home = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    if user:
        shutil.chown(home, "postgres", "postgres")
    (home / "password").write_text("hunter2")
    (home / "password").chmod(0o644)
    port = closed_port()

    def run(program: str, *arguments: str) -> None:
        line = [str(POSTGRES.with_name(program)), "-D", str(home / "data"), *arguments]
        subprocess.run(line, check=True, cwd=home, stdout=subprocess.DEVNULL, **user)  # type: ignore[call-overload]

    run("initdb", "--username=lab", f"--pwfile={home / 'password'}", "--auth=scram-sha-256")
    run("pg_ctl", "-w", "-l", str(home / "log"), "-o", f"-p {port} -h 127.0.0.1 -k {home}", "start")
    try:
        with server(int(uri.rsplit(":", 1)[1]), f"postgresql+psycopg2://lab:hunter2@127.0.0.1:{port}/postgres"):
            mirror = tracker([FULL], records)
            mirror.settled(FULL, leave(records, FULL, record(FULL)))
            mirror.finish(None, "complete")
            assert Seen(uri).statuses() == ["FINISHED"] * 2
            assert Seen(uri).history(("full", 1)) == expected(curve(FULL))
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(home)
