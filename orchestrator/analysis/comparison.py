"""Who may be compared with the baseline, and what comes out; how small a difference the seeds can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from lm.record import CorpusFacts, Split, opened, perplexity
from orchestrator.analysis import statistics
from orchestrator.analysis.effects import WANTED, Comparison, Obstacle, Reason, perplexity_change
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.noise import BLOCKS, Array, Losses, missed_by_waves, text_correlation, text_variance
from orchestrator.analysis.outcomes import Group, Outcome, Outcomes, budgets_of, is_adaptive
from orchestrator.analysis.statistics import MARGIN, contrasts

_VALUES, _FEWEST_SWEEPS = 800, 40
_PASSING = {"not complete", "another budget"}
"""What is still to come, and what has an interval too."""


@dataclass(frozen=True)
class Guess:
    """A model without context: `uniform` over the vocabulary, or `unigram`, the words' frequencies."""

    model: Literal["unigram", "uniform"]
    nats: float
    perplexity: float


@dataclass(frozen=True)
class Untrained:
    """A complete trial that is worse than guessing, its perplexity on the split that decides, and the guess."""

    outcome: Outcome
    split: Split
    perplexity: float
    guess: Guess


def guesses(corpus: CorpusFacts, split: Split) -> list[Guess]:
    """The models without context, the better known one first; records made before it was measured lack the unigram."""
    words, unigram = corpus.vocabulary_size, corpus.unigram_nats.get(split)
    uniform = Guess("uniform", math.log(words), float(words))
    return [uniform] if unigram is None else [Guess("unigram", unigram, perplexity(unigram)), uniform]


def untrained(outcomes: Iterable[Outcome]) -> list[Untrained]:
    """The complete trials that are worse than guessing by the words' frequencies.

    Without the unigram model's loss the uniform model's decides, which is higher: fewer trials are caught, and none
    that is better than guessing. Test decides where it has been opened, else validation. A loss that is not a
    number is worse too.
    """
    worse = []
    for outcome in outcomes:
        if outcome.record is not None and (final := outcome.final) is not None:
            split: Split = "valid" if final.test is None else "test"
            nats = (final.test or final.valid).nats_per_token
            guess = guesses(outcome.record.corpus, split)[0]
            if not nats <= guess.nats:
                worse.append(Untrained(outcome, split, perplexity(nats), guess))
    return worse


def reference_corpus(outcomes: Iterable[Outcome]) -> CorpusFacts | None:
    """The corpus of the first record, one with a unigram model's loss if there is any; None without a record."""
    corpora = [outcome.record.corpus for outcome in outcomes if outcome.record is not None and outcome.record.stages]
    return min(corpora, key=lambda corpus: not corpus.unigram_nats, default=None)


def obstacles(outcomes: Mapping[str, Group], variants: Sequence[str]) -> list[Obstacle]:
    """Why the losses of these variants may not be compared, the gravest reason first; empty if they may.

    The one rule, which tables, pictures, further seeds and forecasts ask:

    - *adaptive*: a neural cache sees the text that it is scored on;
    - *not complete*: a seed diverged, failed or is unfinished, and the seeds that survive are not a fair sample;
    - *another test text*, or the same in another number of columns;
    - *worse than guessing* by the words' frequencies is one of its seeds, so its difference tells of a failure;
    - *another budget*: nobody can tell what is the change's and what the budget's.

    One seed is no obstacle here: `statistics.contrasts` finds no noise in it and gives no interval.
    """
    groups = {variant: outcomes.get(variant, ()) for variant in variants}
    texts = {frozenset(texts) for group in groups.values() if (texts := _texts(group))}
    budgets = budgets_of(group for group in groups.values() if group)
    found: dict[Reason, list[str]] = {
        "adaptive": [name for name, group in groups.items() if group and is_adaptive(group)],
        "not complete": [
            name for name, group in groups.items() if not group or not all(trial.final for trial in group)
        ],
        "another test text": [*groups] if len(texts) > 1 else [],
        "worse than guessing": [name for name, group in groups.items() if untrained(group)],
        "another budget": [*groups] if len(budgets) > 1 else [],
    }
    return [Obstacle(reason, tuple(names)) for reason, names in found.items() if names]


def only_waits(outcomes: Mapping[str, Group], variants: Sequence[str]) -> bool:
    """Whether these variants can be compared once their trials are complete: no other obstacle, and none diverged."""
    diverged = any(trial.status == "diverged" for variant in variants for trial in outcomes.get(variant, ()))
    return not diverged and {obstacle.reason for obstacle in obstacles(outcomes, variants)} == {"not complete"}


