"""The CSV files beside a report: the same tables in full digits, losses in nats per token."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from lm.record import Score, opened
from orchestrator.analysis import statistics
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.report.sections.ablation import REFERENCE, AblationRow, ReferenceRow
from orchestrator.report.sections.interactions import InteractionRow
from orchestrator.search.ledger import SearchState


def table_csv(rows: Iterable[AblationRow], references: Iterable[ReferenceRow] = ()) -> str:
    """`table.csv`: one line a variant, unrounded, losses in nats per token; the references last, and marked."""
    lines = [_flat_row(row) for row in rows]
    return _csv([*lines, *(dict.fromkeys(lines[0]) | _flat_reference(row) for row in references)])


def trials_csv(outcomes: Mapping[str, tuple[Outcome, ...]]) -> str:
    """`trials.csv`: one line a trial, complete or not, unrounded."""
    return _csv([_flat_trial(outcome) for outcome in flat(outcomes)])


def measures_csv(outcomes: Mapping[str, tuple[Outcome, ...]]) -> str | None:
    """`measures.csv`: a line for each of a head's own measures of each stage and split; None without any.

    What validation fitted is a measure of `valid`.
    """
    rows = [
        {
            "variant": outcome.trial.variant,
            "seed": outcome.trial.seed,
            "stage": stage.name,
            "split": split,
            "measure": name,
            "value": value,
        }
        for outcome in flat(outcomes)
        for stage in (outcome.record.stages if outcome.record else ())
        for split, measures in (*stage.measures.items(), ("valid", stage.fitted))
        for name, value in measures.items()
    ]
    return _csv(rows) if rows else None


def interactions_csv(rows: Iterable[InteractionRow]) -> str:
    """`interactions.csv`: one line a contrast, unrounded, in nats per token and as ratios of perplexities."""
    return _csv(
        [
            {
                "contrast": row.estimand.name,
                "kind": row.estimand.kind,
                "aliases": ", ".join(row.estimand.aliases),
                "nats_per_token": row.effect.nats,
                "nats_per_token_low": row.effect.interval and row.effect.interval.low,
                "nats_per_token_high": row.effect.interval and row.effect.interval.high,
                "perplexity_ratio": row.ratio,
                "perplexity_ratio_low": row.interval_in_ratio and row.interval_in_ratio.low,
                "perplexity_ratio_high": row.interval_in_ratio and row.interval_in_ratio.high,
                "verdict": row.verdict,
                "reason": row.reason,
            }
            for row in rows
        ]
    )


def _flat_row(row: AblationRow) -> dict[str, object]:
    effect = row.effect
    ends = effect.interval if effect else None
    return {
        "variant": row.variant,
        "change": row.change,
        "adaptive": row.adaptive,
        "parameters": row.parameters,
        "seeds": row.seeds,
        "complete": row.complete,
        "valid_perplexity_mean": row.valid and row.valid.mean,
        "valid_perplexity_deviation": row.valid and row.valid.deviation,
        "test_perplexity_mean": row.test and row.test.mean,
        "test_perplexity_deviation": row.test and row.test.deviation,
        "difference_nats_per_token": effect and effect.nats,
        "difference_nats_per_token_low": ends and ends.low,
        "difference_nats_per_token_high": ends and ends.high,
        "standard_error_seeds": effect and effect.seed_error,
        "standard_error_text": effect and effect.text_error,
        "perplexity_ratio": effect and statistics.perplexity_ratio(effect.nats or 0.0),
        "difference_perplexity": row.change_in_perplexity,
        "difference_perplexity_low": row.interval_in_perplexity and row.interval_in_perplexity.low,
        "difference_perplexity_high": row.interval_in_perplexity and row.interval_in_perplexity.high,
        "verdict": effect and effect.verdict,
        "reason": row.reason,
        "further_seeds": effect and effect.further and effect.further.seeds,
        "published_valid_perplexity": row.published_valid and row.published_valid.perplexity,
        "published_test_perplexity": row.published_test and row.published_test.perplexity,
        "published_test_difference": row.published_difference and row.published_difference.perplexity,
        "reference": False,
    }


def _flat_reference(row: ReferenceRow) -> dict[str, object]:
    return {
        "variant": row.variant,
        "change": row.change,
        "adaptive": False,
        "parameters": row.parameters,
        "seeds": 0,
        "complete": 0,
        "valid_perplexity_mean": row.valid,
        "test_perplexity_mean": row.test,
        "reason": REFERENCE,
        "reference": True,
    }


def searches_csv(searches: Sequence[SearchState]) -> str:
    """A line a trial of a search, with a column for each value that some search chose; in full digits."""
    paths = list(dict.fromkeys(path for searched in searches for path in searched.task.space))
    return _csv(
        [
            {
                "variant": searched.task.variant,
                "trial": found.number,
                "state": found.state,
                "epochs": found.epochs,
                "seconds": found.seconds,
                "valid_nats_per_token": found.valid_nats,
                "key": found.key,
                **{path: found.values.get(path) for path in paths},
            }
            for searched in searches
            for found in searched.trials
        ]
    )


def _flat_trial(outcome: Outcome) -> dict[str, object]:
    trial, record, final = outcome.trial, outcome.record, outcome.final
    scores: dict[str, object] = {}
    for split in ("valid", "test"):
        score: Score | None = getattr(final, split) if final else None
        for field in ("perplexity", "perplexity_reference", "nats_per_token"):
            scores[f"{split}_{field}"] = getattr(score, field) if score else None
    cache = final.cache if final else None
    return {
        "variant": trial.variant,
        "seed": trial.seed,
        "key": trial.key,
        "status": outcome.status,
        "reason": outcome.reason,
        "reads_from": trial.reads_from,
        "starts_from": trial.starts_from,
        **scores,
        "valid_perplexity_without_cache": cache and cache.plain_valid.perplexity,
        "test_perplexity_without_cache": cache and opened(cache.plain_test).perplexity,
        "best_epoch": final and final.best_epoch,
        "epochs": len(outcome.curve),
        "seconds": record and record.seconds,
        "tokens_per_second": record and record.tokens_per_second,
        "peak_memory_bytes": record and record.peak_memory_bytes,
        "device": record and record.device,
        "commit": record and record.commit,
    }


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
