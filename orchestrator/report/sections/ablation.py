"""The ablation table, a row a variant; models without context as references."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lm.record import Score, opened
from orchestrator.analysis.comparison import guesses, lower_pairs, nats_on_test, obstacles, reference_corpus
from orchestrator.analysis.effects import DECIDED, Comparison, Effect, Interval, perplexity_change
from orchestrator.analysis.noise import t_beyond
from orchestrator.analysis.outcomes import Group, Outcomes, averaged_seeds, incomplete_seeds, is_adaptive
from orchestrator.report.sections.verdicts import (
    WORSE_THAN_GUESSING,
    at_most,
    in_percent,
    verdict_in_words,
    what_would_decide,
    why_no_verdict,
)
from orchestrator.sweep.designs import Ablation
from orchestrator.sweep.published import Number, Published
from orchestrator.words import Markdown, difference, escape, spread

RECALLED = "recalled"
"""The certainty of a published number that nobody has looked up."""
REFERENCE = "reference, not compared"
NO_DESIGN = Ablation("none", ())
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
        if np.ptp(values) == 0:  # else their mean's rounding would make a deviation
            return cls(float(values[0]), 0.0 if values.size > 1 else None, values.size)
        with np.errstate(over="ignore"):  # the deviation of perplexities beyond 1e154 is infinite
            return cls(float(values.mean()), float(values.std(ddof=1)), values.size)

    @property
    def of_mean(self) -> Interval | None:
        """The 95% interval of the mean over seeds, by Student's t; None if no two seeds differ."""
        return self._interval(1 / self.n)

    @property
    def one_more_seed(self) -> Interval | None:
        """Where one more seed would lie with a probability of 95%, as a published number does, mostly of one run."""
        return self._interval(1 + 1 / self.n)

    def _interval(self, variances: float) -> Interval | None:
        if not self.deviation:
            return None
        half = float(t_beyond(0.025, self.n - 1)) * self.deviation * math.sqrt(variances)
        return Interval(self.mean - half, self.mean + half)

    def __str__(self) -> str:
        return spread(self.mean, self.deviation)


