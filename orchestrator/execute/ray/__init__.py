"""The door to Ray: trials on Ray Tune, as many at once as fit, on this machine or a cluster.

Ray starts workers and passes evaluations on. What is complete is read from the records alone, because Tune also calls
a trial terminated that Ctrl-C cut off. Ray runs in a process of its own (`__main__`), because calls into Ray block for
ever or end the whole process when a process of Ray's dies; it is replaced once if Ray is lost. It calls the driver's
trial source over a socket and waits for the answer; the listener and logs need none.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

from lm.record import Record
from lm.spec import Corpus
from orchestrator.agenda.trial_source import TrialSource
from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.run_trial import Allotment, settled_record
from orchestrator.trials.trial import Listener, Trial

Kind = Literal["source", "listener", "log", "error", "lost", "ended"]
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0 the only way to silence Tune's tables
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the driver asks Tune to stop, and remembers that it did
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_LONGEST_NAME = "orch-01234567/ray/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store"
MOST_PATH_BYTES = 103 - len(_LONGEST_NAME) - 1
"""103 bytes is what the path of a socket may have on every system."""
NOT_STARTED = "did not start"
"""Begins what is said of a Ray that never ran."""
_END_SECONDS = 15.0
_KILL_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """What Ray is to run, on which cluster (None: this machine), at most `jobs` at once (None: as many as fit).

    The trials read these `corpora`; `session` is the folder for files of Ray and Tune.
    """

    allotment: Allotment
    jobs: int | None = None
    address: str | None = None
    corpora: tuple[Corpus, ...] = ()
    verbose: bool = False
    session: Path = Path()


class DriverConnection:
    """The end of the process that speaks to Ray: the driver's trial source, for one thread, and its listener."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self.order: Order = connection.recv()
        self.source = cast(TrialSource, _Remote(self._ask))
        self.listener = cast(Listener, _Remote(partial(self.tell, "listener")))

    def tell(self, kind: Kind, *words: Any) -> None:
        """Say something that needs no answer."""
        with self._lock:
            self._connection.send((kind, *words))

    def _ask(self, *words: Any) -> Any:
        self.tell("source", *words)
        return self._connection.recv()

    def fail(self, error: Exception) -> None:
        """Have the driver raise this error; one that cannot be sent becomes a RuntimeError of the same text."""
        error.add_note("".join(traceback.format_exception(error)))
        try:
            self.tell("error", pickle.loads(pickle.dumps(error)))
        except Exception:
            self.tell("error", RuntimeError(f"{type(error).__name__}: {error}"))

    def forward_logs(self) -> None:
        """Have the driver handle what this process logs from now on."""
        queue: Any = SimpleNamespace(put_nowait=partial(self.tell, "log"))
        for name in ("lm", "orchestrator"):
            logging.getLogger(name).addHandler(QueueHandler(queue))


class _Remote:
    """An object of the driver's: each call of a method is sent there."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, name)


def run_on_ray(
    source: Callable[[], TrialSource],
    order: Order,
    listener: Listener,
    interrupt: Interrupt,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Train what the source says; return when it has ended or an interrupt stopped it. `say` that Ray starts.

    If Ray's own processes die, Ray is started again, once, with a new source, and the trials under way go on from their
    checkpoints; RayLostError after that, or if it was a cluster. A second interrupt raises KeyboardInterrupt. Raises
    CannotStartError if no node could ever hold a trial, or a node of a cluster differs from this machine.
    """
    started = _Started(listener)
    first_loss: str | None = None

    def error(reason: str) -> RayLostError:
        whose = "Ray" if order.address is None else f"--address {order.address}: the cluster"
        what = reason if reason.startswith(NOT_STARTED) else f"was lost: {reason}"
        return RayLostError(f"{whose} {what}; finished trials are kept, run the same command again to continue")

    try:
        with interrupt.stopping():
            joining = f"joining the Ray cluster at {order.address}, whose nodes are checked"
            say(joining if order.address is not None else "starting Ray on this machine, which can take a minute")
            while (loss := _attempt(order, source(), started, interrupt)) is not None and interrupt.signal is None:
                if first_loss is not None or order.address is not None:
                    raise error(loss)
                if loss.startswith(NOT_STARTED):
                    _log.warning("Ray %s; it is started once more", loss)
                else:
                    _log.warning(
                        "Ray was lost (%s); it is started again, and trials go on from their checkpoints", loss
                    )
                first_loss = loss
    except CannotStartError as refusal:
        if first_loss is None:
            raise
        raise error(f"{first_loss}; it could not be started again: {refusal}") from refusal
    finally:
        if not interrupt.insisted:
            started.stop(order.allotment)


