"""Draws what `orchestrator.pictures.artist` sends: a process for each of the sockets whose numbers it is given."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import socket
import sys
import traceback
from io import BufferedRWPair

from orchestrator.pictures.drawing import draw


def main() -> None:
    """Fork, now that all is imported; then each process serves until nobody can ask it any more."""
    gc.freeze()
    gc.set_threshold(50_000)  # matplotlib makes objects by the thousand: to look for garbage so often takes a tenth
    numbers = [int(number) for number in sys.argv[1:]]
    own = next((number for number in numbers[1:] if os.fork() == 0), numbers[0])
    for number in numbers:
        if number != own:
            os.close(number)  # who asks another process must see its end
    with socket.socket(fileno=own) as end, end.makefile("rwb") as talk:
        _serve(talk)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _serve(talk: BufferedRWPair) -> None:
    """Answer each folder and picture with its sentence, or with the exception that drawing it raised."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            folder, picture = pickle.load(talk)
            answer: str | Exception | None
            try:
                answer = draw(folder, picture)
            except Exception as error:
                error.add_note(traceback.format_exc())
                answer = error
            pickle.dump(answer, talk)
            talk.flush()


if __name__ == "__main__":
    main()
