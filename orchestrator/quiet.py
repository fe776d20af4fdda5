"""Ray's own words kept off the terminal."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast


@contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """Ray's own words kept off the terminal, unless asked for."""
    if verbose:
        yield
        return
    loggers = [logging.getLogger(name) for name in ("ray", "ray.tune", "ray.train")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        out, err = (cast(TextIO, _WithoutRaylet(stream)) for stream in (sys.stdout, sys.stderr))
        with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


class _WithoutRaylet:
    """A stream without the lines that Ray's node process writes to the driver's, whatever its logging level."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._dropped = stream, False

    def write(self, text: str) -> int:
        """Write, or drop a line of the raylet's and the line end that follows it."""
        line_end = self._dropped and text == "\n"
        self._dropped = "(raylet)" in text
        return len(text) if self._dropped or line_end else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
