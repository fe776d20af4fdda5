"""A whole sweep from the command line, undisturbed and killed, and what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.places import command, working_in
from tests.support.sweeps import SWEEP, checkpoints, finish, furnish, report, start, wait_for, workers


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with a corpus and a sweep file."""
    furnish(tmp_path)
    return tmp_path


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers through /proc")
def test_a_worker_and_the_driver_killed_change_no_byte_of_the_report(place: Path, tmp_path_factory) -> None:
    calm = tmp_path_factory.mktemp("calm")
    for name in ("corpus", "tiny.yaml"):
        (calm / name).symlink_to(place / name)
    with working_in(calm, pictures=True):
        code, out, err = command("sweep", "tiny.yaml", "--executor", "inline")
    assert code == 0, err
    assert out.splitlines()[-1] == "reports/tiny/paper/report.md"

    process = start(place)
    wait_for(lambda: workers(process.pid) and checkpoints(place), process)
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    wait_for(lambda: list(place.glob("runs/*/record.json")), process)
    process.kill()
    process.communicate()
    assert len(list(place.glob("runs/*/record.json"))) < 6

    output = finish(start(place))
    assert "raylet" not in output
    assert report(place) == report(calm)

    began = time.monotonic()
    before = {path: path.stat().st_mtime_ns for path in place.glob("runs/[0-9a-f]*/**/*") if path.is_file()}
    finish(start(place))
    assert {path: path.stat().st_mtime_ns for path in place.glob("runs/[0-9a-f]*/**/*") if path.is_file()} == before
    assert time.monotonic() - began < 60.0  # a few seconds if nothing else runs


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupt_ends_cleanly_and_says_how_to_go_on(place: Path, number: signal.Signals) -> None:
    process = start(place, "--jobs", "1", "--runs", "my runs")
    wait_for(lambda: list(place.glob("my runs/*/checkpoints/[0-9]*")), process)
    process.send_signal(number)
    output = finish(process, 128 + number)
    assert "python -m orchestrator sweep tiny.yaml --runs 'my runs' --jobs 1\n" in output
    assert "Traceback" not in output
    page = (place / "reports/tiny/paper/report.md").read_text()
    assert "An interim page: it changes as trials end." in page


@pytest.mark.slow
def test_a_diverged_trial_is_an_outcome(place: Path) -> None:
    text = SWEEP.replace(
        "weight-dropping: {off: {dropout.weight: 0.0}}",
        "clipping: {off: {optimizer.clip: null, optimizer.learning_rate: 1.0e+6, optimizer.weight_decay: 1.0}}",
    )
    (place / "tiny.yaml").write_text(text)
    finish(start(place, "--executor", "inline"), 1)
    page = (place / "reports/tiny/paper/report.md").read_text()
    assert page.count("| diverged |") >= 2
    # the same command again trains nothing: divergence is a result
    before = {path: path.stat().st_mtime_ns for path in place.glob("runs/*/record.json")}
    finish(start(place, "--executor", "inline"), 1)
    assert {path: path.stat().st_mtime_ns for path in place.glob("runs/*/record.json")} == before


def test_secrets_of_the_tracking_address_are_told_nowhere(place: Path) -> None:
    diverging = (
        "variants: {diverging: {optimizer: {kind: sgd, learning_rate: 1.0e+6, weight_decay: 1.0}}}\nseeds: [1]\n"
    )
    (place / "tiny.yaml").write_text(SWEEP.partition("components:")[0] + diverging)
    secret = {"MLFLOW_TRACKING_URI": "http://lab:hunter2@127.0.0.1:9/mlflow?access_token=hunter2"}
    line = [sys.executable, "-m", "orchestrator", "sweep", "tiny.yaml", "--executor", "inline", "--verbose"]
    environment = os.environ | {"LM_CACHE": str(place / "cache")} | secret
    done = subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "MLflow is behind" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    written = [path for path in place.rglob("*") if path.is_file()]
    assert any(path.name == "report.md" for path in written)
    assert not [path for path in written if b"hunter2" in path.read_bytes()]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seeds:", "resources: {stall_minutes: 5}\nseeds:", "stall_minutes = 5 must exceed the 10 minutes between"),
        ("batch_size: 8", "batch_size: 7000", "base.batch_size: the 8,400 training tokens allow at most 2,800 columns"),
        ("{name: corpus}", "{name: corpsu}", "corpus 'corpsu' is neither a named corpus"),
    ],
)
def test_what_cannot_be_trained_is_told_before_anything_starts(place: Path, old: str, new: str, said: str) -> None:
    (place / "tiny.yaml").write_text(SWEEP.replace(old, new))
    with working_in(place):
        code, _, err = command("sweep", "tiny.yaml")
    assert code == 2 and said in err
    assert not (place / "runs").exists() and not (place / "mlflow.db").exists()


def test_a_trial_trained_elsewhere_is_found_by_its_key(place: Path) -> None:
    environment = os.environ | {"LM_CACHE": str(place / "cache")}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=place, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    run("orchestrator", "plan", "tiny.yaml", "--write-specs", "specs")
    spec = sorted(place.glob("specs/*.yaml"))[0]
    run("lm", "train", str(spec), "--out", f"elsewhere/{spec.stem}", "--threads", "1")
    (place / "runs").mkdir()
    (place / "elsewhere" / spec.stem).rename(place / "runs" / spec.stem)
    line = next(line for line in run("orchestrator", "plan", "tiny.yaml").splitlines() if spec.stem in line)
    assert "done" in line
