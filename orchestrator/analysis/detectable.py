"""How small a difference a number of seeds can show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from orchestrator.analysis.comparison import losses_on_test, obstacles
from orchestrator.analysis.effects import WANTED, perplexity_change
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.noise import BLOCKS, Array, Losses, missed_by_waves, text_correlation, text_variance
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.analysis.statistics import contrasts

_VALUES, _FEWEST_SWEEPS = 800, 40
_PASSING = {"not complete", "another budget"}
"""What is still to come, and what has an interval too."""


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
