"""`--notify`: a command of the user's that hears how a sweep ended."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Mapping
from typing import Any

from lm.files import in_a_line
from orchestrator.errors import redacted

PATIENCE_SECONDS = 60.0
_STATES = {0: "complete", 1: "failed", 3: "budget spent", 4: "Ray lost", 5: "cannot be written"}
_log = logging.getLogger(__name__)


def notify(command: str, exit_code: int, summary: Mapping[str, Any]) -> None:
    """Run a shell command with the summary and the sweep's `state` as JSON on its standard input, one object.

    A failure of it, or more than `PATIENCE_SECONDS`, is a warning.
    """
    text = json.dumps({"state": _STATES.get(exit_code, "interrupted"), "exit_code": exit_code, **summary}) + "\n"
    try:
        done = subprocess.run(command, shell=True, input=text, text=True, check=False, timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        _log.warning("--notify: the command was ended after %g seconds", PATIENCE_SECONDS)
    except BrokenPipeError:  # it does not read what it is given
        return
    except OSError as error:
        _log.warning("--notify: %s", redacted(in_a_line(error)))
    else:
        if done.returncode:
            _log.warning("--notify: the command ended with exit code %d", done.returncode)
