"""Draws what `orchestrator.pictures.artist` sends on standard input; answers into the pipe whose number it is given."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import traceback

from orchestrator.pictures.drawing import draw


def main() -> None:
    """Answer each folder and picture with its sentence, or with the exception that drawing it raised."""
    answers = os.fdopen(int(sys.argv[1]), "wb")
    gc.freeze()
    gc.set_threshold(50_000)  # matplotlib makes objects by the thousand: to look for garbage so often takes a tenth
    while True:
        try:
            folder, picture = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: str | Exception | None
        try:
            answer = draw(folder, picture)
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = error
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