def _texts(group: Sequence[Outcome]) -> set[tuple[str, int]]:
    """The test texts that the complete seeds are scored on, with the columns they were cut into."""
    records = [outcome.record for outcome in group if outcome.final and outcome.record]
    return {(record.corpus.fingerprint, opened(record.stages[-1].test).columns) for record in records}


def compare_variants(
    outcomes: Outcomes, error: float = LEVEL_OF_ERROR, margin: float = MARGIN, searching: int = 0
) -> Comparison | None:
    """Test losses of every variant that may be compared against the baseline's; None if nothing may be.

    `error` is how often a verdict of them may be wrong, of one look among several its share (`analysis.looks`).

    `obstacles` says who may be compared. A variant of another budget has an interval and no verdict. Comparisons that
    only wait for trials take their share of the error already, and so do `searching` variants, which have none yet
    because a search has still to find their values.
    """
    if obstacles(outcomes, [outcomes.baseline]):
        return None
    why = {name: obstacles(outcomes, [name, outcomes.baseline]) for name in outcomes if name != outcomes.baseline}
    return statistics.compare(
        losses_on_test(outcomes.of_baseline),
        {name: losses_on_test(outcomes[name]) for name, each in why.items() if not any(o.bars_interval for o in each)},
        1 - error,
        margin,
        barred={name: each[0] for name, each in why.items() if each},
        waiting=searching + sum(only_waits(outcomes, [name, outcomes.baseline]) for name in why),
    )


def possibly_best(outcomes: Outcomes, error: float = LEVEL_OF_ERROR, searching: int = 0) -> tuple[str, ...]:
    """The variants that may have the lowest mean test loss, the best among them with probability 1 - `error`.

    Subset selection (Gupta 1965, "On some multiple decision rules", Technometrics 7): each that no other is surely
    below, judged against all others at once. Those that only wait for trials, or are still searched, take their share
    of the error. Only those count that may be compared with the baseline, and of those that are equal in every seed the
    first.
    """
    fair = [name for name in outcomes if not obstacles(outcomes, [name, outcomes.baseline]) and len(outcomes[name]) > 1]
    losses = {name: losses_on_test(outcomes[name]) for name in fair}
    losses = {name: losses[name] for name, first in statistics.first_of_equals(losses).items() if name == first}
    waiting = searching + sum(only_waits(outcomes, [name, outcomes.baseline]) for name in outcomes)
    best = []
    for name in losses:
        others = {other: each for other, each in losses.items() if other != name}
        effects = statistics.compare(losses[name], others, 1 - error, waiting=waiting).effects.values()
        if not any(effect.verdict == "lowers" for effect in effects):
            best.append(name)
    return tuple(best)


def losses_on_test(group: Sequence[Outcome]) -> Losses:
    """The test losses of the complete seeds; without blocks of the text if a seed has no losses by token.

    Variants with one kind of output head are of one kind.
    """
    complete = [outcome for outcome in group if outcome.final]
    blocks = [outcome.losses.blocks for outcome in complete if outcome.losses]
    seeds = tuple(outcome.trial.seed for outcome in complete)
    every = np.stack(blocks) if blocks and len(blocks) == len(seeds) else None
    return Losses(seeds, nats_on_test(group), every, kind=group[0].trial.spec.head.kind)


def nats_on_test(group: Sequence[Outcome]) -> Array:
    """The test losses of the complete seeds, in nats per token."""
    return np.array([opened(outcome.final.test).nats_per_token for outcome in group if outcome.final], dtype=np.float64)


def lower_pairs(baseline: Group, group: Group) -> tuple[int, int]:
    """In how many pairs of equal seeds the group's test loss is lower, and of how many."""
    base, own = (
        {outcome.trial.seed: opened(outcome.final.test).nats_per_token for outcome in each if outcome.final}
        for each in (baseline, group)
    )
    shared = base.keys() & own.keys()
    return sum(own[seed] < base[seed] for seed in shared), len(shared)


def equal_variants(outcomes: Outcomes) -> list[tuple[str, ...]]:
    """Variants that have the very same test loss in every seed: what tells them apart never took effect.

    Those equal to the baseline are left out; the comparison says it of each.
    """
    alike: dict[tuple[float, ...], list[str]] = {}
    for variant, group in outcomes.items():
        losses = tuple(nats_on_test(group).tolist())
        if len(losses) == len(group) and not is_adaptive(group):
            alike.setdefault(losses, []).append(variant)
    return [tuple(names) for names in alike.values() if len(names) > 1 and outcomes.baseline not in names]


