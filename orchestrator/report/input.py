"""What a report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.outcomes import Outcomes
from orchestrator.analysis.statistics import MARGIN
from orchestrator.search.ledger import SearchState
from orchestrator.sweep.designs import Ablation
from orchestrator.sweep.published import Published
from orchestrator.trials.records import Records


@dataclass(frozen=True)
class ReportInput:
    """All that a report is made of.

    `published_scale`: the published numbers were made at this scale; on any other the page warns. `published_note` says
    whose they are. `looks`: after how many seeds it was decided who gets more. `margin`: the share of perplexity that
    counts as no effect. `command` is the line that makes the sweep again.
    """

    name: str
    question: str
    scale: str
    published_scale: bool
    ablation: Ablation
    outcomes: Outcomes
    records: Records
    published: Mapping[str, Published]
    published_note: str
    command: str
    looks: Sequence[int] = (0,)
    margin: float = MARGIN
    searches: Sequence[SearchState] = ()
