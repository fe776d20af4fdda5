"""Pictures are drawn by a process of their own, while ours makes the rest of the report: they are half of its time."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from orchestrator.pictures.shown import Picture


class Pictures:
    """The pictures of one report, in its folder; the `with` block's end drops those that nobody has waited for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for drawn in self._drawn.values():
            drawn.cancel()


class _Artist:
    """The process, `orchestrator.pictures.drawing.__main__`; it ends with ours, however ours ends.

    Not by `multiprocessing`, which imports the user's own script once more. In a process group of its own: Ctrl-C is
    for us to answer.
    """

    def __init__(self) -> None:
        # It finds modules where we do, and nowhere else (-P).
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.pictures.drawing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
            process_group=0,
        )
        self._asking = ThreadPoolExecutor(1, "pictures")
        atexit.register(self._close)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def draw(self, folder: Path, picture: Picture) -> Future[str | None]:
        return self._asking.submit(self._ask, folder, picture)

    def _ask(self, folder: Path, picture: Picture) -> str | None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump((folder, picture), self._process.stdin)
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError) as error:
            code = self._process.wait()
            raise ChildProcessError(f"the process that draws pictures ended with exit code {code}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def _close(self) -> None:
        self._process.kill()  # whoever waited for a picture has it; to end by itself takes it a tenth of a second
        self._process.wait()


_ARTISTS: dict[int, _Artist] = {}
"""By our process: a fork of it would talk into the same pipe."""


def prepare() -> None:
    """Start the process that draws: it takes as long to import matplotlib as we to import what a report needs."""
    _artist()


def _artist() -> _Artist:
    if os.getpid() not in _ARTISTS or not _ARTISTS[os.getpid()].lives:
        _ARTISTS[os.getpid()] = _Artist()
    return _ARTISTS[os.getpid()]
