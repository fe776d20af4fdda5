"""What the driver and the process that speaks to Ray say to each other, over a socket.

That process asks the trial source and waits for the answer; what it tells the listener, and what it logs, needs none.
"""

from __future__ import annotations

import logging
import pickle
import threading
import traceback
from dataclasses import dataclass
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from lm.record import Evaluation, Record
from lm.spec import Corpus
from orchestrator.agenda.trial_source import TrialSource
from orchestrator.execute.run_trial import Allotment
from orchestrator.trials.trial import Listener, Trial

Kind = Literal["source", "listener", "log", "error", "lost", "ended"]


@dataclass(frozen=True)
class Order:
    """What the driver says first: what Ray is to run, and where."""

    allotment: Allotment
    session: Path
    jobs: int | None
    address: str | None
    corpora: tuple[Corpus, ...]
    verbose: bool


class Line:
    """The end of the process that speaks to Ray. Any thread may tell, one may ask."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def order(self) -> Order:
        """What to run."""
        order: Order = self._connection.recv()
        return order

    def tell(self, kind: Kind, *words: Any) -> None:
        """Say something that needs no answer."""
        with self._lock:
            self._connection.send((kind, *words))

    def ask(self, name: str, *words: Any) -> Any:
        """What the driver's trial source answers."""
        self.tell("source", name, *words)
        return self._connection.recv()

    def fail(self, error: Exception) -> None:
        """Have the driver raise this error; one that cannot be sent becomes a RuntimeError of the same text."""
        error.add_note("".join(traceback.format_exception(error)))
        try:
            self.tell("error", pickle.loads(pickle.dumps(error)))
        except Exception:
            self.tell("error", RuntimeError(f"{type(error).__name__}: {error}"))

    def forward_logs(self) -> None:
        """Have the driver handle what this process logs from now on."""
        handler = QueueHandler(_Told(self))  # type: ignore[arg-type]  # all it asks of a queue is `put_nowait`
        for name in ("lm", "orchestrator"):
            logging.getLogger(name).addHandler(handler)


class _Told:
    def __init__(self, line: Line) -> None:
        self._line = line

    def put_nowait(self, record: logging.LogRecord) -> None:
        self._line.tell("log", record)


class RemoteCourse:
    """The driver's trial source."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def next(self) -> Trial | None:
        """As the driver's."""
        trial: Trial | None = self._line.ask("next")
        return trial

    def ended(self) -> bool:
        """As the driver's."""
        return bool(self._line.ask("ended"))

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the driver's."""
        return bool(self._line.ask("goes_on", trial, evaluation))

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the driver's, and wait until it knows."""
        self._line.ask("settled", trial, record)


class RemoteListener:
    """The driver's listener."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def started(self, trial: Trial) -> None:
        """Tell the driver's."""
        self._line.tell("listener", "started", trial)

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Tell the driver's."""
        self._line.tell("listener", "evaluated", trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the driver's."""
        self._line.tell("listener", "settled", trial, record)


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
