"""Text that each variant's first seed wrote, and how varied it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lm.data.text import EOS
from lm.samples import as_text, distinct
from lm.spec import Generate
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.trials.records import Records
from orchestrator.trials.samples import first_trials, writer

_NOT_YET = "has not written any yet: a run of the sweep has it do so at its end"


@dataclass(frozen=True)
class TextRow:
    """One variant's first sample, and the share of distinct words and pairs in all; or why there is none."""

    variant: str
    seed: int
    stage: str
    text: str
    distinct_1: float
    distinct_2: float
    why_not: str | None = None


@dataclass(frozen=True)
class TextSection:
    """What was asked, in words, and a row for each variant that has no neural cache."""

    how: Generate
    settings: str
    rows: Sequence[TextRow]


def text_section(outcomes: Outcomes, records: Records, how: Generate | None) -> TextSection | None:
    """What the page says of texts; None if the sweep asks for none. Nothing is drawn here."""
    if how is None:
        return None
    rows = []
    for trial in first_trials(outcome.trial for outcome in outcomes.all):
        by = writer(trial, records)
        samples = None if by is None else by.samples(how)
        if by is None:
            rows.append(TextRow(trial.variant, trial.seed, "", "", 0.0, 0.0, "is not complete"))
        elif samples is None:
            why = _NOT_YET if by.has_weights else "has no weights here"
            rows.append(TextRow(trial.variant, trial.seed, by.stage, "", 0.0, 0.0, why))
        else:
            shown = as_text(samples.texts[0], EOS, how.prompt).lstrip()
            share = distinct(samples.texts, 1), distinct(samples.texts, 2)
            rows.append(TextRow(trial.variant, trial.seed, by.stage, shown, *share))
    return TextSection(how, _in_words(how), rows)


def _in_words(how: Generate) -> str:
    parts = [f"temperature {how.temperature:g}"]
    parts += [] if how.top_k is None else [f"the {how.top_k:,} most probable words"]
    parts += [] if how.top_p is None else [f"the most probable words that have {how.top_p:g} together"]
    return ", ".join([*parts, f"seed {how.seed}"])
