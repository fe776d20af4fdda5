"""Temporary directories and working directories whose paths are long, odd, or taken by somebody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from lm.optimizers import build_optimizer
from lm.spec import Corpus, Sgd
from orchestrator.execute.ray import Order, session_folder
from orchestrator.execute.ray import session as ray_session
from orchestrator.execute.run_trial import Allotment
from orchestrator.trials.records import Records
from orchestrator.trials.storage import Storage, borrowed
from tests.support.tracking import tracker

pytestmark = pytest.mark.usefixtures("without_pictures")


def test_a_long_temporary_directory_is_left_for_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with session_folder() as session:
        socket = session / "ray/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store"
        assert len(os.fsencode(socket)) <= 103
        assert str(long) in caplog.text and f"Ray's files go to {session.parent}" in caplog.text
        assert len(caplog.text.splitlines()) == 1
    assert not session.exists()


@pytest.mark.parametrize("taken", ["file", "folder that all may enter", "link"])
def test_a_workers_folder_whose_name_is_taken_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = tmp_path / f"lm-trials-{os.getuid()}"
    away = tmp_path / "away"
    away.mkdir()
    if taken == "file":
        theirs.touch()
    elif taken == "link":
        theirs.symlink_to(away)
    else:
        theirs.mkdir()
        theirs.chmod(0o777)
    storage = Storage((tmp_path / "storage").as_uri())
    said = "is not a folder of this user alone: remove it, or set TMPDIR"
    with pytest.raises(OSError, match=said), borrowed(storage, "key", None, 600.0):
        pytest.fail("entered")
    assert not list(away.iterdir()) and (taken != "folder that all may enter" or not list(theirs.iterdir()))


def test_a_workers_folder_is_its_users_alone_and_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    storage, homes = Storage((tmp_path / "storage").as_uri()), []
    for _ in range(2):
        with borrowed(storage, "key", None, 600.0) as (runs, _push):
            homes.append(runs)
            assert runs.parent.stat().st_mode & 0o777 == 0o700 and not runs.exists()
            runs.mkdir()
    assert homes[0] == homes[1] and not homes[0].exists()


def test_torch_makes_no_folder_that_another_user_can_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "to be restored")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    build_optimizer(Sgd(kind="sgd", learning_rate=1.0), [nn.Parameter(torch.ones(1))])
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "cache" / "torch")


def test_texts_below_the_working_directory_are_shipped_and_large_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text", "data/other", "large", "session"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "train.txt").write_text("a\n")
    (tmp_path / "text" / "notes.md").touch()
    monkeypatch.setattr(ray_session, "MOST_SHIPPED_BYTES", 10)
    (tmp_path / "large" / "train.txt").write_text("a\n" * 10)
    session = tmp_path / "session"
    (session / "train.txt").unlink()
    corpora = tuple(Corpus(name=name) for name in ("text", "other", "large", str(tmp_path / "text")))
    order = Order(Allotment(tmp_path, 1.0, 0.0, 600.0), corpora=corpora, session=session)
    with ray_session.shipped(order) as environment:
        folder = Path(environment["working_dir"])
        sent = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert sent == {"text/train.txt", "data/other/train.txt"}
        assert [Path(module).name for module in environment["py_modules"]] == ["lm", "orchestrator"]
    assert not list(session.iterdir())


def test_mlflow_takes_a_working_directory_with_quotes_and_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = tmp_path / 'wörk "it\'s" :漢'
    home.mkdir()
    monkeypatch.chdir(home)
    (home / "pages").mkdir()
    (home / "pages/page.md").write_text("page\n")
    assert tracker([], Records(home / "runs")).finish(home / "pages", "complete")
    (run,) = (home / "mlartifacts/parts").iterdir()
    assert (run / "artifacts/report/page.md").exists()
    assert "Traceback" not in "".join(capfd.readouterr())
    assert not (home / "mlruns").exists()


RAY_FIRST = """
import ray
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 * 2**20)
from orchestrator.api import run_sweep
result = run_sweep("tiny.yaml", jobs=1)
assert result.exit_code == 0, result
assert ray.is_initialized()
print(result.counts)
"""


@pytest.mark.slow
def test_ray_that_runs_in_this_process_already_is_left_alone(tmp_path: Path) -> None:
    from tests.support.sweeps import SWEEP, furnish

    odd = tmp_path / 'wörk "it\'s" 漢' / ("long" * 20)  # and no temporary directory for sockets
    odd.mkdir(parents=True)
    furnish(odd, SWEEP.replace("seeds: [1, 2]", "seeds: [1]").replace("epochs: 6", "epochs: 1"), train_lines=500)
    environment = os.environ | {"LM_CACHE": str(odd / "cache"), "RAY_USAGE_STATS_ENABLED": "0"}
    short = Path("/tmp", f"first-{os.getpid()}")
    first = RAY_FIRST.replace("2**20)", f"2**20, _temp_dir={str(short)!r})").replace(
        "from orchestrator", f"import tempfile; tempfile.tempdir = {str(odd)!r}\nfrom orchestrator", 1
    )
    try:
        run = subprocess.run(
            [sys.executable, "-c", first], cwd=odd, env=environment, check=False, capture_output=True, text=True
        )
    finally:
        shutil.rmtree(short, ignore_errors=True)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert "is too long a path for Ray's sockets; Ray's files go to /tmp" in run.stderr
