"""Learning curves as numbers: the mean of a variant's seeds, the range that a figure shows, events in training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.outcomes import Curve, Outcomes, curve_of, is_adaptive
from orchestrator.report.pictures.style import Limits

_MOST_NATS = 600.0
"""A higher loss is drawn at this height: its exp would overflow."""


@dataclass(frozen=True)
class VariantCurves:
    """A variant's learning curves by seed.

    Unless `complete`, seeds are missing or ended early, and the figures give no number for the variant.
    """

    name: str
    baseline: bool
    complete: bool
    seeds: Mapping[int, Curve]

    @property
    def lowest(self) -> float:
        """The lowest perplexity of each seed, mean over seeds."""
        return float(np.mean([perplexities(seed).min() for seed in self.seeds.values()]))


@dataclass(frozen=True)
class Band:
    """Perplexities by epoch: of the mean loss over seeds, of the lowest and of the highest; seconds are the mean."""

    epoch: NDArray[np.int64]
    seconds: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def variant_curves(outcomes: Outcomes) -> list[VariantCurves]:
    """Every variant with a loss that is a number, in the order of the plan; a cache trains nothing, and has none."""
    variants = []
    for variant, group in outcomes.items():
        curves = {each.trial.seed: with_numbers(curve_of(each.curve)) for each in group if each.curve}
        seeds = {seed: curve for seed, curve in curves.items() if len(curve)}
        if seeds and not is_adaptive(group):
            complete = all(outcome.final for outcome in group)
            variants.append(VariantCurves(variant, variant == outcomes.baseline, complete, seeds))
    return variants


def with_numbers(seed: Curve) -> Curve:
    """The evaluations whose loss is a number."""
    return seed.at(~np.isnan(seed.valid_nats_per_token))


def iterate(seed: Curve) -> Curve:
    """The curve of the last iterates beside their averages; empty where there are none."""
    return with_numbers(dataclasses.replace(seed, valid_nats_per_token=seed.raw_valid_nats_per_token))


def band(seeds: Iterable[Curve]) -> Band:
    """Mean and range over seeds at epochs that all have (else the first seed's): an early end must not bend them."""
    seeds = list(seeds)
    epochs = reduce(np.intersect1d, (seed.epoch for seed in seeds))
    if not len(epochs):
        return band(seeds[:1])
    shared = [seed.at(np.isin(seed.epoch, epochs)) for seed in seeds]
    nats = np.minimum([seed.valid_nats_per_token for seed in shared], _MOST_NATS)
    seconds = np.mean([seed.seconds for seed in shared], axis=0)
    return Band(epochs, seconds, np.exp(nats.mean(axis=0)), np.exp(nats.min(axis=0)), np.exp(nats.max(axis=0)))


def perplexities(seed: Curve) -> NDArray[np.float64]:
    """The validation perplexity of every evaluation; one that overflows is as high as can be drawn."""
    return np.exp(np.minimum(seed.valid_nats_per_token, _MOST_NATS))


def last_epoch(variants: Sequence[VariantCurves]) -> int:
    """The last epoch of any seed."""
    return max(int(seed.epoch[-1]) for variant in variants for seed in variant.seeds.values())


def visible_range(variants: Sequence[VariantCurves], published: float | None) -> Limits:
    """The perplexities shown: what follows the first quarter of the epochs, and every lowest point, up to a ratio of 2.

    More if over half of the variants lay above. First epochs and ruined variants would flatten what a reader wants to
    see.
    """
    early = last_epoch(variants) / 4
    seeds = [(seed.epoch, seed.valid_nats_per_token) for variant in variants for seed in variant.seeds.values()]
    line = [math.log(published)] if published else []
    low = min([_MOST_NATS, *line, *(float(nats.min()) for _, nats in seeds)])
    settled = max(float(max(nats.min(), nats[epoch > early].max(initial=low))) for epoch, nats in seeds)
    median = float(np.quantile([math.log(variant.lowest) - low for variant in variants], 0.5, method="lower"))
    high = max([min(settled, low + max(math.log(2.0), median)), *line])
    margin = max(0.04 * (high - low), 0.005)
    return math.exp(low - margin), math.exp(high + margin)


def events(seed: Curve) -> Iterator[tuple[int, str]]:
    """At which epoch averaging began in training (circle), and fine-tuning (diamond)."""
    fine_tuning = np.char.startswith(seed.stage, "finetune")
    for places, shape in ((seed.averaging & ~fine_tuning, "o"), (fine_tuning, "D")):
        if places.any():
            yield int(seed.epoch[places.argmax()]), shape
