"""A stall limit: a trial that writes nothing for so long is ended, and leaves what its threads were doing.

    stalled.txt    in the trial's folder: empty while it runs, the threads' tracebacks once it was ended
    failure.txt    why its last attempt failed, for whoever asks

A thread of Python could not end a trial that holds the interpreter's lock; the standard library's faulthandler can,
with a thread of its own below the interpreter. It ends the whole process.
"""

from __future__ import annotations

import faulthandler
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lm.files import write_text
from orchestrator.trials.disk import set_aside

_LOOKS = 20  # a limit may be overrun by one part in so many
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_NOT_PROGRESS = {".lock", "stalled.txt", "failure.txt"}


@contextmanager
def stall_limit(folder: Path, seconds: float | None) -> Iterator[None]:
    """Within the block the process ends itself (exit code 1) when no file of `folder` changes for so many seconds.

    Evaluations and checkpoints are such changes. Times of files are only compared with each other, never with the
    clock, which may jump. None sets no limit. A process can watch one folder at a time.
    """
    if seconds is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path, ended = folder / "stalled.txt", threading.Event()
    with path.open("ab") as file:  # to append: another command may wait for the same trial, and share its fate

        def arm() -> None:
            faulthandler.dump_traceback_later(seconds, exit=True, file=file)

        watch = threading.Thread(target=_watch, args=(folder, seconds / _LOOKS, arm, ended), daemon=True)
        arm()
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()  # else it could arm once more
            faulthandler.cancel_dump_traceback_later()
            path.unlink(missing_ok=True)


def forget_stalls(runs: Path) -> None:
    """Drop what stalls left that no worker lived to record, so that their trials are tried again.

    An empty file belongs to a trial that runs, for another command.
    """
    for path in runs.glob("*/stalled.txt"):
        with suppress(FileNotFoundError):  # its trial has just ended
            if not path.is_file():  # nothing that a stall left
                set_aside(path, runs)
            elif path.stat().st_size:
                path.unlink()


def recorded_stall(folder: Path, seconds: float | None) -> tuple[str, str] | None:
    """How an earlier attempt stalled, in a line and as its threads' tracebacks; None if none did."""
    path = folder / "stalled.txt"
    try:
        traces = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    if not traces or seconds is None:
        return None
    return f"stalled: nothing written for {seconds / 60:.3g} minutes, in {_place(traces)}", traces


def write_reason(folder: Path, text: str) -> None:
    """Keep why an attempt failed; what an earlier one left is replaced."""
    write_text(folder / "failure.txt", text.rstrip() + "\n")
    (folder / "stalled.txt").unlink(missing_ok=True)


def forget_reason(folder: Path) -> None:
    """A new attempt takes the earlier failure back."""
    (folder / "failure.txt").unlink(missing_ok=True)


def _watch(folder: Path, every_seconds: float, arm: Callable[[], None], ended: threading.Event) -> None:
    """Arm anew at each change until `ended`."""
    before = _written(folder)
    while not ended.wait(every_seconds):
        if (now := _written(folder)) != before:
            before = now
            arm()


def _written(folder: Path) -> set[tuple[str, int]]:
    """The files of a trial and the times at which they were last written."""
    found = set()
    for above, _, names in os.walk(folder):
        for name in set(names) - _NOT_PROGRESS:
            path = Path(above, name)
            try:
                found.add((str(path), path.stat().st_mtime_ns))
            except OSError:
                continue  # a temporary file that became another
    return found


def _place(traces: str) -> str:
    """The innermost line of the trainer, or else of anything, in the thread that worked on the trial."""
    threads = traces.split("\n\n")
    trial = next((found for found in threads if "/orchestrator/execute/run_trial.py" in found), threads[-1])
    frames = list(_FRAME.finditer(trial))
    if not frames:
        return "an unknown place"
    frame = next((found for found in frames if "/lm/" in found["file"]), frames[0])
    return f"{Path(frame['file']).name}:{frame['line']} ({frame['function']})"
