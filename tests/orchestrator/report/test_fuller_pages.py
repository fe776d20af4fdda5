"""`report` and `sweep` where an earlier page has trials that the new one would lack: it is never lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.places import command, make_place, process, settle, trials

REPORT = ("report", "toy.yaml", "--scale", "paper")
PAGE = "reports/toy/paper/report.md"
LACKS_ALL = (
    "stays: 4 of its 4 complete trials would be lost (of full, no weight-dropping, no fine-tuning and 1 more), because "
    "the file, the text or the numerics changed since, or they are not complete here"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose page has every trial of the sweep."""
    monkeypatch.chdir(make_place(tmp_path))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    for trial in trials().values():
        if trial.reads_from is None:
            settle(trial)
    assert command(*REPORT)[0] == 0
    return tmp_path


def page(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (place / "reports/toy/paper").iterdir()}


def test_a_fresh_clone_keeps_its_page(place: Path) -> None:
    before = page(place)
    line = (*REPORT, "--runs", "none")
    code, _, err = command(*line)
    assert (code, err) == (2, f"{PAGE} {LACKS_ALL}; --force replaces it\n")
    code, _, err = command(*line, "--watch")
    assert (code, err.count("\n")) == (2, 1)
    assert page(place) == before
    code, out, _ = command(*line, "--force")
    assert (code, out.splitlines()[-1]) == (0, PAGE)
    assert b"0 of 4 planned trials complete" in page(place)["report.md"]


def test_a_page_whose_trials_cannot_be_read_is_kept(place: Path) -> None:
    Path("reports/toy/paper/trials.csv").write_text("")
    before = page(place)
    code, _, err = command(*REPORT)
    assert (code, err.count("\n")) == (2, 1) and "cannot be compared with this report (its trials.csv is empty)" in err
    assert page(place) == before


@pytest.mark.slow
def test_a_sweep_with_another_base_writes_its_page_beside(place: Path) -> None:
    before = page(place)
    text = (place / "toy.yaml").read_text(encoding="utf-8")
    (place / "toy.yaml").write_text(text.replace("  epochs: 2\n", "  epochs: 1\n"), encoding="utf-8")
    done = process(place, "-m", "orchestrator", "sweep", *REPORT[1:], "--executor", "inline")
    assert done.returncode == 0, done.stderr
    why, written = done.stdout.splitlines()[-2:]
    assert why == (
        f"{PAGE} {LACKS_ALL}; the new page is reports/toy/paper+2/report.md (`report --force` replaces the earlier one)"
    )
    assert written == "reports/toy/paper+2/report.md"
    assert page(place) == before
    assert "4 of 4 planned trials complete" in (place / written).read_text(encoding="utf-8")
    index = (place / "reports/README.md").read_text(encoding="utf-8")
    assert "(toy/paper/report.md)" in index and "(toy/paper%2B2/report.md)" in index
    assert command(*REPORT)[0] == 2
    assert command(*REPORT, "--force")[0] == 0
    assert page(place) != before and not (place / "reports/toy/paper+2").exists()
    assert "paper%2B2" not in (place / "reports/README.md").read_text(encoding="utf-8")


def test_a_watched_report_keeps_what_is_set_aside(place: Path) -> None:
    before = page(place)
    trial = place / "runs" / trials()["no weight-dropping"].key
    line = [sys.executable, "-m", "orchestrator", *REPORT, "--watch", "--every", "0.1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        patience = threading.Timer(120.0, watching.kill)
        patience.start()
        try:
            assert watching.stdout is not None and watching.stderr is not None
            _read_until(watching.stdout.readline, PAGE)
            shutil.move(trial, place / "aside")
            _read_until(watching.stderr.readline, "stays: 1 of its 4 complete trials would be lost")
            assert page(place) == before
            shutil.move(place / "aside", trial)
            _read_until(watching.stdout.readline, PAGE)
        finally:
            patience.cancel()
            watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130


def _read_until(readline: Callable[[], str], text: str) -> None:
    while text not in (line := readline()):
        assert line, "it ended"
