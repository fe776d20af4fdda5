"""A whole sweep from the command line on a tiny corpus, what disturbs it, and what is left of it."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

SWEEP = """
name: tiny
question: Does weight drop matter?
base:
  corpus: {name: corpus}
  model: {layers: 1, embedding_size: 32, hidden_size: 32}
  dropout: {weight: 0.3}
  bptt: {kind: variable, length: 12}
  optimizer: {kind: nt_asgd, learning_rate: 5.0, nonmonotone_interval: 1, clip: 0.25}
  batch_size: 8
  epochs: 6
  finetune: {epochs: 2}
components:
  weight-dropping: {off: {dropout.weight: 0.0}}
  fine-tuning: {off: {finetune: null}}
variants:
  neural cache: {cache: {window: 50, weight: 0.1, flatness: 1.0}}
seeds: [1, 2]
"""
TOLD_TIMES = (
    re.compile(r"(?m)^\| (Trial time|Peak memory of a trial) [^\n]*\n"),
    re.compile(r"(?ms)^## Time and memory\n.*?(?=^## )"),
    re.compile(r'"finished_at": "[^"]*"'),
)
TIMED = {"trials.csv", "curves.parquet", "overview.svg", "overview.png", "report.html"}
"""Files that hold seconds all over."""


def furnish(place: Path, sweep: str = SWEEP, train_lines: int = 700) -> None:
    """Put a corpus and a sweep file into a working directory."""
    rng = random.Random(7)
    words = [f"w{i}" for i in range(60)]
    (place / "corpus").mkdir()
    for split, lines in (("train", train_lines), ("valid", 120), ("test", 120)):
        text = "\n".join(" ".join(rng.choices(words, k=11)) for _ in range(lines))
        (place / "corpus" / f"{split}.txt").write_text(text + "\n")
    (place / "tiny.yaml").write_text(sweep)


def start(
    place: Path, *options: str, file: str = "tiny.yaml", environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """The command, in a process group of its own as a shell gives it; `environment` is added to this one's."""
    variables = os.environ | {"LM_CACHE": str(place / "cache"), "PYTHONUNBUFFERED": "1"} | (environment or {})
    variables.pop("MLFLOW_TRACKING_URI", None)
    line = [sys.executable, "-m", "orchestrator", "sweep", file, *options]
    return subprocess.Popen(
        line,
        cwd=place,
        env=variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], exit_code: int = 0) -> str:
    """All it said; it must end with this exit code."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == exit_code, output
    return output


def report(place: Path, name: str = "tiny") -> dict[str, bytes]:
    """The report's files without what tells of times."""
    found = {}
    for path in sorted((place / "reports" / name / "paper").iterdir()):
        data = b"" if path.name in TIMED else path.read_bytes()
        for times in TOLD_TIMES if path.suffix in (".md", ".json") else ():
            data = times.sub("", data.decode()).encode()
        found[path.name] = data
    return found


def descendants(pid: int) -> Iterator[int]:
    """Every process below this one."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # it ended meanwhile
    for child in parents:
        above = child
        while above in parents:
            above = parents[above]
            if above == pid:
                yield child
                break


def workers(driver: int, command: bytes = b"ray::ImplicitFunc") -> list[int]:
    """The processes that train, or that have another command."""
    found = []
    for pid in descendants(driver):
        try:
            if command in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def sessions(temporary: Path) -> list[Path]:
    """What is left of Ray's folders."""
    return [path for path in temporary.iterdir() if path.name.lstrip(".").startswith("orch-")]


def alive(pids: Iterable[int]) -> list[int]:
    """Those that are not dead, nor dead and not yet waited for."""

    def runs(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    return [pid for pid in pids if runs(pid)]


def wait_for(
    condition: Callable[[], object],
    process: subprocess.Popen[str],
    seconds: float = 180.0,
    every_seconds: float = 0.05,
) -> None:
    """Until the condition holds; it must, before the sweep ends and the time is over."""
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"the sweep ended early: {process.communicate()[0]}"
        if time.monotonic() > until:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"waited in vain: {process.communicate()[0]}")
        time.sleep(every_seconds)


def checkpoints(place: Path) -> list[Path]:
    """Those of all trials."""
    return list(place.glob("runs/*/checkpoints/[0-9]*"))


def kill_within(
    window: Callable[[], set[Path]], trains: Callable[[], list[int]], process: subprocess.Popen[str]
) -> None:
    """SIGKILL the processes that train while `window` finds a file that is being written.

    They are stopped first, and killed only if the file still is not whole then; else they go on until the next one.
    """

    def caught() -> bool:
        if not window():
            return False
        pids = trains()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        held = bool(pids) and bool(window())
        for pid in pids:
            os.kill(pid, signal.SIGKILL if held else signal.SIGCONT)
        return held

    wait_for(caught, process, every_seconds=0.001)
