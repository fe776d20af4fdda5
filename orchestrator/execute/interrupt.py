"""Ctrl-C and SIGTERM: once stops cleanly, twice at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupt:
    """The first signal that asked to stop, None while none did; `insisted` once a second one came."""

    signal: int | None = None
    insisted: bool = False

    @property
    def exit_code(self) -> int | None:
        """130 after Ctrl-C, 143 after SIGTERM, None if nothing asked to stop."""
        return None if self.signal is None else 128 + self.signal


@contextmanager
def on_interrupt(interrupt: Interrupt, stop: Callable[[], None]) -> Iterator[None]:
    """Within the block the first SIGINT or SIGTERM calls `stop`; a second one raises KeyboardInterrupt."""

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.signal is not None:
            interrupt.insisted = True
            raise KeyboardInterrupt
        interrupt.signal = number
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
