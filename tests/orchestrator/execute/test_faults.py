"""Faults of a whole sweep, each caused for real: nothing finished is lost, and the page is an undisturbed run's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from lm.record import Record, read_record
from tests.support.sweeps import (
    SWEEP,
    alive,
    checkpoints,
    descendants,
    finish,
    furnish,
    kill_within,
    report,
    sessions,
    start,
    wait_for,
    workers,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers through /proc")

SMALL = SWEEP.replace("seeds: [1, 2]", "seeds: [1]").replace("epochs: 6", "epochs: 4")
OFTEN = ("--checkpoint-minutes", "0.01")

# Both are found by every process that Python starts under their folder, workers included.
SLOW_DISK = """
import os, time
fsync = os.fsync
def slowly(descriptor):
    time.sleep(0.05)
    fsync(descriptor)
os.fsync = slowly
"""
KEPT_LIST = """
import os, sys
def note(event, arguments):
    if event == "os.rename" and os.fspath(arguments[1]).endswith(("record.json", "curve.parquet")):
        with open(os.environ["WRITTEN"], "a") as file:
            file.write("/".join(os.fspath(arguments[1]).split("/")[-2:]) + "\\n")
sys.addaudithook(note)
"""


def in_python(place: Path, code: str) -> dict[str, str]:
    """Variables under which every Python process runs the code when it starts."""
    folder = place / "in_python"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "WRITTEN": str(place / "written")}


def written(place: Path) -> Counter[str]:
    """How often each record and curve was written; MLflow's copies, of which each sweep has its own, do not count."""
    lines = (place / "written").read_text().splitlines()
    return Counter(line for line in lines if not line.startswith("artifacts/"))


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    place = tmp_path_factory.mktemp("calm")
    furnish(place, SMALL, train_lines=500)
    finish(start(place, "--executor", "inline", environment=in_python(place, KEPT_LIST)))
    return place


@pytest.fixture
def place(tmp_path: Path, calm: Path) -> Path:
    """A working directory with the undisturbed run's corpus, encoded, and its sweep file."""
    for name in ("corpus", "cache"):
        shutil.copytree(calm / name, tmp_path / name)
    shutil.copy(calm / "tiny.yaml", tmp_path)
    return tmp_path


def records(place: Path) -> list[Record]:
    found = [read_record(path.parent) for path in place.glob("runs/*/record.json")]
    return [record for record in found if record is not None]


def key_without_weight_dropping(calm: Path) -> str:
    return next(record.key for record in records(calm) if record.spec.dropout.weight == 0.0)


def completes(place: Path, calm: Path, *options: str) -> str:
    """The same command completes the sweep, leaves what was finished alone, and writes the undisturbed page."""
    finished = {
        path: path.read_bytes() for path in place.glob("runs/*/record.json") if '"failed"' not in path.read_text()
    }
    output = finish(start(place, *options))
    assert "Traceback" not in output
    assert {path: path.read_bytes() for path in finished} == finished
    assert report(place) == report(calm)
    return output


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary directory of the sweep's, with a path that is short enough for Ray."""
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def being_written(place: Path, pattern: str) -> Callable[[], set[Path]]:
    return lambda: set(place.glob(f"runs/*/{pattern}"))


WRITINGS = pytest.mark.parametrize("pattern", ["checkpoints/.*.tmp", ".record.json.*.tmp"])


@pytest.mark.slow
@WRITINGS
def test_killed_while_it_writes(place: Path, calm: Path, pattern: str) -> None:
    process = start(place, "--executor", "inline", environment=in_python(place, SLOW_DISK))
    kill_within(being_written(place, pattern), lambda: [process.pid], process)
    finish(process, -signal.SIGKILL)
    assert being_written(place, pattern)()
    completes(place, calm, "--executor", "inline")


@pytest.mark.slow
@WRITINGS
def test_a_worker_killed_while_it_writes_is_replaced(place: Path, calm: Path, pattern: str) -> None:
    process = start(place, environment=in_python(place, SLOW_DISK))
    kill_within(being_written(place, pattern), lambda: workers(process.pid), process)
    finish(process)
    completes(place, calm)


@pytest.mark.slow
def test_a_worker_killed_in_training_is_replaced(place: Path, calm: Path) -> None:
    process = start(place, *OFTEN)
    wait_for(lambda: workers(process.pid) and checkpoints(place), process)
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    finish(process)
    assert report(place) == report(calm)


@pytest.mark.slow
def test_the_driver_killed(place: Path, calm: Path) -> None:
    process = start(place, *OFTEN)
    wait_for(lambda: checkpoints(place), process)
    process.kill()
    process.communicate()
    completes(place, calm)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("options", [("--jobs", "2"), ("--executor", "inline")])
def test_interrupted_from_the_terminal(
    place: Path, calm: Path, temporary: Path, options: tuple[str, ...], times: int
) -> None:
    process = start(place, *OFTEN, *options, environment={"TMPDIR": str(temporary)})
    wait_for(lambda: checkpoints(place), process)
    seen = set(descendants(process.pid))
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
    output = finish(process, 130)
    assert "To go on:\n  python -m orchestrator sweep tiny.yaml" in output
    assert "Traceback" not in output
    assert output.count("stopping after this step; again to stop at once\n") == 1
    assert not alive(seen)
    assert not sessions(temporary)
    completes(place, calm, *OFTEN, *options)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_ray_starts(place: Path, number: signal.Signals) -> None:
    process = start(place)
    wait_for(lambda: workers(process.pid, b"/raylet/raylet"), process)
    process.send_signal(number)
    output = finish(process, 128 + number)
    assert "To go on:\n  python -m orchestrator sweep tiny.yaml" in output
    assert output.index("starting Ray on this machine") < output.index(
        "stopping after this step; again to stop at once"
    )
    assert "Traceback" not in output
    assert not records(place)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["report", "mirror"])
