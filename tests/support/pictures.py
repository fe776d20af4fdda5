"""Pages without pictures, which take seconds and have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


def draw_nothing(patch: pytest.MonkeyPatch) -> None:
    """Pages have files without drawings in the place of pictures."""
    from orchestrator.report.page import write_report

    def blank(path: Path, *_: object, **__: object) -> None:
        path.write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")

    assert write_report.__kwdefaults__ is not None
    patch.setitem(write_report.__kwdefaults__, "draw", blank)
