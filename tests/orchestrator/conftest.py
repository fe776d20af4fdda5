"""Where a command runs that writes into its working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.places import make_place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `toy.yaml` and its corpus, and with a cache of its own."""
    monkeypatch.chdir(make_place(tmp_path))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    return tmp_path
