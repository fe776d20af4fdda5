"""Tables of the trials after each of their stages, and of neural caches beside the same pass without them."""

from __future__ import annotations

from dataclasses import dataclass

from lm.record import opened
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.sections.ablation import Spread


@dataclass(frozen=True)
class StageRow:
    """One stage of one variant over its seeds; `epochs` and `best_epoch` list every seed's."""

    variant: str
    stage: str
    epochs: tuple[int, ...]
    best_epoch: tuple[int, ...]
    valid: Spread
    test: Spread


@dataclass(frozen=True)
class CacheRow:
    """An adaptive variant beside the same one-column pass without it; `settings` are window, weight and flatness."""

    variant: str
    settings: str
    plain_valid: Spread
    valid: Spread
    plain_test: Spread
    test: Spread


def stage_table(outcomes: Outcomes) -> list[StageRow]:
    """A row for every training stage of variants with several; one already shown for a variant is not repeated."""
    rows = []
    shown: set[str] = set()
    for variant, group in outcomes.items():
        names = [name for name in group[0].trial.spec.stages() if name != "cache"]
        for name in names if len(names) > 1 else []:
            records = [outcome.record for outcome in group if outcome.record]
            done = [stage for record in records for stage in record.stages if stage.name == name and stage.test]
            keys = {stage.key for stage in done}
            if not keys <= shown:
                shown |= keys
                rows.append(
                    StageRow(
                        variant=variant,
                        stage=name,
                        epochs=tuple(stage.epochs for stage in done),
                        best_epoch=tuple(stage.best_epoch for stage in done),
                        valid=Spread.of(stage.valid for stage in done),
                        test=Spread.of(opened(stage.test) for stage in done),
                    )
                )
    return rows


def cache_table(outcomes: Outcomes) -> list[CacheRow]:
    """A row for every adaptive variant with a complete seed."""
    rows = []
    for variant, group in outcomes.items():
        final = [outcome.final for outcome in group if outcome.final]
        pairs = [(stage, stage.cache) for stage in final if stage.cache is not None]
        if pairs:
            settings = [f"{cache.window}, {cache.weight:g}, {cache.flatness:g}" for _, cache in pairs]
            rows.append(
                CacheRow(
                    variant=variant,
                    settings="; ".join(dict.fromkeys(settings)),
                    plain_valid=Spread.of(cache.plain_valid for _, cache in pairs),
                    valid=Spread.of(stage.valid for stage, _ in pairs),
                    plain_test=Spread.of(opened(cache.plain_test) for _, cache in pairs),
                    test=Spread.of(opened(stage.test) for stage, _ in pairs),
                )
            )
    return rows
