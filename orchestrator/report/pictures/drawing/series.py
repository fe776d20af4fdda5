"""Learning curves as numbers: a variant's seeds, their mean and band, the range that a picture shows, its events."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.curve import Curve
from orchestrator.report.pictures.drawing.look import figure_of
from orchestrator.report.pictures.figures import VariantCurves
from orchestrator.words import listed

Across = Literal["epoch", "seconds"]
_OVERFLOW = 600.0
_FINEST = 300
_NEAR = 0.25
"""No variant is cut off for lying so many nats above the best."""


@dataclass(frozen=True)
class Line:
    """How a curve is drawn; `dash` as matplotlib takes it, `width` in points."""

    colour: str
    dash: object
    width: float


@dataclass(frozen=True)
class Band:
    """Perplexities at epochs, and at their mean seconds: of the mean loss over seeds, the lowest and the highest."""

    epoch: NDArray[np.int64]
    seconds: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def across(self, across: Across) -> NDArray[np.float64]:
        """Where its points lie."""
        return np.asarray(getattr(self, across), dtype=np.float64)

    def at(self, epoch: int, across: Across) -> tuple[float, float] | None:
        """Where its line passes an epoch, and how high on a log scale; None beyond its ends."""
        if not self.epoch[0] <= epoch <= self.epoch[-1]:
            return None
        height = math.exp(np.interp(epoch, self.epoch, np.log(self.mean)))
        return float(np.interp(epoch, self.epoch, self.across(across))), height


@dataclass(frozen=True)
class Window:
    """The range of perplexity shown, how many points lie above it, and the highest of them."""

    low: float
    high: float
    cut: int
    highest: float


def drawable(variants: Sequence[VariantCurves]) -> list[VariantCurves]:
    """The variants without points that are no number, and without seeds and variants that have no other points.

    ValueError where nothing is left.
    """
    kept = []
    for variant in variants:
        numbers = variant.seed_numbers or (None,) * len(variant.seeds)
        seeds = [
            (number, finite)
            for number, seed in zip(numbers, variant.seeds, strict=True)
            if (finite := seed.at(~np.isnan(seed.valid_nats_per_token)))
        ]
        if seeds:
            names = tuple(number for number, _ in seeds if number is not None)
            kept.append(dataclasses.replace(variant, seeds=tuple(p for _, p in seeds), seed_numbers=names))
    if not kept:
        raise ValueError(f"a picture needs a variant with a loss that is a number, got {[v.name for v in variants]}")
    return kept


def points(seed: Curve, across: Across) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the evaluations lie, and their perplexities; one that overflows is drawn as high as can be."""
    places = np.asarray(getattr(seed, across), dtype=np.float64)
    return places, np.exp(np.minimum(seed.valid_nats_per_token, _OVERFLOW))


def band(seeds: Sequence[Curve]) -> Band | None:
    """Mean and range over seeds at the epochs that all of them have: an early end must not bend the mean.

    None where there is no such epoch. Seconds are the mean over seeds too, so that a seed that ran on a slower machine
    moves the line aside and not up. More than 300 epochs are thinned out: a panel is that many points wide.
    """
    epochs = reduce(np.intersect1d, (seed.epoch for seed in seeds))
    if not len(epochs):
        return None
    if len(epochs) > _FINEST:
        epochs = epochs[np.linspace(0, len(epochs) - 1, _FINEST).round().astype(int)]
    shared = [seed.at(np.isin(seed.epoch, epochs)) for seed in seeds]
    nats = np.minimum([seed.valid_nats_per_token for seed in shared], _OVERFLOW)
    seconds = np.mean([seed.seconds for seed in shared], axis=0)
    return Band(epochs, seconds, np.exp(nats.mean(axis=0)), np.exp(nats.min(axis=0)), np.exp(nats.max(axis=0)))


def window(variants: Sequence[VariantCurves], published: float | None) -> Window:
    """The vertical range: what follows the first quarter of the epochs, and every lowest point, up to a ratio of 8.

    The first epochs of a language model lie in the thousands, and a ruined variant far above the others: both would
    flatten all that a reader wants to see. The ratio is larger where more than half of the variants lay above it.
    """
    early = max(seed.epoch[-1] for variant in variants for seed in variant.seeds) / 4
    values = np.concatenate([seed.valid_nats_per_token for variant in variants for seed in variant.seeds])
    low = min(float(values.min()), _OVERFLOW, *([math.log(published)] if published else []))
    excess = {variant.name: math.log(lowest_perplexity(variant)) - low for variant in variants}
    half = float(np.quantile(list(excess.values()), 0.5, method="lower"))
    far = max(_NEAR, min(3 * np.quantile(list(excess.values()), 0.75), 10 * np.median(list(excess.values()))))
    settled = [low]
    for variant in variants:
        for seed in variant.seeds if excess[variant.name] <= far else ():
            nats = seed.valid_nats_per_token
            settled += [float(nats[seed.epoch > early].max(initial=low)), float(nats.min())]
    high = max(min(max(settled), low + max(math.log(8.0), half)), math.log(published) if published else low)
    margin = max(0.04 * (high - low), 0.005)
    low, high = low - margin, high + margin
    highest = float(values.max())
    return Window(math.exp(low), math.exp(high), int((values > high).sum()), _perplexity(highest))


def is_above(variant: VariantCurves, shown: Window) -> bool:
    """Whether no point of the variant can be seen."""
    return all((seed.valid_nats_per_token > math.log(shown.high)).all() for seed in variant.seeds)


def cut_sentence(shown: Window, unseen: Sequence[str]) -> str | None:
    """How many points lie above the picture, and the variants that are not seen at all."""
    if shown.cut == 0:
        return None
    lie = "1 point lies" if shown.cut == 1 else f"{shown.cut} points lie"
    names = f"; among them all of {listed(unseen)}" if unseen else ""
    return f"{lie} above the top of the picture, {figure_of(shown.high)} (highest {figure_of(shown.highest)}){names}."


def lowest_perplexity(variant: VariantCurves) -> float:
    """The lowest point of each seed, mean over seeds."""
    return float(np.mean([points(seed, "epoch")[1].min() for seed in variant.seeds]))


def events(seed: Curve, turns: Collection[str]) -> Iterator[tuple[int, str]]:
    """The places where averaging began in training (circle), and of every turn (plus) and fine-tuning (diamond)."""
    fine_tuning = np.char.startswith(seed.stage, "finetune")
    if (averaging := np.flatnonzero(seed.averaging)).size and not fine_tuning[averaging[0]]:
        yield int(averaging[0]), "o"
    for place in np.flatnonzero(seed.stage[1:] != seed.stage[:-1]) + 1:
        if fine_tuning[place] or seed.stage[place] in turns:
            yield int(place), "D" if fine_tuning[place] else "P"


def _perplexity(nats: float) -> float:
    return math.inf if nats >= 700.0 else math.exp(nats)
