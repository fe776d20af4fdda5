"""Notes on the method: the noise in the intervals, the convention, and in sentences what to know before quoting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from lm.record import opened
from orchestrator.analysis.comparison import equal_variants, untrained
from orchestrator.analysis.effects import WANTED_DEVIATIONS, Comparison, Effect, per_cent
from orchestrator.analysis.noise import LONG_TOPICS
from orchestrator.analysis.outcomes import Curve, Outcomes, averaged_seeds, curve_of, is_adaptive, last_trained
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.report.sections.verdicts import NAMED
from orchestrator.words import Markdown, counted, escape, listed, significant

_LAST_TENTH = "the last tenth of the epochs"
_SEVERAL = 0.1
"""If validation was lowest at the last epoch in more than this share of the trials, the page says so."""


@dataclass(frozen=True)
class MethodNotes:
    """What the page's notes on the method say; sentences are empty if there is nothing to say.

    `deviations` are the least and the most of seeds, in perplexity. `convention`: the share by which the published one
    is off exact perplexity, None without a trial that learnt more than the words' frequencies.
    """

    deviations: str
    cautions: list[Markdown]
    convention: float | None


def method_notes(
    outcomes: Outcomes,
    comparison: Comparison | None,
    rows: Sequence[AblationRow] = (),
    varies: Sequence[str] = (),
    *,
    searched: bool = False,
) -> MethodNotes:
    """The notes on the method; `varies`: what changes with the seed; `searched`: a search found some values."""
    noise = comparison.noise if comparison else None
    deviations = sorted(each.own for each in noise.deviations.values()) if noise else []
    failed = {each.outcome.trial.key for each in untrained(outcomes.all)}
    final = [outcome.final for outcome in outcomes.all if outcome.final and outcome.trial.key not in failed]
    scores = [score for stage in final for score in (stage.valid, opened(stage.test))]
    return MethodNotes(
        deviations=" to ".join(dict.fromkeys(map(_percent, deviations[:1] + deviations[-1:]))),
        cautions=list(_cautions(outcomes, comparison, rows, varies, searched=searched)),
        convention=max((abs(each.perplexity_reference / each.perplexity - 1) for each in scores), default=None),
    )


def _cautions(
    outcomes: Outcomes,
    comparison: Comparison | None,
    rows: Sequence[AblationRow],
    varies: Sequence[str],
    *,
    searched: bool,
) -> Iterator[Markdown]:
    """What to know before quoting a verdict, a sentence each."""
    if comparison is not None and (smallest := smallest_found(comparison)) is not None:
        where = "In half of the comparisons a" if comparison.intervals > 1 else "A"
        sentence = f"{where} true change of {_percent(smallest)} would get a verdict with a probability of 80%."
        undecided = [row for row in rows if row.effect is not None and row.effect.verdict == "not decided"]
        papers = {row.variant: row.published_difference for row in undecided}
        least = {name: min(smallest, _found(effect) or 0.0) for name, effect in comparison.effects.items()}
        if smaller := [name for name, paper in papers.items() if paper and abs(paper.nats) < least[name]]:
            quoted = [f"“{escape(name)}”" for name in smaller]
            named = f"{len(smaller)} variants" if len(smaller) > NAMED else listed(quoted)
            is_smaller = "change of {} is smaller, so it" if len(smaller) == 1 else "changes of {} are smaller, so they"
            sentence += f" The published {is_smaller.format(named)} could hardly be found."
        yield Markdown(sentence)
    text = comparison.noise.text_correlation if comparison and comparison.noise else None
    if text is not None and text > LONG_TOPICS:
        yield Markdown(
            f"**The differences in neighbouring sixteenths of the test text correlate by {text:.2f}**: its topics are "
            "long. The intervals are wider for it, and still too narrow if one topic lasts a sixth of the text (in a "
            "tenth of all tables one misses) or longer."
        )
    specs = [group[0].trial.spec for group in outcomes.values()]
    coded = any(hasattr(getattr(spec.head, "codebook", None), "seed") for spec in specs)
    shared = {
        "one code for each codebook": coded and "head.codebook.seed" not in varies,
        "one stretch of the training text": specs[0].corpus.train_tokens and "corpus.train_start" not in varies,
        "what one search found": searched,
    }
    if same := [what for what, is_shared in shared.items() if is_shared]:
        yield Markdown(f"All seeds share {listed(same)}, so no interval covers what another choice would change.")
    averaged = [count for group in outcomes.values() if not is_adaptive(group) and (count := averaged_seeds(group))]
    if averaged and not any(began for began, _ in averaged):
        yield Markdown("NT-ASGD never began to average before fine-tuning, so what averaging does is not tested here.")
    yield from _still_learning(outcomes)
    for variants in equal_variants(outcomes):
        apart = {outcomes[name][0].trial.key: escape(name) for name in reversed(variants)}  # of one spec the first
        if len(apart) < 2:
            continue
        names = listed([*reversed(apart.values())])
        yield Markdown(f"{names} have the same loss in every seed: the setting in which they differ had no effect.")


def _still_learning(outcomes: Outcomes) -> Iterator[Markdown]:
    """In how many trials the last epoch was the best, if in several, and what the last tenth of the epochs brought."""
    trained = [  # each once: a cache trains nothing, and other trials may read a stage of one that did
        (each.record, each.curve)
        for group in outcomes.values()
        for each in group
        if each.record and each.final and each.trial.reads_from is None and not is_adaptive(group)
    ]
    best_at_the_end = [
        curve_of(curve)
        for record, curve in trained
        if last_trained(record).best_epoch == sum(stage.epochs for stage in record.stages)
    ]
    if len(best_at_the_end) > _SEVERAL * len(trained):
        how_much = ""
        if falls := [_last_fall(curve) for curve in best_at_the_end if len(curve) > 1]:
            at_most = f" in the median, {_in_percent(max(falls))} at most" if len(falls) > 1 else ""
            last = "that epoch" if all(_last_tenth(curve) == 1 for curve in best_at_the_end) else _LAST_TENTH
            how_much = f", and {last} lowered perplexity by {_in_percent(median(falls))}{at_most}"
        yield Markdown(
            f"**In {len(best_at_the_end)} of {counted(len(trained), 'trained trial')}, validation was lowest at the "
            f"last epoch**{how_much}: with more epochs the results may change."
        )


def _last_fall(curve: Curve) -> float:
    """By how many per cent the last tenth of the epochs lowered the best validation perplexity.

    If averaging or fine-tuning began within it, that is part of it.
    """
    losses = curve.valid_nats_per_token
    return -per_cent(float(losses.min() - losses[: -_last_tenth(curve)].min()))


def _last_tenth(curve: Curve) -> int:
    """A tenth of the epochs, at least one."""
    return max(1, len(curve) - round(0.9 * len(curve)))


def _in_percent(fall: float) -> str:
    return f"{significant(fall, 2)}%" if fall >= 0.01 else "less than 0.01%"


def smallest_found(comparison: Comparison) -> float | None:
    """The effect, nats per token, that the middle one of the comparisons would decide with 80% power; None without."""
    sizes = [size for effect in comparison.effects.values() if (size := _found(effect)) is not None]
    return median(sizes) if sizes else None


def _found(effect: Effect) -> float | None:
    """The effect, nats per token, that this comparison would decide with 80% power; None if it gets no verdict."""
    if effect.interval is None or effect.obstacle is not None:
        return None
    half = max(effect.interval.high - effect.nats, effect.nats - effect.interval.low)
    return half + WANTED_DEVIATIONS * math.hypot(effect.seed_error or 0.0, effect.text_error or 0.0)


def _percent(nats: float) -> str:
    return f"{significant(per_cent(nats), 2)}%"
