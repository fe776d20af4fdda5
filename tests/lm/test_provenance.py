"""What a record says of the code, the machine and its memory is this trial's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import lm.checkout

CHILD = "import torch; from lm.provenance import peak_memory_bytes; print(peak_memory_bytes(torch.device('cpu')))"
PARENT = f"""
import subprocess, sys
held = b"x" * 900_000_000
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""


def test_peak_memory_is_not_that_of_the_process_which_started_this_one() -> None:
    done = subprocess.run([sys.executable, "-c", PARENT], check=True, capture_output=True, text=True)
    assert 10**7 < int(done.stdout) < 800_000_000


def test_the_commit_is_that_of_a_checkout_which_has_this_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of a project in whose folder the package is installed."""
    monkeypatch.delenv(lm.checkout.COMMIT_VARIABLE, raising=False)

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit() -> str | None:
        spec = spec_from_file_location("copied", tmp_path / "lm" / "checkout.py")
        assert spec is not None and spec.loader is not None
        copied = module_from_spec(spec)
        spec.loader.exec_module(copied)
        found = copied.commit()
        assert found is None or isinstance(found, str)
        return found

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "another project")
    (tmp_path / "lm").mkdir()
    shutil.copy(str(lm.checkout.__file__), tmp_path / "lm" / "checkout.py")
    assert commit() is None
    git("add", "lm")
    git("commit", "-q", "-m", "this one")
    assert commit() == git("rev-parse", "--short=12", "HEAD")
    with (tmp_path / "lm" / "checkout.py").open("a") as file:
        file.write("# changed\n")
    assert str(commit()).endswith("+changes")
