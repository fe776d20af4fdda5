"""Temporary directories and working directories whose paths are long, odd, or taken by somebody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lm.optimizers import build_optimizer
from lm.spec import Corpus, Sgd
from orchestrator.api import run_sweep
from orchestrator.errors import CannotStartError
from orchestrator.execute.ray import folder, nodes
from orchestrator.execute.ray.folder import session_folder
from orchestrator.trials.storage import Storage, borrowed
from orchestrator.watch.mlflow.store import Store
from tests.orchestrator.sweep_texts import GOOD, read_text


def test_a_long_temporary_directory_is_left_for_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with session_folder() as session:
        socket = session / "session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store"
        assert len(os.fsencode(socket)) <= 103
        assert str(long) in caplog.text and f"Ray's files go to {session.parent}" in caplog.text
        assert len(caplog.text.splitlines()) == 1
    assert not session.exists()
    monkeypatch.setattr(folder, "_SHORT_PLACES", (str(tmp_path / "absent"),))
    with pytest.raises(CannotStartError, match=r"^TMPDIR: expected a path of at most \d+ bytes"), session_folder():
        pytest.fail("there is no place")


def test_only_folders_of_this_user_that_nobody_locks_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "orch-00000001").symlink_to(kept)
    (tmp_path / "orch-00000002").touch()
    (tmp_path / "orch-00000003").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(folder, "_MOST_BYTES", 1000)
    with session_folder(), session_folder():
        assert not (tmp_path / "orch-00000003").exists()
        (tmp_path / "orch-00000004").mkdir()
        with monkeypatch.context() as other:
            other.setattr(os, "getuid", lambda: -1)
            folder._remove_left_over(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept",
        "orch-00000001",
        "orch-00000002",
        "orch-00000004",
    ]
    assert (kept / "file").exists()


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
    homes = []
    for _ in range(2):
        with borrowed(storage, "key", None, 600.0) as (runs, _push):
            homes.append(runs)
            assert runs.parent.parent.stat().st_mode & 0o777 == 0o700
    assert homes[0] == homes[1] and theirs not in homes[0].parents
    assert not list(away.iterdir())


def test_torch_makes_no_folder_that_another_user_can_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "to be restored")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    build_optimizer(Sgd(kind="sgd", learning_rate=1.0), [nn.Parameter(torch.ones(1))])
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "cache" / "torch")


def test_files_whose_names_are_not_utf8_are_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = tmp_path / "here" / "code", tmp_path / "text"
    for path in (code, text, code / "__pycache__", tmp_path / "session"):
        path.mkdir(parents=True)
    for path, names in ((code, ("__init__.py", "old\udcff.py")), (text, ("train.txt", "old\udcff.txt"))):
        for name in names:
            (path / name).write_text("\n")
    monkeypatch.setattr(nodes, "_PACKAGES", (SimpleNamespace(__file__=str(code / "__init__.py")),))
    with nodes.shipped([Corpus(name="text")], tmp_path / "session") as environment:
        (module,) = environment["py_modules"]
        sent = [path.relative_to(module) for path in Path(module).rglob("*")]
        texts = [path.name for path in Path(environment["working_dir"]).rglob("*.txt")]
        assert [str(path) for path in sent] == ["__init__.py"] and texts == ["train.txt"]
        assert len(nodes._digest()) == 12
    assert not list((tmp_path / "session").iterdir())


def test_a_working_directory_that_is_not_utf8_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = read_text(tmp_path, GOOD).at("tiny")
    odd = tmp_path / "odd\udcff"
    odd.mkdir()
    monkeypatch.chdir(odd)
    with pytest.raises(CannotStartError, match=r"^expected a path in UTF-8, got '.*odd\\udcff'$") as error:
        run_sweep(sweep)
    assert str(error.value).isprintable()
    assert not list(odd.iterdir())


def test_mlflow_takes_a_working_directory_with_quotes_and_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = tmp_path / 'wörk "it\'s" :漢'
    home.mkdir()
    monkeypatch.chdir(home)
    store = Store()
    run = store.create(store.experiment("one"), "run", {"scale": "paper"})
    (home / "pages").mkdir()
    (home / "pages/page.md").write_text("page\n")
    store.upload(run, home / "pages", "report")
    assert [found.id for found in store.runs(store.experiment("one"), "paper")] == [run.id]
    assert (home / "mlartifacts/one" / run.id / "artifacts/report/page.md").exists()
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
    from tests.orchestrator.sweeps_for_real import SWEEP, furnish

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
