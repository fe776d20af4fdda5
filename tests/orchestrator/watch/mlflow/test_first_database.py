"""The database that the first command makes, if that command is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.seen import process_environment

MAKE = "from orchestrator.watch.mlflow.store import *; print(connect(tracking_uri()).get_experiment('0'))"
KILLED = """
import os
from sqlalchemy import event
from sqlalchemy.engine import Engine

@event.listens_for(Engine, "before_cursor_execute")
def killed(connection, cursor, statement, *_):  # between two changes of a table that SQLite keeps one by one
    if "INTO _alembic_tmp_latest_metrics" in statement:
        os.kill(os.getpid(), 9)

"""


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line, environment = [sys.executable, "-c", code], process_environment()
    return subprocess.run(line, cwd=folder, env=environment, check=False, capture_output=True, text=True)


def test_the_next_command_makes_it_whole_in_the_place_that_a_link_names(tmp_path: Path) -> None:
    folder, file = tmp_path / "it's here", tmp_path / "elsewhere.db"
    folder.mkdir()
    (folder / "mlflow.db").symlink_to(file)
    assert python(KILLED + MAKE, folder).returncode == -9
    assert [*tmp_path.rglob("*.new")] and not file.exists()
    done = python(MAKE, folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{folder.as_uri()}/mlartifacts/0" in done.stdout
    assert file.is_file() and (folder / "mlflow.db").is_symlink()
    assert {path.name for path in folder.iterdir()} == {"mlflow.db", "mlflow.db.lock"}
    assert not [*tmp_path.rglob("*.new*")]
