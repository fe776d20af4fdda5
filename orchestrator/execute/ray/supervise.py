"""Run a trial source on Ray Tune, in a process that is replaced once if Ray is lost."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from lm.record import Evaluation, Record
from lm.spec import Corpus
from orchestrator.agenda.trial_source import TrialSource
from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.execute.interrupt import Interrupt, on_interrupt
from orchestrator.execute.ray.folder import session_folder
from orchestrator.execute.ray.talk import Order, serve
from orchestrator.execute.run_trial import Allotment, settled_record
from orchestrator.trials.trial import Listener, Trial

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",  # Ray's ports listen on all interfaces: nobody gets in without the token
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0 the only way to silence Tune's tables
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the driver asks Tune to stop, and remembers that it did
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""What Ray reads when it loads; a variable that the user has set stays as it is."""
_END_SECONDS = 15.0
_KILL_SECONDS = 10.0
_log = logging.getLogger(__name__)


def run_on_ray(
    source: TrialSource,
    allotment: Allotment,
    listener: Listener,
    interrupt: Interrupt,
    *,
    jobs: int | None = None,
    address: str | None = None,
    corpora: Collection[Corpus] = (),
    verbose: bool = False,
) -> None:
    """Train what the source says, at most `jobs` at once; return when it has ended or an interrupt stopped it.

    A worker that dies is started again from its trial's checkpoint, three times at most; then the trial is recorded as
    failed. If Ray's own processes die, Ray is started again, once, and the trials under way go on from their
    checkpoints; RayLostError after that, or if it was a cluster. A second interrupt raises KeyboardInterrupt. Raises
    CannotStartError if no node could ever hold a trial, or one of a cluster differs from this machine, in its
    `corpora` too.
    """
    given, begun = _Given(source), _Begun(listener)
    lost: str | None = None
    try:
        while True:
            with session_folder() as session:
                order = Order(allotment, session, jobs, address, tuple(corpora), verbose)
                before, lost = lost, _attempt(order, given, begun, interrupt)
            if lost is None or interrupt.signal is not None:
                return
            if before is not None or address is not None:
                raise RayLostError(_in_a_line(lost, address))
            _log.warning("Ray was lost (%s); it is started again, and trials go on from their checkpoints", lost)
            given.again()
    except KeyboardInterrupt:
        if interrupt.insisted:
            raise
        interrupt.signal = interrupt.signal or signal.SIGINT
    except CannotStartError as error:
        if lost is None:
            raise
        raise RayLostError(_in_a_line(f"{lost}; it could not be started again: {error}", address)) from error
    finally:
        if not interrupt.insisted:
            begun.stop(allotment)


def _in_a_line(why: str, address: str | None) -> str:
    whose = "Ray" if address is None else f"--address {address}: the cluster"
    return f"{whose} was lost: {why}; nothing finished is lost, and the same command goes on"


def _attempt(order: Order, source: TrialSource, listener: Listener, interrupt: Interrupt) -> str | None:
    """One Ray from its start to its end; None, or why it was lost. None of its processes is left."""
    ours, theirs = socket.socketpair()
    with ours, theirs, Connection(os.dup(ours.fileno())) as connection:
        process = _start(theirs.fileno(), verbose=order.verbose)

        def stop() -> None:
            process.send_signal(signal.SIGUSR1)  # Tune's own word for a graceful stop; deadly before Tune listens

        with on_interrupt(interrupt, stop):
            try:
                theirs.close()
                with suppress(OSError):  # it has ended already, as `serve` will say
                    connection.send(order)
                lost = serve(connection, source, listener)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS if lost is None else 0.0)
                return lost
            finally:
                _end(process)


def _start(end: int, *, verbose: bool) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path if isinstance(path, str))
    output = None if verbose else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "orchestrator.execute.ray", str(end)],  # it finds modules where this process does
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=ENVIRONMENT | os.environ | {"PYTHONPATH": paths},
        pass_fds=[end],
        start_new_session=True,  # by which its descendants are known, whoever becomes their parent
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and its descendants, who share its session; return once they are dead."""
    until = time.monotonic() + _KILL_SECONDS
    with _undisturbed():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        while (left := _alive_in_session(process.pid)) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        process.wait()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A signal that arrives in the block takes effect at its end.

    To block it would not do: another thread receives it then, and Python calls the handler in this one all the same.
    """
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for received in came:
            signal.raise_signal(received)


def _alive_in_session(session: int) -> list[int]:
    """The processes of a session that are not dead; none where there is no /proc to list them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if int(of) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


class _Given:
    """A trial source that remembers which trials are under way, for a Ray that is started again."""

    def __init__(self, source: TrialSource) -> None:
        self._source = source
        self._under_way: list[Trial] = []
        self._again: list[Trial] = []

    def again(self) -> None:
        """Give the trials under way out once more, before others."""
        self._again = list(self._under_way)

    def next(self) -> Trial | None:
        """A trial that Ray lost, or else the next one of the source."""
        if self._again:
            return self._again.pop(0)
        trial = self._source.next()
        if trial is not None:
            self._under_way.append(trial)
        return trial

    def ended(self) -> bool:
        """As the source, once all that Ray lost were given out."""
        return not self._again and self._source.ended()

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the source says."""
        return self._source.goes_on(trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the source."""
        self._under_way.remove(trial)
        self._source.settled(trial, record)


class _Begun:
    """A listener that remembers which trials have started and not settled."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._trials: dict[str, Trial] = {}

    def started(self, trial: Trial) -> None:
        """Tell the listener."""
        self._trials[trial.key] = trial
        self._listener.started(trial)

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Tell the listener."""
        self._listener.evaluated(trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the listener."""
        self._trials.pop(trial.key, None)
        self._listener.settled(trial, record)

    def stop(self, allotment: Allotment) -> None:
        """Tell the listener how far the trials are that were under way when all was stopped."""
        for trial in list(self._trials.values()):
            self.settled(trial, settled_record(trial, allotment))