@dataclass(frozen=True)
class AblationRow:
    """One variant. `effect` is in nats per token, `change_in_perplexity` the same at the baseline's perplexity.

    An adaptive variant (neural cache) sees the text it is scored on, so it has no effect and no verdict.
    `incomplete` says which seeds are not complete, empty if all are; `reason` why there is no verdict, of the baseline
    why there is none at all. `removed` are the components that it takes away. `pairs`: in how many pairs of seeds it is
    lower than the baseline, `3 of 3`. `trigger` says how often averaging began, if it did not begin as often
    as in the baseline.
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
    removed: tuple[str, ...]
    pairs: str | None
    trigger: str
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

    @property
    def percent(self) -> Markdown | None:
        """The change of test perplexity with its interval, in per cent; None without one."""
        effect = self.effect
        return None if effect is None else Markdown(in_percent(effect.nats, effect.interval))

    @property
    def would_decide(self) -> str | None:
        """What would decide an effect that is not decided."""
        return None if self.effect is None else what_would_decide(self.effect.further) or None

    def verdict(self, margin: float) -> Markdown:
        """The verdict as the table shows it; without one the reason, or how large the effect can be."""
        if self.is_baseline:
            return Markdown(f"baseline ({self.reason})" if self.reason else "baseline")
        if self.adaptive:
            return Markdown("adaptive, not compared")
        if self.effect is None:
            return Markdown(f"no verdict ({escape(self.reason)})")
        confounded = f" ({self.trigger})" if self.trigger else ""
        if self.effect.verdict in DECIDED:
            return Markdown(f"**{verdict_in_words(self.effect, margin)}**{confounded}")
        if self.effect.verdict == "no verdict":
            return Markdown(f"no verdict ({escape(self.reason)}){confounded}")
        if self.effect.decided_on_this_text:
            direction = "raises" if self.effect.nats > 0 else "lowers"
            return Markdown(f"{direction} it on this test text; not decided for others{confounded}")
        return Markdown(f"not decided: {at_most([self.effect])}{confounded}")


@dataclass(frozen=True)
class ReferenceRow:
    """A model without context, beside the variants and never compared; its parameters are one probability a word."""

    variant: str
    change: str
    parameters: int
    valid: float | None
    test: float


def ablation_table(
    outcomes: Outcomes,
    comparison: Comparison | None,
    published: Mapping[str, Published],
    ablation: Ablation = NO_DESIGN,
) -> list[AblationRow]:
    """One row a variant, in the order of the plan; the `ablation` says which components a variant takes away."""
    removed = {ablation.variant(away): away for away in ablation.removals}
    base = float(nats_on_test(outcomes.of_baseline).mean()) if comparison is not None else math.nan
    base_paper = published.get(outcomes.baseline, Published())
    rows = []
    for variant, group in outcomes.items():
        effect = _effect(outcomes, variant, comparison, base)
        ends = effect.interval if effect else None
        final = [outcome.final for outcome in group if outcome.final]
        paper = published.get(variant, Published())
        is_compared = variant != outcomes.baseline and not is_adaptive(group)
        lower, pairs = lower_pairs(outcomes.of_baseline, group)
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
                removed=tuple(factor for factor in ablation.factors if factor in removed.get(variant, ())),
                pairs=f"{lower} of {pairs}" if is_compared and pairs and not _same_or_elsewhere(effect) else None,
                trigger=_trigger(outcomes.of_baseline, group),
                change_in_perplexity=None if effect is None else perplexity_change(base, effect.nats),
                interval_in_perplexity=Interval(*(perplexity_change(base, end) for end in ends)) if ends else None,
                published_valid=paper.valid,
                published_test=paper.test,
                published_difference=_published_difference(paper, base_paper) if is_compared else None,
            )
        )
    return rows


def distinct_rows(rows: Sequence[AblationRow], equal: Iterable[Sequence[str]]) -> list[AblationRow]:
    """The rows, with those of `equal` variants shown once: the first, whose name lists all of them.

    One of another verdict or another size stays apart: who reads the first row would not learn of it.
    """
    by_name = {row.variant: row for row in rows}
    for names in equal:
        first, *others = [by_name[name] for name in names]
        same = [row.variant for row in others if _as_shown(row) == _as_shown(first)]
        by_name[first.variant] = replace(first, variant=" = ".join([first.variant, *same]))
        by_name = {name: row for name, row in by_name.items() if name not in same}
    return [*by_name.values()]


def _as_shown(row: AblationRow) -> tuple[object, ...]:
    return row.valid, row.test, row.parameters, row.reason, row.effect and row.effect.verdict


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


def _same_or_elsewhere(effect: Effect | None) -> bool:
    """Whether no pair of seeds says which is lower: they are equal, or scored on other texts."""
    obstacle = None if effect is None else effect.obstacle
    return obstacle is not None and obstacle.reason in ("equal in every seed", "another test text")


def _trigger(baseline: Group, group: Group) -> str:
    """How often averaging began before fine-tuning, if the shares of the seeds differ from the baseline's.

    It is a threshold on a noisy loss: if it is passed in one and not in the other, their difference is that of
    averaging too.
    """
    of_group, of_baseline = averaged_seeds(group), averaged_seeds(baseline)
    if of_group is None or of_baseline is None:
        return ""
    (began, of), (base_began, base_of) = of_group, of_baseline
    if began * base_of == base_began * of:
        return ""
    when = " before fine-tuning" if any(outcome.trial.spec.finetune for outcome in (*group, *baseline)) else ""
    return f"averaging began{when} in {began} of {of} seeds, of the baseline in {base_began} of {base_of}"


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
        return WORSE_THAN_GUESSING if of_baseline and of_baseline.reason == WORSE_THAN_GUESSING else None
    if is_adaptive(group):
        return None
    if effect is None and not any(outcome.final for outcome in group):
        return incomplete_seeds(group)
    obstacle, in_row = of_baseline, {"not complete": f"{baseline} is not complete"}
    if effect is not None:  # the row names its variant already
        obstacle = effect.obstacle
        in_row = {"not complete": incomplete_seeds(group), WORSE_THAN_GUESSING: WORSE_THAN_GUESSING}
    return None if obstacle is None else in_row.get(obstacle.reason, why_no_verdict(obstacle))


def _published_difference(of_paper: Published, of_base: Published) -> PublishedDifference | None:
    """None without two numbers on test, or if both are the same one, because its recipe can be read in two ways."""
    paper, base = of_paper.test, of_base.test
    if paper is None or base is None or paper is base:
        return None
    difference, ratio = paper.perplexity - base.perplexity, paper.perplexity / base.perplexity
    return PublishedDifference(round(difference, 6), math.log(ratio), RECALLED in (paper.certainty, base.certainty))
