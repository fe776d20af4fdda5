"""How the driver replaces the process that speaks to Ray; without Ray, which `test_ray_lost` kills for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lm.record import Record
from orchestrator.agenda.trial_source import FixedOrder
from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.execute import ray
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.ray import Order, run_on_ray
from orchestrator.execute.run_trial import Allotment
from orchestrator.trials.trial import Trial
from tests.orchestrator.execute.test_schedule import Heard, trial

# Takes all trials that it can get, notes their keys, and then does as it is told.
STAND_IN = """
import os, sys
from multiprocessing.connection import Connection
from pathlib import Path
from orchestrator.errors import CannotStartError
from orchestrator.execute.ray import DriverConnection
line, notes = DriverConnection(Connection(int(sys.argv[1]))), Path(sys.argv[2])
assert line.order.session.is_dir()
source, listener = line.source, line.listener
times = len(notes.read_text().splitlines()) if notes.exists() else 0
taken = list(iter(source.next, None))
with notes.open("a") as file:
    print(*[trial.key for trial in taken], file=file)
for trial in taken:
    listener.started(trial)
match sys.argv[3].split(",")[times]:
    case "settle one and die":
        listener.settled(taken[0], None)
        source.settled(taken[0], None)
        os._exit(9)
    case "lose":
        line.tell("lost", "its raylet ended")
    case "not start":
        line.tell("lost", "did not start: too busy")
    case "refuse":
        line.fail(CannotStartError("no room"))
    case "fail":
        line.fail(KeyError("a mistake"))
    case "end":
        line.tell("ended")
"""


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, does: str, address: str | None = None) -> tuple[Heard, str]:
    """What the listener heard, and the keys that were given out, a line each time."""

    def start(end: int, *, verbose: bool) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-c", STAND_IN, str(end), str(folder / "notes"), does]
        return subprocess.Popen(line, pass_fds=[end], start_new_session=True)

    monkeypatch.setattr(ray, "_start", start)
    heard, allotment = Heard(), Allotment(folder, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    remaining = [trial("a"), trial("b"), trial("c")]

    class Source(FixedOrder):
        def settled(self, trial: Trial, record: Record | None) -> None:
            remaining.remove(trial)
            super().settled(trial, record)

    said = list[str]()
    run_on_ray(lambda: Source(remaining), Order(allotment, address=address), heard, Interrupt(), said.append)
    assert said[0].startswith("starting Ray on this machine") and len(said) == 1
    return heard, (folder / "notes").read_text()


def test_what_was_under_way_is_given_out_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard, given = run(monkeypatch, tmp_path, "settle one and die,end")
    assert given == "a b c\nb c\n"
    started = [f"{key} started" for key in "abc"]
    assert heard.words == [*started, "a stopped", *started[1:], "b stopped", "c stopped"]
    assert (
        caplog.text.count(
            "Ray was lost (the process that speaks to Ray ended; --verbose shows what it said); it is started again"
        )
        == 1
    )


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (
            "lose,lose",
            "Ray was lost: its raylet ended; finished trials are kept, run the same command again to continue",
        ),
        ("not start,not start", "Ray did not start: too busy; finished trials are kept"),
        ("lose,refuse", "Ray was lost: its raylet ended; it could not be started again: no room; finished trials"),
    ],
)
def test_the_second_loss_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, said: str
) -> None:
    with pytest.raises(RayLostError) as error:
        run(monkeypatch, tmp_path, does)
    assert str(error.value).startswith(said) and len(str(error.value).splitlines()) == 1


def test_a_cluster_is_not_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RayLostError, match=r"^--address host:6379: the cluster was lost: its raylet ended;"):
        run(monkeypatch, tmp_path, "lose", address="host:6379")
    assert (tmp_path / "notes").read_text() == "a b c\n"


@pytest.mark.parametrize(("does", "kind"), [("refuse", CannotStartError), ("fail", KeyError)])
def test_what_goes_wrong_there_is_raised_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as error:
        run(monkeypatch, tmp_path, does)
    assert kind.__name__ in "".join(error.value.__notes__)  # its traceback there


def test_a_signal_while_processes_are_killed_takes_effect_afterwards() -> None:
    """Also with another thread, which a mask of the first one's signals would leave open to them."""
    other = threading.Thread(target=time.sleep, args=(1.0,))
    other.start()
    done = False
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt), interrupt.handled(), interrupt.postponed():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        done = True
    other.join()
    assert done
