"""Text that each variant's first seed wrote, and how varied it is."""

from __future__ import annotations

from dataclasses import dataclass

from lm.data.text import EOS
from lm.samples import as_text, distinct
from lm.spec import Generate
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.markdown import Rows
from orchestrator.trials.records import Records
from orchestrator.trials.samples import first_trials, writer

_NOT_YET = "has not written any yet: a run of the sweep has it do so at its end"


@dataclass(frozen=True)
class TextSection:
    """What was asked; the shares of distinct words; by variant its first seed's first sample, or why there is none."""

    how: Generate
    rows: Rows
    samples: dict[str, str]
    missing: dict[str, str]


def text_section(outcomes: Outcomes, records: Records, how: Generate | None) -> TextSection | None:
    """What the page says of texts, none of it of a neural cache; None if the sweep asks for none. Nothing is drawn."""
    if how is None:
        return None
    section = TextSection(how, [], {}, {})
    for trial in first_trials(outcome.trial for outcome in outcomes.all):
        by = writer(trial, records)
        if by is not None and (samples := by.samples(how)) is not None:
            words, pairs = (f"{distinct(samples.texts, length):.3f}" for length in (1, 2))
            section.rows.append({"Variant": trial.variant, "Distinct words": words, "Distinct pairs": pairs})
            name = f"{trial.variant}, seed {trial.seed}, stage {by.stage}"
            section.samples[name] = as_text(samples.texts[0], EOS, how.prompt).lstrip()
        else:
            why = "is not complete" if by is None else _NOT_YET if by.has_weights else "has no weights here"
            section.missing[trial.variant] = f"seed {trial.seed} {why}"
    return section
