"""Spans of time, and what a command says whose budget is spent."""

from __future__ import annotations

import pytest

from orchestrator.budget import seconds_in


@pytest.mark.parametrize(
    ("text", "seconds"), [("8h", 28800.0), ("90m", 5400.0), ("30s", 30.0), ("1d", 86400.0), ("1.5h", 5400.0)]
)
def test_a_span(text: str, seconds: float) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "8 hours", "-1h", "0s", "1e3s"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90m or 8h"):
        seconds_in(text)