def test_ended_after_training(place: Path, calm: Path, when: str) -> None:
    process = start(place)
    last = place / "reports/tiny" / ("paper/report.md" if when == "mirror" else "")
    wait_for(last.exists, process, every_seconds=0.01)
    process.terminate()
    output = finish(process, 143)
    assert "Traceback" not in output
    completes(place, calm)


@pytest.mark.slow
def test_a_trial_that_hangs_is_ended_and_tried_again_by_the_next_command(place: Path, calm: Path) -> None:
    (place / "tiny.yaml").write_text(SMALL + "resources: {stall_minutes: 1.0}\n")
    folder = place / "runs" / key_without_weight_dropping(calm)
    folder.mkdir(parents=True)
    with FileLock(folder / ".lock"):  # the trial waits for it, and would for ever
        finish(start(place, *OFTEN), 1)
    record = read_record(folder)
    assert record is not None and record.status == "failed"
    assert record.reason is not None and record.reason.startswith("stalled: nothing written for 1 minutes; ")
    failure = (folder / "failure.txt").read_text()
    assert failure.startswith(record.reason) and "_poll_until_acquired" in failure
    assert sorted(found.status for found in records(place)) == ["complete", "complete", "failed"]
    assert "stalled: nothing written" in (place / "reports/tiny/paper/report.md").read_text()
    completes(place, calm, *OFTEN)
    assert not (folder / "failure.txt").exists() and not (folder / "stalled.txt").exists()


@pytest.mark.slow
def test_a_trial_that_raises_leaves_its_traceback_and_its_neighbours_alone(place: Path, calm: Path) -> None:
    folder = place / "runs" / key_without_weight_dropping(calm)
    folder.mkdir(parents=True)
    (folder / "weights").write_text("a file where the trial makes a folder")
    finish(start(place), 1)
    record = read_record(folder)
    assert record is not None and record.status == "failed" and "weights" in (record.reason or "")
    assert "Traceback" in (folder / "failure.txt").read_text()
    assert sorted(found.status for found in records(place)) == ["complete", "complete", "failed"]
    (folder / "weights").unlink()
    completes(place, calm)
    assert not (folder / "failure.txt").exists()


@pytest.mark.slow
def test_a_trial_that_diverges_changes_no_loss_of_its_neighbours(place: Path, calm: Path) -> None:
    away = "  clipping: {off: {optimizer.clip: null, optimizer.learning_rate: 1.0e+6, optimizer.weight_decay: 1.0}}\n"
    (place / "tiny.yaml").write_text(SMALL.replace("components:\n", "components:\n" + away))
    for _ in range(2):  # divergence is an outcome: the second command trains nothing
        finish(start(place), 1)
        assert Counter(record.status for record in records(place)) == {"complete": 3, "diverged": 1}
    for losses in calm.glob("runs/*/tokens/*"):
        assert (place / losses.relative_to(calm)).read_bytes() == losses.read_bytes()


@pytest.mark.slow
def test_two_commands_on_one_sweep(place: Path, calm: Path) -> None:
    first = start(place, *OFTEN)
    wait_for(lambda: checkpoints(place), first)
    output = finish(start(place, *OFTEN), 2)
    assert f"process {first.pid} on " in output
    finish(first)
    assert report(place) == report(calm)


@pytest.mark.slow
def test_two_sweeps_that_share_their_trials_train_each_once(place: Path, calm: Path) -> None:
    (place / "other.yaml").write_text(SMALL.replace("name: tiny", "name: other"))
    environment = in_python(place, KEPT_LIST)
    both = [
        start(place, "--executor", "inline", file=f"{name}.yaml", environment=environment) for name in ("tiny", "other")
    ]
    for process in both:
        output = finish(process)
        assert "Traceback" not in output
    assert written(place) == written(calm)
    assert report(place) == report(calm)
    assert report(place, "other").keys() == report(place).keys()


@pytest.mark.slow
def test_records_of_another_version_beside_are_left_alone(place: Path, calm: Path) -> None:
    for number, old in enumerate(sorted(path.parent for path in calm.glob("runs/*/record.json"))):
        beside = place / "runs" / f"{number:016d}"
        shutil.copytree(old, beside)
        text = (beside / "record.json").read_text().replace(old.name, beside.name)
        (beside / "record.json").write_text(text.replace('"threads"', '"strands"' if number else '"threads"', 1))
    before = {path: path.read_bytes() for path in place.glob("runs/0*/**/*") if path.is_file()}
    completes(place, calm, "--executor", "inline")
    assert {path: path.read_bytes() for path in before} == before


CLOCK = r"""
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump(void) {  /* every three seconds forth or back */
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (now.tv_sec / 3) % 2 ? SECONDS : 0;
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += jump();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void) zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *kept) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (kept) *kept = exact.tv_sec;
    return exact.tv_sec;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="builds a clock that jumps with the C compiler")
@pytest.mark.parametrize(("options", "seconds"), [(("--jobs", "2"), 10), (("--executor", "inline"), 86_400)])
def test_a_clock_that_jumps(place: Path, calm: Path, options: tuple[str, ...], seconds: int) -> None:
    """Under Ray by seconds, as time servers do: its own deadlines go by the clock, and set back by a day it hangs."""
    (place / "clock.c").write_text(CLOCK)
    build = ["cc", "-shared", "-fPIC", "-O1", f"-DSECONDS={seconds}", "-o", "clock.so", "clock.c"]
    subprocess.run(build, cwd=place, check=True)
    output = finish(start(place, *options, environment={"LD_PRELOAD": str(place / "clock.so")}))
    assert "Traceback" not in output
    assert report(place) == report(calm)
