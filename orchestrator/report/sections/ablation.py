"""The ablation table, a row a variant; models without context as references; stages and caches by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from lm.record import Score, opened
from orchestrator.analysis.comparison import nats_on_test, obstacles
from orchestrator.analysis.effects import DECIDED, Comparison, Effect, Interval
from orchestrator.analysis.guessing import guesses, reference_corpus
from orchestrator.analysis.outcomes import Outcomes, incomplete_seeds, is_adaptive
from orchestrator.analysis.statistics import perplexity_change
from orchestrator.report.sections.verdicts import DID_NOT_TRAIN, verdict_in_words, what_would_decide, why_no_verdict
from orchestrator.sweep.published import Number, Published
from orchestrator.words import Markdown, difference, escape, spread

RECALLED = "recalled"
"""The certainty of a published number that nobody has looked up."""
REFERENCE = "reference, not compared"
_REFERENCES = {
    "unigram": "nothing is learnt but how often the training text has each word (add-one smoothed)",
    "uniform": "nothing is learnt: every word of the vocabulary is as probable as any other",
}


@dataclass(frozen=True)
class PublishedDifference:
    """A published test perplexity less the baseline's, also as the ratio's logarithm; `recalled` if either is."""

    perplexity: float
    nats: float
    recalled: bool


@dataclass(frozen=True)
class Spread:
    """Exact perplexities of the complete seeds: mean, sample standard deviation (None for one seed), number."""

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, scores: Iterable[Score]) -> Spread:
        """The spread of scores, one a seed."""
        values = np.array([score.perplexity for score in scores], dtype=np.float64)
        deviation = float(values.std(ddof=1)) if values.size > 1 else None
        return cls(float(values.mean()), deviation, values.size)

    def __str__(self) -> str:
        return spread(self.mean, self.deviation)


@dataclass(frozen=True)
class AblationRow:
    """One variant. `effect` is in nats per token, `change_in_perplexity` the same at the baseline's perplexity.

    An adaptive variant (neural cache) sees the text it is scored on, so it has no effect and no verdict. `incomplete`:
    which seeds are not complete, `reason` why there is no verdict, of the baseline why there is none at all.
    """

    variant: str
    change: str
    adaptive: bool
    is_baseline: bool
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
    published_valid: Number | None
    published_test: Number | None
    published_difference: PublishedDifference | None

    @property
    def difference(self) -> Markdown | None:
        """The difference in test perplexity with its interval; None without one."""
        change = self.change_in_perplexity
        return None if change is None else Markdown(difference(change, self.interval_in_perplexity))

    def verdict(self, margin: float) -> Markdown:
        """The verdict as the table shows it; without one the reason, or what would decide."""
        if self.is_baseline:
            return Markdown(f"baseline ({self.reason})" if self.reason else "baseline")
        if self.adaptive:
            return Markdown("adaptive, not compared")
        if self.effect is None:
            return Markdown(f"no verdict ({escape(self.reason)})")
        verdict = verdict_in_words(self.effect, margin)
        if self.effect.verdict in DECIDED:
            return Markdown(f"**{verdict}**")
        why = self.reason or what_would_decide(self.effect.further)
        return Markdown(f"{verdict} ({why})" if why else verdict)


@dataclass(frozen=True)
class ReferenceRow:
    """A model without context, beside the variants and never compared; its parameters are one probability a word."""

    variant: str
    change: str
    parameters: int
    valid: float | None
    test: float


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


def ablation_table(
    outcomes: Outcomes, comparison: Comparison | None, published: Mapping[str, Published]
) -> list[AblationRow]:
    """One row a variant, in the order of the plan."""
    base = float(nats_on_test(outcomes.of_baseline).mean()) if comparison is not None else math.nan
    base_paper = published.get(outcomes.baseline, Published()).test
    rows = []
    for variant, group in outcomes.items():
        effect = _effect(outcomes, variant, comparison, base)
        ends = effect.interval if effect else None
        final = [outcome.final for outcome in group if outcome.final]
        paper, is_compared = (
            published.get(variant, Published()),
            variant != outcomes.baseline and not is_adaptive(group),
        )
        rows.append(
            AblationRow(
                variant=variant,
                change=group[0].trial.change,
                adaptive=is_adaptive(group),
                is_baseline=variant == outcomes.baseline,
                parameters=group[0].trial.parameters,
                seeds=len(group),
                complete=len(final),
                incomplete=incomplete_seeds(group),
                valid=Spread.of(stage.valid for stage in final) if final else None,
                test=Spread.of(opened(stage.test) for stage in final) if final else None,
                effect=effect,
                reason=_reason(outcomes, variant, effect),
                change_in_perplexity=None if effect is None else perplexity_change(base, effect.nats or 0.0),
                interval_in_perplexity=Interval(*(perplexity_change(base, end) for end in ends)) if ends else None,
                published_valid=paper.valid,
                published_test=paper.test,
                published_difference=_published_difference(paper.test, base_paper) if is_compared else None,
            )
        )
    return rows


def reference_rows(outcomes: Outcomes) -> list[ReferenceRow]:
    """The unigram and the uniform model on the baseline's corpus; none before one of its trials has ended a stage."""
    corpus = reference_corpus(outcomes.of_baseline)
    if corpus is None:
        return []
    valid = {guess.model: guess.perplexity for guess in guesses(corpus, "valid")}
    return [
        ReferenceRow(
            variant=f"{guess.model} model",
            change=_REFERENCES[guess.model],
            parameters=corpus.vocabulary_size if guess.model == "unigram" else 0,
            valid=valid.get(guess.model),
            test=guess.perplexity,
        )
        for guess in guesses(corpus, "test")
    ]


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


def _effect(outcomes: Outcomes, variant: str, comparison: Comparison | None, base: float) -> Effect | None:
    group = outcomes[variant]
    if comparison is None or variant == outcomes.baseline or is_adaptive(group) or not any(o.final for o in group):
        return None
    if variant in comparison.effects:
        return comparison.effects[variant]
    # The seeds that did finish are shown beside their number, never judged.
    nats = float(nats_on_test(group).mean()) - base
    return Effect(nats, obstacle=obstacles(outcomes, [variant, outcomes.baseline])[0])


def _reason(outcomes: Outcomes, variant: str, effect: Effect | None) -> str | None:
    """Why there is no verdict; None if there is one, for an adaptive variant, and for a baseline that trained."""
    group, baseline = outcomes[variant], outcomes.baseline
    of_baseline = next(iter(obstacles(outcomes, [baseline])), None)
    if variant == baseline:
        return DID_NOT_TRAIN if of_baseline and of_baseline.reason == "did not train" else None
    if is_adaptive(group):
        return None
    if effect is None and not any(outcome.final for outcome in group):
        return "no seed is complete"
    obstacle, in_row = of_baseline, {"not complete": f"{baseline} is not complete"}
    if effect is not None:  # the row names its variant already
        obstacle, in_row = effect.obstacle, {"not complete": incomplete_seeds(group), "did not train": DID_NOT_TRAIN}
    return None if obstacle is None else in_row.get(obstacle.reason, why_no_verdict(obstacle))


def _published_difference(paper: Number | None, base: Number | None) -> PublishedDifference | None:
    if paper is None or base is None:
        return None
    difference, ratio = paper.perplexity - base.perplexity, paper.perplexity / base.perplexity
    return PublishedDifference(round(difference, 6), math.log(ratio), RECALLED in (paper.certainty, base.certainty))
