"""Pictures are drawn by processes of their own, while ours makes the rest of the report: they are half of its time."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from io import BufferedRWPair
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from orchestrator.pictures.shown import Picture

_AT_A_TIME = 2
"""Pictures, each in a process: as many as keep two cores busy where ours waits for them."""


class Pictures:
    """The pictures of one report, in its folder; after the `with` block no more are drawn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()  # the process that draws may have begun in another working directory
        self._artist = _artist()
        self._drawn: dict[str, Future[str | None]] = {}

    def draw(self, cell: str, picture: Picture) -> None:
        """Have a picture drawn; what the page says of it belongs into this cell."""
        self._drawn[cell] = self._artist.draw(self._folder, picture)

    def sentences(self) -> dict[str, str | None]:
        """What the page says of each picture, None where nothing; once all are drawn. Whatever drawing raises."""
        return {cell: drawn.result() for cell, drawn in self._drawn.items()}

    def __enter__(self) -> Pictures:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        under_way = [drawn for drawn in self._drawn.values() if not drawn.cancel() and not drawn.done()]
        if under_way and isinstance(error, KeyboardInterrupt):
            self._artist.kill()
        for drawn in under_way:
            drawn.exception()


class _Artist:
    """The process `orchestrator.pictures.drawing.__main__` and its forks, which draw with what it has imported.

    They end with our process, however it ends. Not by `multiprocessing`, which imports the user's own script once
    more. In a session of their own: Ctrl-C is for us to answer, and a terminal cannot stop them for what they write.
    """

    def __init__(self) -> None:
        # It finds modules where we do, and nowhere else (-P).
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path if isinstance(path, str))
        # Sockets of its own: anything may print on standard output, as early as `site`.
        ours, theirs = zip(*(socket.socketpair() for _ in range(_AT_A_TIME)), strict=True)
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in theirs]  # of lower numbers `Popen` makes its own
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.pictures.drawing", *map(str, ends)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # One thread, and so one that may be forked.
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=ends,
            start_new_session=True,
        )
        for number in ends:
            os.close(number)
        for end in theirs:
            end.close()
        self._owner, self._sockets = os.getpid(), ours
        self._free: SimpleQueue[BufferedRWPair] = SimpleQueue()
        for end in ours:
            self._free.put(end.makefile("rwb"))
        self._asking = ThreadPoolExecutor(_AT_A_TIME, "pictures")
        self._asked = False
        atexit.register(self.close)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def draw(self, folder: Path, picture: Picture) -> Future[str | None]:
        self._asked = True
        return self._asking.submit(self._ask, folder, picture)

    def close(self) -> None:
        """Let it end, as it does once nobody can ask; one that was asked nothing may yet import for long."""
        atexit.unregister(self.close)
        if os.getpid() != self._owner:
            return  # a fork of ours
        self._asking.shutdown(wait=False)
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # where a fork of ours has it open too, to close it would not do
            end.close()
        if self._asked:
            self._process.wait()

    def kill(self, patience: float = 0.0) -> int:
        """End it in the middle of a picture, unless within so many seconds it ends by itself; its exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _ask(self, folder: Path, picture: Picture) -> str | None:
        request, talk = pickle.dumps((folder, picture)), self._free.get()
        try:
            talk.write(request)
            talk.flush()
            answer = pickle.load(talk)
        except Exception as error:  # its end, or an answer cut short, after which none is to be trusted
            code = self.kill(patience=1.0)
            raise ChildProcessError(f"the process that draws pictures ended with exit code {code}") from error
        finally:
            self._free.put(talk)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


_ARTISTS: dict[int, _Artist] = {}
"""By our process: a fork of it would talk into the same sockets."""
_ONE_AT_A_TIME = threading.Lock()


def prepare() -> None:
    """Start the process that draws: it takes as long to import matplotlib as we to import what a report needs."""
    _artist()


def _artist() -> _Artist:
    with _ONE_AT_A_TIME:
        own = _ARTISTS.get(os.getpid())
        if own is not None and not own.lives:
            own.close()
            own = None
        if own is None:
            own = _ARTISTS[os.getpid()] = _Artist()
        return own
