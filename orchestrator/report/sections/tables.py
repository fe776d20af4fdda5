"""The tables of a report as rows of plain, unrounded values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lm.record import Score, StageResult, opened
from orchestrator.analysis import statistics
from orchestrator.analysis.comparable import DID_NOT_TRAIN, Obstacle, incomplete_seeds, is_adaptive, obstacles
from orchestrator.analysis.comparison import nats_on_test
from orchestrator.analysis.outcomes import Outcome
from orchestrator.analysis.statistics import Comparison, Effect, Interval

RECALLED = "recalled"
"""The certainty of a published number that nobody has looked up."""


class PublishedNumber(Protocol):
    """A perplexity that a paper prints."""

    @property
    def perplexity(self) -> float:
        """As printed."""

    @property
    def std(self) -> float | None:
        """Its standard deviation, where printed."""

    @property
    def certainty(self) -> str:
        """How it is known."""

    @property
    def note(self) -> str | None:
        """What a reader of the number should know."""


class Published(Protocol):
    """A paper's figures for one variant."""

    @property
    def valid(self) -> PublishedNumber | None:
        """Validation perplexity."""

    @property
    def test(self) -> PublishedNumber | None:
        """Test perplexity."""


@dataclass(frozen=True)
class PublishedDifference:
    """A published test perplexity less the baseline's, also as the ratio's logarithm; `recalled` where either is."""

    perplexity: float
    nats: float
    recalled: bool


@dataclass(frozen=True)
class Spread:
    """Exact perplexities of the complete seeds: mean, sample standard deviation (None for one seed), number."""

    mean: float
    deviation: float | None
    n: int


@dataclass(frozen=True)
class AblationRow:
    """One variant. `effect` is in nats per token, `change_in_perplexity` the same at the baseline's perplexity.

    An adaptive variant (neural cache) sees the text it is scored on, so it has no effect and no verdict.
    `incomplete` says which seeds are not complete, and is empty where all are. `reason` says why there is no verdict,
    and of the baseline why there is none at all.
    """

    variant: str
    change: str
    adaptive: bool
    parameters: int
    seeds: int
    complete: int
    incomplete: str
    valid: Spread | None
    test: Spread | None
    effect: Effect | None
    reason: str | None
    change_in_perplexity: float | None
    interval_in_perplexity: Interval | None
    published_valid: PublishedNumber | None
    published_test: PublishedNumber | None
    published_difference: PublishedDifference | None


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
    """An adaptive variant beside the same one-column pass without the cache; `settings` lists every seed's."""

    variant: str
    settings: tuple[tuple[int, float, float], ...]
    plain_valid: Spread
    valid: Spread
    plain_test: Spread
    test: Spread


def ablation_table(
    outcomes: Mapping[str, tuple[Outcome, ...]],
    comparison: Comparison | None,
    published: Mapping[str, Published],
    baseline: str,
) -> list[AblationRow]:
    """One row a variant, in the order of the plan."""
    rows = []
    for variant, group in outcomes.items():
        effect = None if variant == baseline else _effect(outcomes, variant, baseline, comparison)
        change, interval = _in_perplexity(effect, comparison)
        final = [outcome.final for outcome in group if outcome.final]
        paper = published.get(variant)
        rows.append(
            AblationRow(
                variant=variant,
                change=group[0].trial.change,
                adaptive=is_adaptive(group),
                parameters=group[0].trial.parameters,
                seeds=len(group),
                complete=len(final),
                incomplete=incomplete_seeds(group),
                valid=_spread(stage.valid for stage in final) if final else None,
                test=_spread(opened(stage.test) for stage in final) if final else None,
                effect=effect,
                reason=effect.reason if effect else _why_no_effect(outcomes, variant, baseline),
                change_in_perplexity=change,
                interval_in_perplexity=interval,
                published_valid=paper.valid if paper else None,
                published_test=paper.test if paper else None,
                published_difference=_published_difference(group, baseline, published),
            )
        )
    return rows


