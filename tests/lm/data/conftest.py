"""Folders that no test shares, and the corpora that tests load."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lm.data.corpora import PUBLISHED
from tests.lm.data.toy_corpus import TOY, publish


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own $LM_DATA, working directory and cache directory: `lm_data`, `here`, `cache` below the path returned."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("LM_DATA", str(tmp_path / "lm_data"))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a published corpus whose addresses answer nobody."""
    monkeypatch.setitem(PUBLISHED, "toy", publish({split: f"http://127.0.0.1:9/{split}.txt" for split in TOY}))
    return "toy"


_REAL = os.environ.get("LM_DATA")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """The folder of a real corpus in the $LM_DATA the tests were started with; skips where it is not there."""

    def find(name: str) -> Path:
        folder = Path(_REAL or "", name)
        if not _REAL or not (folder / "train.txt").exists():
            pytest.skip(f"needs the real {name}: $LM_DATA/{name}/ is not there")
        monkeypatch.setenv("LM_DATA", _REAL)
        return folder

    return find
