"""Working directories with a database of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.trials.records import Records
from orchestrator.watch.mlflow import tracker as tracker_module
from tests.support.seen import process_environment
from tests.support.tracking import TRACKERS


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh database, made by two processes at once; without a lock that leaves a broken file."""
    folder = tmp_path_factory.mktemp("migrated")
    code = "import sys; from orchestrator.watch.mlflow.store import *; "
    code += "connect(tracking_uri()).create_experiment(sys.argv[1])"
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", code, name],
            cwd=folder,
            env=process_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    assert [maker.communicate(timeout=120)[0] for maker in makers] == ["", ""]
    assert [maker.returncode for maker in makers] == [0, 0]
    return folder / "mlflow.db"


@pytest.fixture
def records(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Records]:
    """An empty `runs/` in a working directory that has a database; trackers write at once, and end with the test."""
    shutil.copy(migrated, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(tracker_module, "_SYNC_SECONDS", 0.02)
    monkeypatch.setattr(tracker_module, "_REST", 0)
    yield Records(tmp_path / "runs")
    while TRACKERS:
        TRACKERS.pop().finish(None, "failed")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "reports" / "parts" / "laptop"
    folder.mkdir(parents=True)
    (folder / "report.md").write_text("# Which parts matter?\n")
    (folder / "curves.png").write_bytes(b"\x89PNG")
    return folder
