"""A plain `mlflow ui` in the working directory shows the sweep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.trials.records import Records
from tests.support.seen import BARE, FULL, closed_port, eventually, expected, process_environment
from tests.support.tracking import curve, leave, point, record, tracker


@pytest.fixture
def server(records: Records) -> Iterator[str]:
    """The address of `mlflow ui`, started as a user would, but with one worker."""
    port = closed_port()
    command = [sys.executable, "-m", "mlflow", "ui", "--workers", "1", "--port", str(port)]
    environment = process_environment() | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = records.root.parent / "ui.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: process.poll() is not None or healthy(address), 60)
        assert process.poll() is None, log.read_text()
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: not alive(process.pid))


def healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def alive(group: int) -> bool:
    """Whether a process of this group is left, one that only waits to be reaped aside."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


def ask(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_mlflow_ui_shows_the_sweep_and_takes_part_in_it(
    records: Records, report: Path, server: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Written to the default store, read over HTTP; then written over HTTP by the next command."""
    mirror = tracker([FULL, BARE], records)
    mirror.started(FULL)
    mirror.evaluated(FULL, point(1))
    mirror.settled(FULL, leave(records, FULL, record(FULL)))
    mirror.started(BARE)
    mirror.evaluated(BARE, point(1))
    mirror.settled(BARE, None)
    mirror.finish(report, "interrupted")

    experiment = ask(server, "experiments/get-by-name?experiment_name=parts")["experiment"]["experiment_id"]

    def runs() -> dict[str, Any]:
        found = ask(server, "runs/search", {"experiment_ids": [experiment]})["runs"]
        return {run["info"]["run_name"]: run for run in found}

    def tag(run: Any, key: str) -> str:
        return str({tag["key"]: tag["value"] for tag in run["data"]["tags"]}[key])

    shown = runs()
    assert {name: run["info"]["status"] for name, run in shown.items()} == {
        "parts laptop": "KILLED",
        "full, seed 1": "FINISHED",
        "without dropout, seed 2": "KILLED",
    }
    parent = shown["parts laptop"]["info"]["run_id"]
    for name in ("full, seed 1", "without dropout, seed 2"):
        assert tag(shown[name], "mlflow.parentRunId") == parent
    full = shown["full, seed 1"]["info"]["run_id"]
    history = ask(server, f"metrics/get-history?run_id={full}&metric_key=curve%2Fvalid_perplexity")["metrics"]
    assert sorted((point["step"], round(point["value"], 6)) for point in history) == expected(curve(FULL))
    with urllib.request.urlopen(f"{server}/get-artifact?path=report/report.md&run_uuid={parent}", timeout=20) as page:
        assert page.read() == (report / "report.md").read_bytes()

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")  # this machine may be busy; patience is tested elsewhere
    (report / "report.md").write_text("# The whole sweep\n")
    again = tracker([FULL, BARE], records)
    again.started(BARE)
    again.evaluated(BARE, point(2))
    again.settled(BARE, leave(records, BARE, record(BARE)))
    again.finish(report, "complete")
    shown = runs()
    assert [run["info"]["status"] for run in shown.values()] == ["FINISHED"] * 3
    bare = shown["without dropout, seed 2"]["info"]["run_id"]
    history = ask(server, f"metrics/get-history?run_id={bare}&metric_key=curve%2Fvalid_perplexity")["metrics"]
    assert sorted((point["step"], round(point["value"], 6)) for point in history) == expected(curve(BARE))
    assert "".join(capfd.readouterr()) == ""
