"""What is made once and kept: an error of the making is its own, an error of the disk costs time alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from lm.kept import kept


def read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def get(path: Path, make: Callable[[], str], write: Callable[[Path, str], object] = Path.write_text) -> str:
    return kept(path, "words", read=read, make=make, write=write, wait_seconds=0.1)  # type: ignore[arg-type]


def test_an_error_of_the_making_is_raised_and_nothing_is_made_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[str] = []

    def fails() -> str:
        made.append("tried")
        raise FileNotFoundError("the text is gone")

    with caplog.at_level(logging.WARNING), pytest.raises(FileNotFoundError, match="the text is gone"):
        get(tmp_path / "words.txt", fails)
    assert made == ["tried"] and not caplog.records
    assert get(tmp_path / "words.txt", lambda: "good") == "good"  # the lock is free again


def test_what_cannot_be_written_is_made_once_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made: list[str] = []

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device", str(path))

    with caplog.at_level(logging.WARNING):
        assert get(tmp_path / "words.txt", lambda: made.append("once") or "good", full) == "good"  # type: ignore[func-returns-value]
    assert made == ["once"] and "words are not kept in" in caplog.text and "No space left" in caplog.text
    assert not (tmp_path / "words.txt").exists()
