"""What the driver and the process that speaks to Ray say to each other, over a socket.

That process calls the driver's trial source and waits for the answer; calls of the listener and log lines need none.
"""

from __future__ import annotations

import logging
import pickle
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, cast

from lm.spec import Corpus
from orchestrator.agenda.trial_source import TrialSource
from orchestrator.execute.run_trial import Allotment
from orchestrator.trials.trial import Listener

Kind = Literal["source", "listener", "log", "error", "lost", "ended"]


@dataclass(frozen=True)
class Order:
    """What Ray is to run, on which cluster (None: this machine), at most `jobs` at once (None: as many as fit).

    The trials read these `corpora`; `session` is the folder for files of Ray and Tune.
    """

    allotment: Allotment
    jobs: int | None = None
    address: str | None = None
    corpora: tuple[Corpus, ...] = ()
    verbose: bool = False
    session: Path = Path()


class Line:
    """The end of the process that speaks to Ray. Any thread may tell, one may ask."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self.order: Order = connection.recv()

    def tell(self, kind: Kind, *words: Any) -> None:
        """Say something that needs no answer."""
        with self._lock:
            self._connection.send((kind, *words))

    def _ask(self, kind: Kind, *words: Any) -> Any:
        self.tell(kind, *words)
        return self._connection.recv()

    def source(self) -> TrialSource:
        """The driver's trial source."""
        return cast(TrialSource, _Remote(partial(self._ask, "source")))

    def listener(self) -> Listener:
        """The driver's listener."""
        return cast(Listener, _Remote(partial(self.tell, "listener")))

    def fail(self, error: Exception) -> None:
        """Have the driver raise this error; one that cannot be sent becomes a RuntimeError of the same text."""
        error.add_note("".join(traceback.format_exception(error)))
        try:
            self.tell("error", pickle.loads(pickle.dumps(error)))
        except Exception:
            self.tell("error", RuntimeError(f"{type(error).__name__}: {error}"))

    def forward_logs(self) -> None:
        """Have the driver handle what this process logs from now on."""
        for name in ("lm", "orchestrator"):
            logging.getLogger(name).addHandler(_Forward(cast(Any, self)))


class _Remote:
    """An object of the driver's: each call of a method is sent there."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, name)


class _Forward(QueueHandler):
    """Sends log records over the line, which is its queue."""

    def enqueue(self, record: logging.LogRecord) -> None:
        cast(Line, self.queue).tell("log", record)


def serve(connection: Connection, source: TrialSource, listener: Listener) -> str | None:
    """Answer until the other end has ended; None if it said so, else why Ray was lost. Raises what it reports."""
    while True:
        try:
            kind, *words = connection.recv()
        except (EOFError, OSError):
            return "the process that speaks to Ray ended; --verbose shows what it said"
        match kind:
            case "source":
                answer = getattr(source, words[0])(*words[1:])
                try:
                    connection.send(answer)
                except OSError:
                    continue  # what it said last can still be read
            case "listener":
                getattr(listener, words[0])(*words[1:])
            case "log":
                logging.getLogger(words[0].name).handle(words[0])
            case "error":
                raise words[0]
            case "lost":
                return str(words[0])
            case "ended":
                return None