def ray_environment() -> dict[str, str]:
    """The environment that Ray reads when it loads: the user's variables go first, but Ray always asks for a token."""
    return _ENVIRONMENT | os.environ | {"RAY_AUTH_MODE": "token"}


@contextmanager
def session_folder() -> Iterator[Path]:
    """A temporary folder of its owner alone, removed at the end; in /tmp if the usual path is too long for sockets."""
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) > MOST_PATH_BYTES:
        _log.warning("%s is too long a path for Ray's sockets; Ray's files go to /tmp", place)
        place = "/tmp"
    with tempfile.TemporaryDirectory(prefix="orch-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _attempt(order: Order, source: TrialSource, listener: Listener, interrupt: Interrupt) -> str | None:
    """One Ray from its start to its end; None, or why it was lost. None of its processes is left."""
    near, far = socket.socketpair()
    with session_folder() as session, near, far, Connection(os.dup(near.fileno())) as connection:
        process = _start(far.fileno(), verbose=order.verbose)
        # Tune stops cleanly at SIGUSR1, which ends a process in which Tune does not run yet.
        with interrupt.stopping(lambda: process.send_signal(signal.SIGUSR1)):
            try:
                far.close()
                with suppress(OSError):  # it has ended already, as `serve` will say
                    connection.send(replace(order, session=session))
                loss = serve(connection, source, listener)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS if loss is None else 0.0)
                return loss
            finally:
                with interrupt.postponed():
                    _end(process)


def _start(end: int, *, verbose: bool) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    output = None if verbose else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "orchestrator.execute.ray", str(end)],  # it finds modules where this process does
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=ray_environment() | {"PYTHONPATH": paths},
        pass_fds=[end],
        start_new_session=True,  # by which its descendants are known, even if they get another parent
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and its descendants, which share its session; return once they are dead."""
    until = time.monotonic() + _KILL_SECONDS
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    while (left := _alive_in_session(process.pid)) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    process.wait()


def _alive_in_session(session: int) -> list[int]:
    """The processes of a session that are not dead; none if there is no /proc to list them."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, number = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it has just ended
        if int(number) == session and state not in "ZX":
            alive.append(int(stat.parent.name))
    return alive


class _Started:
    """A listener that remembers which trials have started and not settled."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self.evaluated = listener, listener.evaluated
        self._trials: dict[str, Trial] = {}

    def started(self, trial: Trial) -> None:
        self._trials[trial.key] = trial
        self._listener.started(trial)

    def settled(self, trial: Trial, record: Record | None) -> None:
        self._trials.pop(trial.key, None)
        self._listener.settled(trial, record)

    def stop(self, allotment: Allotment) -> None:
        """Pass on how far the trials came that were under way when all was stopped."""
        for trial in list(self._trials.values()):
            self.settled(trial, settled_record(trial, allotment, waits=()))


def serve(connection: Connection, source: TrialSource, listener: Listener) -> str | None:
    """Answer until the other end has ended; None if it said so, else why Ray was lost. Raises what it reports."""
    while True:
        try:
            kind, *words = connection.recv()
        except (EOFError, OSError):
            return "the process that speaks to Ray ended; --verbose shows what it said"
        match kind:
            case "source":
                answer = getattr(source, words[0])(*words[1:])
                try:
                    connection.send(answer)
                except OSError:
                    continue  # what it said last can still be read
            case "listener":
                getattr(listener, words[0])(*words[1:])
            case "log":
                logging.getLogger(words[0].name).handle(words[0])
            case "error":
                raise words[0]
            case "lost":
                return str(words[0])
            case "ended":
                return None
