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
    """Fork a process for each socket, now that all is imported; end when they have, or with the first that fails."""
    gc.freeze()
    gc.set_threshold(50_000)  # matplotlib makes objects by the thousand: to look for garbage so often takes a tenth
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    for own in sockets:
        if os.fork() == 0:
            for end in sockets:
                if end is not own:
                    end.close()  # who asks another process must see its end
            _serve(own.makefile("rwb"))
            os._exit(0)  # matplotlib's temporary folder, if it has one, is for the first process to remove
    for end in sockets:
        end.close()
    for _ in sockets:
        code = os.waitstatus_to_exitcode(os.wait()[1])
        if code != 0:
            sys.exit(code if code > 0 else 128 - code)  # killed by a signal: as a shell tells it


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
