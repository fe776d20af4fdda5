"""A stall limit: a trial that writes nothing for a while is ended, with the tracebacks of its threads.

    stalled.txt    in the trial's folder: empty while it runs, the tracebacks after it was ended

A thread of Python could not end a trial that holds the interpreter's lock; faulthandler can, below the interpreter.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lm.trial_log import LOG
from orchestrator.trials.disk import FAILURE, STALLED, set_aside

_LOOKS = 20  # a trial may overrun its limit by a twentieth
_NOT_PROGRESS = {".lock", STALLED, FAILURE, LOG}


@contextmanager
def stall_limit(folder: Path, seconds: float | None) -> Iterator[None]:
    """Within the block the process ends itself (exit code 1) if no file of `folder` changes for this many seconds.

    Only file times are compared, because the clock may jump. None sets no limit. A process can watch one folder.
    """
    if seconds is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path, ended = folder / STALLED, threading.Event()
    with path.open("ab") as file:  # appends: another command may wait for the same trial, and stall with it

        def arm() -> None:
            faulthandler.dump_traceback_later(seconds, exit=True, file=file)

        def watch() -> None:
            before = _written(folder)
            while not ended.wait(seconds / _LOOKS):
                if (written := _written(folder)) != before:
                    before = written
                    arm()

        thread = threading.Thread(target=watch, daemon=True)
        arm()
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()  # or it could set the timer once more
            faulthandler.cancel_dump_traceback_later()
            path.unlink(missing_ok=True)


def forget_stalls(runs: Path) -> None:
    """Remove the tracebacks of stalled trials that no worker recorded, so that these trials are tried again."""
    for path in runs.glob(f"*/{STALLED}"):
        with suppress(FileNotFoundError):  # its trial has just ended
            if not path.is_file():  # a folder or a pipe, which no stall leaves
                set_aside(path, runs)
            elif path.stat().st_size:  # an empty one belongs to a trial that another command runs
                path.unlink()


def recorded_stall(folder: Path, seconds: float | None) -> tuple[str, str] | None:
    """How an earlier attempt stalled, in a line and as its threads' tracebacks; None if none did."""
    try:
        traces = (folder / STALLED).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    if not traces or seconds is None:
        return None
    return f"stalled: nothing written for {seconds / 60:.3g} minutes; failure.txt has its threads' tracebacks", traces


def _written(folder: Path) -> set[tuple[str, int]]:
    """The files of a trial and the times at which they were last written."""
    written = set()
    for above, _, names in os.walk(folder):
        for path in (Path(above, name) for name in set(names) - _NOT_PROGRESS):
            with suppress(OSError):  # a temporary file that has been renamed
                written.add((str(path), path.stat().st_mtime_ns))
    return written