@dataclass(frozen=True)
class Detectable:
    """The smallest true difference that gets a verdict with a probability of 80%, from the noise of complete trials.

    `margin` is the smallest margin, a share of perplexity, within which an effect of zero is found with that
    probability. `deviation_nats` is between seeds, `text_error_nats` a difference's standard error by the
    text, None if unknown; `seeds` are those of a variant.
    """

    nats: float
    perplexity: float
    margin: float
    deviation_nats: float
    text_error_nats: float | None
    seeds: int


def detectable(outcomes: Outcomes, error: float = LEVEL_OF_ERROR) -> Detectable | None:
    """From the noise of seeds and text in a sweep's own complete trials; None if no variant's seeds differ.

    Of the variants that may be compared once they are complete, all with the seeds that are planned. The text's noise
    is the mean over their differences to the baseline. `error` is how often a verdict of the page may be wrong.
    """
    baseline = outcomes.baseline
    compared = {
        name: losses_on_test(group)
        for name, group in outcomes.items()
        if group[0].trial.opens_test
        and {obstacle.reason for obstacle in obstacles(outcomes, [name, baseline])} <= _PASSING
    }
    repeated = [losses.nats for losses in compared.values() if losses.nats.size >= 2]
    if not repeated:
        return None
    squares = sum(float(((nats - nats.mean()) ** 2).sum()) for nats in repeated)
    deviation = math.sqrt(squares / sum(nats.size - 1 for nats in repeated))
    texts_B = {name: losses.blocks.mean(axis=0) for name, losses in compared.items() if losses.blocks is not None}
    base_B = texts_B.pop(baseline, None)
    along = [] if base_B is None else [text_B - base_B for text_B in texts_B.values()]
    missed = missed_by_waves(text_correlation(along)) if along else 1.0
    text_error = math.sqrt(missed * fmean(map(text_variance, along))) if along else None
    seeds = min((len(outcomes[name]) for name in compared if name != baseline), default=0)
    planned = len(outcomes.of_baseline), seeds
    smallest = smallest_detectable(deviation, text_error or 0.0, planned, len(compared) - 1, 1 - error)
    if smallest is None:
        return None
    nats, margin = smallest
    nats_of_baseline = losses_on_test(outcomes.of_baseline).nats
    mean = float((nats_of_baseline if nats_of_baseline.size else repeated[0]).mean())
    margin_share = perplexity_change(0.0, margin)
    return Detectable(nats, perplexity_change(mean, nats), margin_share, deviation, text_error, seeds)


def smallest_detectable(
    deviation: float,
    text_error: float,
    seeds: tuple[int, int],
    variants: int,
    level: float = 1 - LEVEL_OF_ERROR,
) -> tuple[float, float] | None:
    """The true difference that a verdict tells from zero with probability `WANTED`, and the margin that holds zero.

    Both in nats per token.

    `deviation` is that of seeds, one for all variants, `text_error` the standard error of a difference by the text,
    both in nats per token; `variants` are compared with a baseline, `seeds` those of the baseline and of each. None
    with fewer than two seeds, seeds that do not differ, or nothing to compare: then no verdict is given.

    Simulated sweeps go through `statistics.contrasts`, always the same ones. A difference is decided if it
    brings the interval's upper end below zero, so that the answer is a quantile of these ends; the margin is one of
    the farther ends.
    """
    if min(seeds) < 2 or variants < 1 or deviation == 0.0:
        return None
    rng = np.random.default_rng(0)
    weights = {str(k): {str(k): 1.0, "": -1.0} for k in range(variants)}
    highs: list[float] = []
    farther: list[float] = []
    for _ in range(max(_FEWEST_SWEEPS, _VALUES // variants)):
        groups = {name: _drawn(rng, deviation, text_error, seeds[name != ""]) for name in ("", *weights)}
        for effect in contrasts(groups, weights, level).effects.values():
            assert effect.interval is not None, "seeds that differ"
            highs.append(effect.interval.high)
            farther.append(max(-effect.interval.low, effect.interval.high))
    return float(np.quantile(highs, WANTED)), float(np.quantile(farther, WANTED))


def _drawn(rng: np.random.Generator, deviation: float, text_error: float, seeds: int) -> Losses:
    """A variant's losses; its share of a difference's variance by the text is half."""
    text_B: Array = text_error * np.sqrt(BLOCKS / 2) * rng.standard_normal(BLOCKS)
    blocks_SB = deviation * rng.standard_normal((seeds, 1)) + text_B
    return Losses(tuple(range(seeds)), blocks_SB.mean(axis=1), blocks_SB)
