"""Learning curves as numbers: the mean of a variant's seeds, the range that a figure shows, events in training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lm.spec import TrainSpec
from orchestrator.analysis.curve import Curve, curve_of
from orchestrator.analysis.outcomes import Outcomes, is_adaptive
from orchestrator.report.pictures.figures import VariantCurves
from orchestrator.words import listed, significant

Limits = tuple[float, float]
_MOST_NATS = 600.0
"""A higher loss is drawn at this height: its exp would overflow."""
_ALWAYS_VISIBLE = 0.25
"""A variant this close to the best, in nats, always lies within the range."""


@dataclass(frozen=True)
class Band:
    """Perplexities by epoch: of the mean loss over seeds, of the lowest and of the highest; seconds are the mean."""

    epoch: NDArray[np.int64]
    seconds: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def at(self, epoch: int) -> tuple[float, float] | None:
        """Seconds and perplexity after an epoch, None if the line has no such point."""
        places = np.flatnonzero(self.epoch == epoch)
        return (float(self.seconds[places[0]]), float(self.mean[places[0]])) if len(places) else None


def variant_curves(outcomes: Outcomes) -> list[VariantCurves]:
    """Every variant with a learning curve, in the order of the plan; a cache trains nothing, and has none."""
    return [
        VariantCurves(
            name=variant,
            baseline=variant == outcomes.baseline,
            complete=all(outcome.final for outcome in group),
            seeds=tuple(curve_of(outcome.curve) for outcome in trained),
            seed_numbers=tuple(outcome.trial.seed for outcome in trained),
            turns=_turns(group[0].trial.spec),
        )
        for variant, group in outcomes.items()
        if (trained := [outcome for outcome in group if outcome.curve]) and not is_adaptive(group)
    ]


def _turns(spec: TrainSpec) -> frozenset[str]:
    """The stages whose values are not those of the stage before: many legs of a schedule that was found go on alike."""
    values = {stage: spec.during(stage).model_copy(update={"epochs": 1}) for stage in spec.stages()}
    return frozenset(stage for before, stage in pairwise(values) if values[stage] != values[before])


def band(seeds: Sequence[Curve]) -> Band:
    """Mean and range over seeds at epochs that all have (else the first seed's): an early end must not bend them."""
    epochs = reduce(np.intersect1d, (seed.epoch for seed in seeds))
    if not len(epochs):
        return band(seeds[:1])
    shared = [seed.at(np.isin(seed.epoch, epochs)) for seed in seeds]
    nats = np.minimum([seed.valid_nats_per_token for seed in shared], _MOST_NATS)
    seconds = np.mean([seed.seconds for seed in shared], axis=0)
    return Band(epochs, seconds, np.exp(nats.mean(axis=0)), np.exp(nats.min(axis=0)), np.exp(nats.max(axis=0)))


def without_nan(variants: Sequence[VariantCurves]) -> list[VariantCurves]:
    """The variants without evaluations whose loss is nan, without seeds and variants that have no other evaluation."""
    kept = []
    for variant in variants:
        seeds = {
            number: curve
            for number, seed in zip(variant.seed_numbers, variant.seeds, strict=True)
            if len(curve := seed.at(~np.isnan(seed.valid_nats_per_token)))
        }
        if seeds:
            kept.append(dataclasses.replace(variant, seeds=tuple(seeds.values()), seed_numbers=tuple(seeds)))
    return kept


def of_iterates(seeds: Sequence[Curve]) -> list[Curve]:
    """The curves of the last iterates beside their averages, of the seeds that have them."""
    iterates = [
        dataclasses.replace(seed, valid_nats_per_token=raw).at(~np.isnan(raw))
        for seed in seeds
        if (raw := seed.raw_valid_nats_per_token) is not None
    ]
    return [curve for curve in iterates if len(curve)]


def perplexities(seed: Curve) -> NDArray[np.float64]:
    """The validation perplexity of every evaluation; one that overflows is as high as can be drawn."""
    return np.exp(np.minimum(seed.valid_nats_per_token, _MOST_NATS))


def lowest_perplexity(variant: VariantCurves) -> float:
    """The lowest point of each seed, mean over seeds."""
    return float(np.mean([perplexities(seed).min() for seed in variant.seeds]))


def visible_range(variants: Sequence[VariantCurves], published: float | None) -> Limits:
    """The perplexities shown: what follows the first quarter of the epochs, and every lowest point, up to a ratio of 8.

    More if over half of the variants lay above. First epochs and ruined variants would flatten what a reader wants to
    see. ValueError without a variant.
    """
    if not variants:
        raise ValueError("expected a variant with a loss that is a number, got none")
    early = max(seed.epoch[-1] for variant in variants for seed in variant.seeds) / 4
    lowest = min(float(seed.valid_nats_per_token.min()) for variant in variants for seed in variant.seeds)
    line = [math.log(published)] if published else []
    low = min([lowest, _MOST_NATS, *line])
    excess = [math.log(lowest_perplexity(variant)) - low for variant in variants]
    far = max(_ALWAYS_VISIBLE, min(3 * np.quantile(excess, 0.75), 10 * np.median(excess)))
    settled = [low]
    for variant, above in zip(variants, excess, strict=True):
        for nats, epoch in ((seed.valid_nats_per_token, seed.epoch) for seed in variant.seeds if above <= far):
            settled += [float(nats[epoch > early].max(initial=low)), float(nats.min())]
    high = min(max(settled), low + max(math.log(8.0), float(np.quantile(excess, 0.5, method="lower"))))
    high = max([high, *line])
    margin = max(0.04 * (high - low), 0.005)
    return math.exp(low - margin), math.exp(high + margin)


def is_above(variant: VariantCurves, high: float) -> bool:
    """Whether no evaluation of the variant is as low as this perplexity."""
    return all((seed.valid_nats_per_token > math.log(high)).all() for seed in variant.seeds)


def note_above(variants: Sequence[VariantCurves], high: float) -> str | None:
    """How many evaluations lie above this perplexity, and the variants that lie above it as a whole; None if none."""
    nats = np.concatenate([seed.valid_nats_per_token for variant in variants for seed in variant.seeds])
    count = int((nats > math.log(high)).sum())
    if count == 0:
        return None
    highest = float(nats.max())
    unseen = [variant.name for variant in variants if is_above(variant, high)]
    return (
        f"{count} {'point lies' if count == 1 else 'points lie'} above the top of the picture, {significant(high)} "
        f"(highest {significant(math.exp(highest) if highest < 700 else math.inf)})"
        f"{f'; among them all of {listed(unseen)}' if unseen else ''}."
    )


def events(seed: Curve, turns: Collection[str]) -> Iterator[tuple[int, str]]:
    """Where averaging began in training (circle), other values (plus, `turns`) and fine-tuning (diamond)."""
    fine_tuning = np.char.startswith(seed.stage, "finetune")
    if (averaging := np.flatnonzero(seed.averaging)).size and not fine_tuning[averaging[0]]:
        yield int(averaging[0]), "o"
    for place in np.flatnonzero(seed.stage[1:] != seed.stage[:-1]) + 1:
        if fine_tuning[place] or seed.stage[place] in turns:
            yield int(place), "D" if fine_tuning[place] else "P"
