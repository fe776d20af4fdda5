"""Small tables of the page: stages, neural caches, ensembles, fit, time and memory, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from lm.by_token.ensemble import ensemble
from lm.by_token.losses import read_losses
from lm.record import Record, opened
from orchestrator.analysis.outcomes import Outcome, Outcomes, budgets_of, curve_of, is_adaptive, last_trained
from orchestrator.report.markdown import Row
from orchestrator.report.sections.ablation import Spread
from orchestrator.report.sections.search import seconds_of
from orchestrator.report.sections.verdicts import in_percent
from orchestrator.search.ledger import SearchState
from orchestrator.trials.records import Records
from orchestrator.words import NOTHING, Markdown, byte_size, counted, duration, escape, number, signed


def stage_table(outcomes: Outcomes) -> Iterator[Row]:
    """A row for every training stage of variants with several; one already shown for a variant is not repeated."""
    shown: set[str] = set()
    for variant, group in outcomes.items():
        names = [name for name in group[0].trial.spec.stages() if name != "cache"]
        for name in names if len(names) > 1 else []:
            records = [outcome.record for outcome in group if outcome.record]
            stages = [stage for record in records for stage in record.stages if stage.name == name and stage.test]
            keys = {stage.key for stage in stages}
            if not keys <= shown:
                shown |= keys
                yield {
                    "Variant": variant,
                    "Stage": name,
                    "Epochs": _of_seeds([stage.epochs for stage in stages]),
                    "Best epoch": _of_seeds([stage.best_epoch for stage in stages]),
                    "Validation": Spread.of(stage.valid for stage in stages),
                    "Test": Spread.of(opened(stage.test) for stage in stages),
                    "Seeds": len(stages),
                }


def _of_seeds(values: Sequence[int]) -> str:
    return ", ".join(map(str, values if len(set(values)) > 1 else values[:1]))


def cache_table(outcomes: Outcomes) -> Iterator[Row]:
    """A row for every adaptive variant with a complete seed, beside the same one-column pass without its cache."""
    for variant, group in outcomes.items():
        final = [outcome.final for outcome in group if outcome.final]
        pairs = [(stage, stage.cache) for stage in final if stage.cache is not None]
        settings = [f"{cache.window}, {cache.weight:g}, {cache.flatness:g}" for _, cache in pairs]
        if pairs:
            yield {
                "Variant": variant,
                "Window, weight, flatness": "; ".join(dict.fromkeys(settings)),
                "Validation without cache": Spread.of(cache.plain_valid for _, cache in pairs),
                "Validation": Spread.of(stage.valid for stage, _ in pairs),
                "Test without cache": Spread.of(opened(cache.plain_test) for _, cache in pairs),
                "Test": Spread.of(opened(stage.test) for stage, _ in pairs),
            }


def ensemble_table(outcomes: Outcomes, records: Records) -> Iterator[Row]:
    """A row for every variant with two seeds or more that are complete and have their losses by token.

    All have as many members, where no seed is missing: the first of each, because an ensemble gains with every member.
    """
    members = {
        variant: [outcome.trial for outcome in group if outcome.losses is not None]
        for variant, group in outcomes.items()
        if all(outcome.losses is not None for outcome in group if outcome.final)
    }
    members = {variant: trials for variant, trials in members.items() if len(trials) > 1}
    equally_many = min((len(outcomes[variant]) for variant in members), default=0)
    for variant, trials in members.items():
        group = outcomes[variant]
        losses = [read_losses(records.test_losses(trial)) for trial in trials[:equally_many]]
        if all(each.is_of_the_text_of(losses[0]) for each in losses):
            mixed = ensemble([each.nats for each in losses])
            yield {
                "Variant": f"{variant} (adaptive)" if is_adaptive(group) else variant,
                "Seeds": len(losses),
                "Mean of their test perplexities": number(mixed.mean),
                "Ensemble": number(mixed.perplexity),
                "Against their mean": f"{signed(100 * mixed.change)}%",
            }


def fit_table(outcomes: Outcomes) -> Iterator[Row]:
    """Of every variant that trains, how it fits at its last epoch: losses in nats per token, means over complete seeds.

    Training far below validation, and validation above its lowest, are a text learnt by heart; if the best epoch is the
    last, training was too short.
    """
    for variant, records in trained(outcomes).items():
        curves = [curve_of(outcome.curve) for outcome in outcomes[variant] if outcome.final and outcome.curve]
        if curves:
            rise = fmean(curve.valid_nats_per_token[-1] - curve.valid_nats_per_token.min() for curve in curves)
            yield {
                "Variant": variant,
                "Training loss": number(fmean(curve.train_nats_per_token[-1] for curve in curves), 3),
                "Validation loss": number(fmean(curve.valid_nats_per_token[-1] for curve in curves), 3),
                "Perplexity above its lowest": in_percent(rise, None),
                "Best epoch": _of_seeds([last_trained(record).best_epoch for record in records]),
                "Epochs": _of_seeds([int(curve.epoch[-1]) for curve in curves]),
            }


def cost_table(outcomes: Outcomes) -> Iterator[Row]:
    """Means over the complete seeds of every variant that trains; in brackets the slowest and the fastest seed."""
    others = other_budgets(outcomes)
    for variant, records in trained(outcomes).items():
        stages = [stage for record in records for stage in record.stages]
        epochs = sum(stage.epochs for stage in stages) / len(records)
        rates = [tokens_per_second([record]) for record in records]
        ends = f" ({min(rates):,.0f} to {max(rates):,.0f})" if len(rates) > 1 else ""
        yield {
            "Variant": variant,
            "Epochs": f"{epochs:.1f}".removesuffix(".0")
            + f" of {outcomes[variant][0].trial.spec.most_epochs}"
            + " (another budget)" * (variant in others),
            "Training": duration(fmean(map(train_seconds, records))),
            "Evaluation": duration(sum(stage.evaluation_seconds for stage in stages) / len(records)),
            "Training tokens/s": f"{tokens_per_second(records):,.0f}{ends}",
            "Peak memory": byte_size(fmean(record.peak_memory_bytes for record in records)),
            "Seeds": len(records),
        }


def other_budgets(outcomes: Outcomes) -> list[str]:
    """The variants with a complete seed whose epochs, or text, are not the baseline's."""
    return [name for name in trained(outcomes) if len(budgets_of((outcomes[name], outcomes.of_baseline))) > 1]


