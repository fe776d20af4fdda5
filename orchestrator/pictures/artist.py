"""Pictures are drawn by a process of their own, while ours makes the rest of the report: they are half of its time."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from orchestrator.pictures.shown import Picture


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
            self._artist.close()
        for drawn in under_way:
            drawn.exception()


class _Artist:
    """The process, `orchestrator.pictures.drawing.__main__`. It ends with ours, however ours ends, and with its forks.

    Not by `multiprocessing`, which imports the user's own script once more. In a session of its own: Ctrl-C is for us
    to answer, and a terminal cannot stop it for what it writes.
    """

    def __init__(self) -> None:
        # It finds modules where we do, and nowhere else (-P).
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path if isinstance(path, str))
        answers, answering = os.pipe()  # a pipe of its own: anything may print on standard output, as early as `site`
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.pictures.drawing", str(answering)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": paths},
            pass_fds=[answering],
            start_new_session=True,
        )
        os.close(answering)
        self._answers = os.fdopen(answers, "rb")
        self._asking = ThreadPoolExecutor(1, "pictures")
        atexit.register(self.close)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def draw(self, folder: Path, picture: Picture) -> Future[str | None]:
        return self._asking.submit(self._ask, folder, picture)

    def close(self) -> None:
        """End the process; it may take a second to clear up after itself."""
        atexit.unregister(self.close)
        self._asking.shutdown(wait=False, cancel_futures=True)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def _ask(self, folder: Path, picture: Picture) -> str | None:
        assert self._process.stdin is not None
        request = pickle.dumps((folder, picture))
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            answer = pickle.load(self._answers)
        except Exception as error:  # its end, or an answer cut short, after which none is to be trusted
            self._process.kill()
            code = self._process.wait()
            raise ChildProcessError(f"the process that draws pictures ended with exit code {code}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


_ARTISTS: dict[int, _Artist] = {}
"""By our process: a fork of it would talk into the same pipe."""
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
