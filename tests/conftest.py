"""How the property tests run: without a deadline, since machines are shared; the same examples each time in CI.

Commands that are begun in the background of a script ignore Ctrl-C, and so would all that the tests begin.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have files without drawings in the place of pictures, which take seconds and have tests of their own."""
    from orchestrator.report.page import write_report

    def blank(path: Path, *_: object, **__: object) -> None:
        path.write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")

    assert write_report.__kwdefaults__ is not None
    monkeypatch.setitem(write_report.__kwdefaults__, "draw", blank)
