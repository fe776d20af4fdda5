"""What a trial prints in a Ray worker is in its log, and in no other trial's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.execute.test_faults import in_python
from tests.support.sweeps import SWEEP, finish, furnish, start

PRINTS = """
import os, sys
def say(event, arguments):
    if event == "os.rename" and os.fspath(arguments[1]).endswith("curve.parquet"):
        key = os.fspath(arguments[1]).split("/")[-2]
        print("printed by", key)
        print("complained by", key, file=sys.stderr)
        os.write(1, f"below Python by {key}\\n".encode())
sys.addaudithook(say)
"""


@pytest.mark.slow
def test_each_trials_output_is_in_its_log(tmp_path: Path) -> None:
    sweep = SWEEP.replace("seeds: [1, 2]", "seeds: [1]").replace("epochs: 6", "epochs: 2")
    furnish(tmp_path, sweep, train_lines=300)
    finish(start(tmp_path, "--jobs", "1", environment=in_python(tmp_path, PRINTS)))
    folders = [path.parent for path in tmp_path.glob("runs/*/record.json")]
    assert len(folders) == 3, "one after the other in the same worker; the variant without fine-tuning is read"
    for folder in folders:
        log = (folder / "log.txt").read_text()
        for said in ("printed", "complained", "below Python"):
            assert log.count(f"{said} by") == log.count(f"{said} by {folder.name}") >= 1
        assert log.splitlines()[-1].endswith("INFO ended")
