"""`log.txt` in a trial's folder: what happened in its training, in order, over all its attempts."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO

from lm import __version__
from lm.record import Evaluation

LOG = "log.txt"
"""No part of a record: it has times of day, and lines that differ from attempt to attempt."""


@contextmanager
def logged(folder: Path) -> Iterator[Callable[[str], None]]:
    """Append to the trial's log what the block says through the function it gets, and every warning of `lm`.

    The first line says where it runs, the last one how the block ended: an exception with its traceback, which goes on.
    Times are UTC.
    """
    handler = _Appending(folder / LOG)

    def write(message: str, level: int = logging.INFO, error: BaseException | None = None) -> None:
        trace = (type(error), error, error.__traceback__) if isinstance(error, Exception) else None
        handler.handle(logging.LogRecord(__name__, level, __file__, 0, message, None, trace))

    logger = logging.getLogger("lm")
    logger.addHandler(handler)
    write(f"begins: process {os.getpid()} on {platform.node()}, lm-ablation {__version__}")
    try:
        yield write
        write("ended")
    except BaseException as error:
        stopped = not isinstance(error, Exception)  # closed, interrupted or asked to exit: it can go on later
        write(f"{'stopped' if stopped else 'failed'}: {type(error).__name__}", logging.ERROR - 10 * stopped, error)
        raise
    finally:
        logger.removeHandler(handler)


@contextmanager
def captured(folder: Path) -> Iterator[None]:
    """Within the block all that this process prints, code below Python included, goes to the trial's log.

    For a process that trains one trial at a time and prints for nobody: other threads print there too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = (sys.stdout, sys.stderr)
    with (folder / LOG).open("a", buffering=1, encoding="utf-8", errors="backslashreplace") as log:
        kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        try:
            _point(before, dict.fromkeys(kept, log.fileno()))
            with redirect_stdout(log), redirect_stderr(log):
                yield
        finally:
            _point(before, kept)
            for copy in kept.values():
                os.close(copy)


def _point(streams: Iterable[TextIO], descriptors: Mapping[int, int]) -> None:
    """Make each descriptor a copy of another, once what the streams hold back is written to the old one."""
    for stream in streams:
        stream.flush()
    for descriptor, target in descriptors.items():
        os.dup2(target, descriptor)


def evaluation_in_a_line(point: Evaluation) -> str:
    """An evaluation as a line: stage, epoch, validation perplexity, training loss in nats, speed."""
    return (
        f"{point.stage} epoch {point.epoch}  valid perplexity {point.valid_perplexity:.2f}  "
        f"training loss {point.train_nats_per_token:.3f}  {point.tokens_per_second:,.0f} tokens/s"
        f"{'  averaging' if point.averaging else ''}{'  best' if point.best else ''}"
    )


class _Utc(logging.Formatter):
    converter = staticmethod(time.gmtime)


class _Appending(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.setFormatter(_Utc("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ"))
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        # What cannot be written, as on a full disk, ends the trial at a file that it needs, with that file's name.
        with suppress(OSError), self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(self.format(record) + "\n")
