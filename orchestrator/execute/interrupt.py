"""Ctrl-C and SIGTERM, from the start of a command to its end: once stops cleanly, twice at once.

While a sweep is planned, reported or mirrored, the first signal raises KeyboardInterrupt. While trials train, it has
the executor stop them (`stopping`), and the report of what there is gets written. A second signal raises
KeyboardInterrupt wherever it lands. The exit code is 128 plus the signal: 130 after Ctrl-C, 143 after SIGTERM.

The process that speaks to Ray ignores both signals (`leave_to_driver`), because Slurm, for one, sends them to every
process of a job: the driver sends it SIGUSR1, at which Tune stops.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Interrupt:
    """The first signal that asked to stop, None until one does; `insisted` after a second one."""

    signal: int | None = None
    insisted: bool = False
    _stop: Callable[[], None] | None = None
    _postponed: list[int] | None = None
    _acknowledged: bool = False

    @property
    def exit_code(self) -> int | None:
        """128 plus the signal, None if nothing asked to stop."""
        return None if self.signal is None else 128 + self.signal

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Answer both signals within the block; in another thread than the main one, Python lets nobody do that."""
        answered = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, self._handle) for number in answered}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def stopping(self, stop: Callable[[], None] | None = None) -> Iterator[None]:
        """Within the block the first signal calls `stop`, or else ends the block without an error."""
        before, self._stop = self._stop, stop
        try:
            yield
        except KeyboardInterrupt:
            if self.insisted:
                raise
            self.signal = self.signal or signal.SIGINT  # if Python's own handler raised it
        finally:
            self._stop = before

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """A signal that arrives within the block takes effect at its end.

        A mask would not do: another thread receives the signal then, and Python still calls the handler in this one.
        """
        self._postponed = received = list[int]()
        try:
            yield
        finally:
            self._postponed = None
            for number in received:
                self._handle(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._acknowledged:
            self._acknowledged = True
            # By the system alone: a handler may interrupt a print. A terminal has just shown ^C. Who read the messages
            # may have gone by the same Ctrl-C, like a `tee`; if nobody ever did, 2 is by now some other file.
            if sys.stderr is not None:
                with suppress(OSError):
                    os.write(2, b"\nstopping after this step; again to stop at once\n")
        if self._postponed is not None:
            self._postponed.append(number)
            return
        if self.signal is not None:
            self.insisted = True
            raise KeyboardInterrupt
        self.signal = number
        if self._stop is None:
            raise KeyboardInterrupt
        self._stop()


def leave_to_driver() -> None:
    """Ignore both signals; not by SIG_IGN, which Ray's processes would inherit, and Ray ends them with SIGTERM."""
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
