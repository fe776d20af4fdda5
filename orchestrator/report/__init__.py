"""A sweep's report: the page and what lies beside it, a pure function of plan and records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Report:
    """A report as written: its page, its answer as plain text, verdicts and changes in perplexity by variant, in words.

    `beside`: why it lies beside the place that it was meant for, or None; `is_whole`: every picture could be drawn.
    """

    page: Path
    answer: str
    verdicts: dict[str, str]
    beside: str | None = None
    is_whole: bool = True
    changes: dict[str, str] = field(default_factory=dict)