def trained(outcomes: Outcomes) -> dict[str, list[Record]]:
    """The records of the complete seeds of each variant that has some; a cache trains nothing and is left out."""
    return {
        variant: records
        for variant, group in outcomes.items()
        if not is_adaptive(group) and (records := [each.record for each in group if each.final and each.record])
    }


def times_compare(outcomes: Outcomes) -> bool:
    """Whether all variants were trained on the same devices, so that times are of variants and not of machines."""
    return len({frozenset(record.device for record in records) for records in trained(outcomes).values()}) <= 1


def train_seconds(record: Record) -> float:
    """Seconds of training of all stages, evaluation left out."""
    return sum(stage.train_seconds for stage in record.stages)


def tokens_per_second(records: Sequence[Record]) -> float:
    """All tokens over all seconds of training, so that it fits the time in the same row; a mean of rates would not."""
    tokens = sum(stage.tokens_per_second * stage.train_seconds for record in records for stage in record.stages)
    return tokens / sum(map(train_seconds, records))


def provenance(
    outcomes: Outcomes, scale: str, searches: Sequence[SearchState], runs: Records
) -> list[tuple[str, Markdown]]:
    """Label and value of every fact; if records differ, all values are listed."""
    trials = [outcome.trial for outcome in outcomes.all]
    settled = [(outcome, outcome.record) for outcome in outcomes.all if outcome.record is not None]
    corpora = [record.corpus for _, record in settled]
    sizes = (f"{c.train_tokens:,} training, {c.valid_tokens:,} validation, {c.test_tokens:,} test" for c in corpora)
    rules = (f"{c.vocabulary_size:,} words: {c.vocabulary_rule}" for c in corpora)
    # A failed trial's record was written for a worker that could not tell what it ran on.
    records = [record for _, record in settled if record.status != "failed"]
    stages = {stage.key: stage for _, record in settled for stage in record.stages}.values()
    spent = sum(stage.train_seconds + stage.evaluation_seconds for stage in stages)
    spent += sum(_unended_stage(outcome, record) for outcome, record in settled)
    facts: list[tuple[str, str]] = [
        *((("Scale", scale),) if scale else ()),
        ("Corpus", _each(trial.spec.corpus.name for trial in trials)),
        *(("Fingerprint", each) for each in dict.fromkeys(c.fingerprint for c in corpora)),
        *(("Tokens", each) for each in dict.fromkeys(sizes)),
        *(("Vocabulary", each) for each in dict.fromkeys(rules)),
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
