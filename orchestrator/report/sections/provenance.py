"""Where a report's numbers come from: the facts of its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from orchestrator.analysis.outcomes import Outcome, Outcomes
from orchestrator.report.sections.search_tables import SearchRow
from orchestrator.search.ledger import SearchState
from orchestrator.trials.records import Records
from orchestrator.words import NOTHING, Markdown, byte_size, counted, duration, escape


def provenance(
    outcomes: Outcomes, scale: str, searches: Sequence[SearchState], runs: Records
) -> list[tuple[str, Markdown]]:
    """Label and value of every fact; if records differ, all values are listed."""
    trials = outcomes.all
    settled = [outcome.record for outcome in trials if outcome.record is not None]
    corpora = {record.corpus.fingerprint: record.corpus for record in settled}.values()
    # A failed trial's record was written for a worker that could not tell what it ran on.
    records = [record for record in settled if record.status != "failed"]
    names = sorted({outcome.trial.spec.corpus.name for outcome in trials})
    seeds = sorted({outcome.trial.seed for outcome in trials})
    versions = sorted({f"{name} {version}" for record in records for name, version in record.versions.items()})
    facts: list[tuple[str, str]] = [
        ("Scale", scale),
        ("Corpus", _some(names)),
        *(("Fingerprint", corpus.fingerprint) for corpus in corpora),
        *(
            (
                "Tokens",
                f"{corpus.train_tokens:,} training, {corpus.valid_tokens:,} validation, {corpus.test_tokens:,} test",
            )
            for corpus in corpora
        ),
        *(("Vocabulary", f"{corpus.vocabulary_size:,} words: {corpus.vocabulary_rule}") for corpus in corpora),
        ("Seeds", _some(map(str, seeds))),
        ("Device", _some(sorted({record.device for record in records}))),
        ("Threads per trial", _some(map(str, sorted({record.threads for record in records})))),
        ("Versions", _some(versions)),
        ("Commit", _some(sorted({record.commit or "unknown" for record in records}))),
        ("Numerics version", _some(map(str, sorted({record.numerics_version for record in records})))),
        ("Trial time", _trial_time(trials)),
        *_of_searches(searches, runs),
        ("Wall time", _wall_time(trials)),
        ("Mean speed", _mean_speed(trials)),
        ("Peak memory of a trial", _peak_memory([record.peak_memory_bytes for record in records])),
    ]
    return [(label, escape(value)) for label, value in facts]


def _of_searches(searches: Sequence[SearchState], runs: Records) -> list[tuple[str, str]]:
    """What was trained to find values for the trials of the table."""
    if not searches:
        return []
    rows = [SearchRow(search) for search in searches]
    keys = {trial.key for search in searches for trial in search.trials if trial.key is not None}
    settled = [record for key in sorted(keys) if (record := runs.read(key)) is not None]
    trials = counted(sum(len(search.trials) for search in searches), "trial")
    time = f"{duration(sum(row.seconds for row in rows))} for {trials}"
    return [
        ("Search time", f"{time}, beside the trial time"),
        ("Commit of the search", _some(sorted({record.commit or "unknown" for record in settled}))),
    ]


def _trial_time(trials: Iterable[Outcome]) -> str:
    """Seconds of the settled trials, a stage that several trials share counted once."""
    stages: dict[str, float] = {}
    beyond = 0.0
    count = 0
    for outcome in trials:
        record = outcome.record
        if record is None:
            continue
        count += 1
        stages |= {stage.key: stage.train_seconds + stage.evaluation_seconds for stage in record.stages}
        if record.status != "complete" and outcome.curve:
            beyond += max(
                0.0, outcome.curve["seconds"][-1].as_py() - sum(stage.train_seconds for stage in record.stages)
            )
    total = sum(stages.values()) + beyond
    return f"{duration(total)} for {counted(count, 'settled trial')}, shared stages counted once"


def _wall_time(trials: Iterable[Outcome]) -> str:
    """From the first trial's start to the last one's end, pauses included; starts are reckoned from ends."""
    starts: list[datetime] = []
    ends: list[datetime] = []
    for outcome in trials:
        record = outcome.record
        if record is not None and record.status != "failed" and outcome.trial.reads_from is None:
            ends.append(datetime.fromisoformat(record.finished_at))
            if outcome.trial.starts_from is None:  # else its seconds hold another trial's
                starts.append(ends[-1] - timedelta(seconds=record.seconds))
    if not starts:
        return NOTHING
    took = (max(ends) - min(starts)).total_seconds()
    return f"{duration(took)} from the first start to the last end ({max(ends):%Y-%m-%d %H:%M} UTC), pauses included"


def _mean_speed(trials: Iterable[Outcome]) -> str:
    """All tokens over all seconds of training, of the stages that ended; one that several trials share counts once."""
    stages = {stage.key: stage for outcome in trials if outcome.record for stage in outcome.record.stages}.values()
    seconds = sum(stage.train_seconds for stage in stages)
    tokens = sum(stage.tokens_per_second * stage.train_seconds for stage in stages)
    return f"{tokens / seconds:,.0f} tokens/s, all tokens over all seconds of training" if seconds else NOTHING


def _peak_memory(sizes: list[int]) -> str:
    return byte_size(max(sizes)) if sizes else NOTHING


def _some(values: Iterable[str]) -> str:
    return ", ".join(values) or NOTHING
