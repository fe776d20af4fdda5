"""How the property tests run: without a deadline, since machines are shared; the same examples each time in CI.

Commands that are begun in the background of a script ignore Ctrl-C, and so would all that the tests begin.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