def stage_table(outcomes: Mapping[str, tuple[Outcome, ...]]) -> list[StageRow]:
    """A row for every training stage of the variants that have several, over the seeds that finished the stage.

    A stage that an earlier variant has shown, because both share its weights, is not repeated.
    """
    rows = []
    shown: set[str] = set()
    for variant, group in outcomes.items():
        names = [name for name in group[0].trial.spec.stages() if name != "cache"]
        for name in names if len(names) > 1 else []:
            done = [stage for outcome in group for stage in _stages(outcome) if stage.name == name and stage.test]
            keys = {stage.key for stage in done}
            if not keys <= shown:
                shown |= keys
                rows.append(
                    StageRow(
                        variant=variant,
                        stage=name,
                        epochs=tuple(stage.epochs for stage in done),
                        best_epoch=tuple(stage.best_epoch for stage in done),
                        valid=_spread(stage.valid for stage in done),
                        test=_spread(opened(stage.test) for stage in done),
                    )
                )
    return rows


def cache_table(outcomes: Mapping[str, tuple[Outcome, ...]]) -> list[CacheRow]:
    """A row for every adaptive variant with a complete seed."""
    rows = []
    for variant, group in outcomes.items():
        final = [outcome.final for outcome in group if outcome.final]
        pairs = [(stage, stage.cache) for stage in final if stage.cache is not None]
        if pairs:
            rows.append(
                CacheRow(
                    variant=variant,
                    settings=tuple((cache.window, cache.weight, cache.flatness) for _, cache in pairs),
                    plain_valid=_spread(cache.plain_valid for _, cache in pairs),
                    valid=_spread(stage.valid for stage, _ in pairs),
                    plain_test=_spread(opened(cache.plain_test) for _, cache in pairs),
                    test=_spread(opened(stage.test) for stage, _ in pairs),
                )
            )
    return rows


def _effect(
    outcomes: Mapping[str, tuple[Outcome, ...]], variant: str, baseline: str, comparison: Comparison | None
) -> Effect | None:
    group = outcomes[variant]
    if comparison is None or is_adaptive(group) or not any(outcome.final for outcome in group):
        return None
    if variant in comparison.effects:
        return comparison.effects[variant]
    # The seeds that did finish are shown beside their number, never judged.
    change = float(nats_on_test(group).mean()) - comparison.baseline_nats
    return Effect(change, None, "no verdict", _in_words(obstacles(outcomes, [variant, baseline])[0], group))


def _in_words(obstacle: Obstacle, group: Sequence[Outcome]) -> str:
    """An obstacle in a row that names its variant already."""
    match obstacle.kind:
        case "not complete":
            return incomplete_seeds(group)
        case "did not train":
            return DID_NOT_TRAIN
        case _:
            return obstacle.in_words()


def _why_no_effect(outcomes: Mapping[str, tuple[Outcome, ...]], variant: str, baseline: str) -> str | None:
    """Why a variant is compared with nothing; None for one that adapts, and for a baseline that could be compared."""
    group, failed = outcomes[variant], obstacles(outcomes, [baseline])
    if variant == baseline:
        return DID_NOT_TRAIN if failed and failed[0].kind == "did not train" else None
    if is_adaptive(group):
        return None
    if not any(outcome.final for outcome in group):
        return "no seed is complete"
    return next((_of_baseline(obstacle, baseline) for obstacle in failed), None)


def _of_baseline(obstacle: Obstacle, baseline: str) -> str:
    return f"{baseline} is not complete" if obstacle.kind == "not complete" else obstacle.in_words()


def _in_perplexity(effect: Effect | None, comparison: Comparison | None) -> tuple[float | None, Interval | None]:
    if effect is None or comparison is None:
        return None, None
    base = comparison.baseline_nats
    change = statistics.perplexity_change(base, effect.nats)
    if effect.interval is None:
        return change, None
    low, high = (statistics.perplexity_change(base, end) for end in (effect.interval.low, effect.interval.high))
    return change, Interval(low, high)


def _published_difference(
    group: Sequence[Outcome], baseline: str, published: Mapping[str, Published]
) -> PublishedDifference | None:
    variant = group[0].trial.variant
    ours, base = published.get(variant), published.get(baseline)
    if variant == baseline or is_adaptive(group) or not (ours and base and ours.test and base.test):
        return None
    recalled = RECALLED in (ours.test.certainty, base.test.certainty)
    theirs, baselines = ours.test.perplexity, base.test.perplexity
    return PublishedDifference(round(theirs - baselines, 6), math.log(theirs / baselines), recalled)


def _spread(scores: Iterable[Score]) -> Spread:
    values = np.array([score.perplexity for score in scores], dtype=np.float64)
    deviation = float(values.std(ddof=1)) if values.size > 1 else None
    return Spread(float(values.mean()), deviation, values.size)


def _stages(outcome: Outcome) -> tuple[StageResult, ...]:
    return outcome.record.stages if outcome.record is not None else ()
