"""Where a report's numbers come from: the facts of its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lm.record import Record
from orchestrator.analysis.outcomes import Outcome, Outcomes
from orchestrator.report.sections.search import seconds_of
from orchestrator.report.sections.tables import train_seconds
from orchestrator.search.ledger import SearchState
from orchestrator.trials.records import Records
from orchestrator.words import NOTHING, Markdown, byte_size, counted, duration, escape


def setting(outcomes: Outcomes) -> Markdown:
    """What the baseline is and saw, in a sentence; empty before one of its trials is complete."""
    complete = [outcome for outcome in outcomes.of_baseline if outcome.final]
    if not complete or (record := complete[0].record) is None:
        return Markdown("")
    trial, corpus = complete[0].trial, record.corpus
    name, epochs = escape(outcomes.baseline), counted(trial.spec.most_epochs, "epoch")
    return Markdown(
        f"“{name}” has {trial.parameters:,} parameters and trains for at most {epochs} on {corpus.train_tokens:,} "
        f"tokens of {escape(corpus.name)}; the test text has {corpus.test_tokens:,}."
    )


def provenance(
    outcomes: Outcomes, scale: str, searches: Sequence[SearchState], runs: Records
) -> list[tuple[str, Markdown]]:
    """Label and value of every fact; if records differ, all values are listed."""
    trials = [outcome.trial for outcome in outcomes.all]
    settled = [(outcome, outcome.record) for outcome in outcomes.all if outcome.record is not None]
    corpora = {record.corpus.fingerprint: record.corpus for _, record in settled}.values()
    # A failed trial's record was written for a worker that could not tell what it ran on.
    records = [record for _, record in settled if record.status != "failed"]
    stages = {stage.key: stage for _, record in settled for stage in record.stages}.values()
    spent = sum(stage.train_seconds + stage.evaluation_seconds for stage in stages)
    spent += sum(_unended_stage(outcome, record) for outcome, record in settled)
    facts: list[tuple[str, str]] = [
        *((("Scale", scale),) if scale else ()),
        ("Corpus", _each(trial.spec.corpus.name for trial in trials)),
        *(("Fingerprint", each.fingerprint) for each in corpora),
        *(
            ("Tokens", f"{each.train_tokens:,} training, {each.valid_tokens:,} validation, {each.test_tokens:,} test")
            for each in corpora
        ),
        *(("Vocabulary", f"{each.vocabulary_size:,} words: {each.vocabulary_rule}") for each in corpora),
        ("Seeds", _each(trial.seed for trial in trials)),
        ("Device", _each(record.device for record in records)),
        ("Threads per trial", _each(record.threads for record in records)),
        ("Versions", _each(f"{name} {version}" for record in records for name, version in record.versions.items())),
        ("Commit", _each(record.commit or "unknown" for record in records)),
        ("Numerics version", _each(record.numerics_version for record in records)),
        ("Trial time", f"{duration(spent)} for {counted(len(settled), 'settled trial')}, shared stages counted once"),
        *_of_searches(searches, runs),
        ("Peak memory of a trial", byte_size(max(r.peak_memory_bytes for r in records)) if records else NOTHING),
    ]
    return [(label, escape(value)) for label, value in facts]


def _of_searches(searches: Sequence[SearchState], runs: Records) -> list[tuple[str, str]]:
    if not searches:
        return []
    trials = [trial for search in searches for trial in search.trials]
    records = [runs.read(key) for key in sorted({trial.key for trial in trials if trial.key is not None})]
    spent = duration(sum(map(seconds_of, searches)))
    return [
        ("Search time", f"{spent} for {counted(len(trials), 'trial')}, beside the trial time"),
        ("Commit of the search", _each(record.commit or "unknown" for record in records if record is not None)),
    ]


def _unended_stage(outcome: Outcome, record: Record) -> float:
    """Seconds of the stage in which a trial ended that is not complete: its curve has them, its record does not."""
    if record.status == "complete" or not outcome.curve:
        return 0.0
    return max(0.0, float(outcome.curve["seconds"][-1].as_py()) - train_seconds(record))


def _each(values: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(set(values)))) or NOTHING
