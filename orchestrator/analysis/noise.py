"""The two noises of a mean loss: another training run (seeds), another test text (blocks of consecutive tokens).

G groups (variants), S seeds, B blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

BLOCKS = 64
"""Blocks of consecutive tokens of a test text: their means show all but its fastest changes."""
PIECES = 16
"""Pieces of a test text that show whether it keeps to its subject for too long."""
LONG_TOPICS = 0.35
"""If neighbouring pieces correlate by more, topics are so long that the waves miss a part of the text's noise."""
WAVES = 6
"""Slow waves along the text that measure its noise: 0.4 times the number of blocks to the power 2/3."""
BORROWED = 1.0
"""What the deviations of others count in a variant's own, in degrees of freedom: as much as one more seed."""
LENDERS = 8
"""This number of others, or more, count in full; fewer in proportion, because among few a noisy one weighs more."""
TEXT_BORROWED = 6.0
"""What the text's noise of other comparisons counts in one's own, in degrees of freedom: as much as its own waves."""
CAUTION = 1.25
"""What the degrees of freedom of two noises together are divided by."""


@dataclass(frozen=True)
class Losses:
    """A variant's losses, nats per token: `nats` has one a seed, `blocks` (S, B) that of each block of the text.

    `blocks` is None where losses by token are not at hand: then the noise of the text is unknown. Variants of one
    `kind`, such as those of one output head, are taken to be about equally noisy.
    """

    seeds: tuple[int, ...]
    nats: Array
    blocks: Array | None = None
    kind: str = ""


@dataclass(frozen=True)
class Deviation:
    """A variant's seed deviation, nats per token: its `own`, the one that intervals use, and what that rests on."""

    own: float
    used: float
    degrees_of_freedom: float


@dataclass(frozen=True)
class Correlation:
    """How far equal seed numbers go together across variants: the estimate, and the lower limit that is used."""

    estimate: float
    used: float


def deviations(groups: Mapping[str, Losses]) -> dict[str, Deviation] | None:
    """The seed deviations of groups of two seeds or more; None where no seed differs from another.

    A variant's variance is averaged with that of the others of its kind, weighted by degrees of freedom (Smyth 2004,
    "Linear models and empirical Bayes methods for assessing differential expression", section 4): `BORROWED` for the
    others, fewer if they are few or have few, beside its own. Smyth estimates the weight, which two seeds cannot; a
    pooled deviation (Dunnett 1955) let one variant of five times the others' noise err in 17% of simulated sweeps of
    nine variants instead of 5%; the others' median (Phipson et al. 2016, "Robust hyperparameter estimation protects
    against hypervariable genes", Annals of Applied Statistics 10) in 13%, where three had 50 times the noise.
    """
    degrees = {name: losses.nats.size - 1 for name, losses in groups.items()}
    squares = {name: float(((each.nats - each.nats.mean()) ** 2).sum()) for name, each in groups.items()}
    largest = max((float(np.abs(losses.nats).max()) for losses in groups.values()), default=0.0)
    # Rounding alone leaves a deviation of some 1e-16 of the value where all seeds agree.
    squares = {name: square if math.sqrt(square) > 1e-12 * largest else 0.0 for name, square in squares.items()}
    if not any(squares.values()):
        return None
    deviation = {}
    for name, square in squares.items():
        others = [other for other in groups if other != name and groups[other].kind == groups[name].kind]
        freedom = sum(degrees[other] for other in others)
        weight = min(1.0, len(others) / LENDERS) * BORROWED * freedom / (BORROWED + freedom)
        borrowed = sum(squares[other] for other in others) / max(1, freedom)
        used = (weight * borrowed + square) / (weight + degrees[name])
        deviation[name] = Deviation(math.sqrt(square / degrees[name]), math.sqrt(used), weight + degrees[name])
    return deviation


def correlation(groups: Mapping[str, Losses], level: float = 0.95) -> Correlation | None:
    """The correlation of losses that share a seed's number, one for all pairs; None with fewer than two of either.

    The intraclass correlation of two-way layouts (Shrout and Fleiss 1979, "Intraclass correlations: uses in assessing
    rater reliability", case 3), over the seeds that all groups have. Its lower limit at `level`, at least 0, is what
    pairing may take off a variance. If deviations differ it is too low, which is safe: in units of their own
    deviations, two groups of three seeds would exceed the limit in 14% instead of 5%.
    """
    seeds = sorted(reduce(set.intersection, (set(group.seeds) for group in groups.values())) if groups else ())
    if len(seeds) < 2 or len(groups) < 2:
        return None
    table_GS = np.stack([group.nats[[group.seeds.index(seed) for seed in seeds]] for group in groups.values()])
    count, degrees = len(groups), len(seeds) - 1
    centred_GS = table_GS - table_GS.mean(axis=1, keepdims=True)
    of_seeds = count * float((centred_GS.mean(axis=0) ** 2).sum()) / degrees
    of_rest = float(((centred_GS - centred_GS.mean(axis=0)) ** 2).sum()) / (degrees * (count - 1))
    # Every group has the same seeds' differences, to rounding: too good to be relied on.
    if of_rest <= 1e-24 * float((table_GS**2).max()):
        return Correlation(1.0, 0.0)
    ratio = of_seeds / of_rest
    least = ratio / float(special.fdtri(degrees, degrees * (count - 1), level))
    return Correlation((ratio - 1) / (ratio + count - 1), max(0.0, (least - 1) / (least + count - 1)))


def correlation_of_contrasts(
    groups: Mapping[str, Losses], judged: Mapping[str, Mapping[str, float]]
) -> Correlation | None:
    """How seeds go together over all groups; used is what surely holds in every contrast of some of them by itself.

    Some groups may go together for a reason of their own, such as a stage that they share, and others not at all.
    """
    every = correlation(groups)
    if every is None or every.used == 0.0:
        return every
    single = [correlation({group: groups[group] for group in weights}) for weights in judged.values()]
    return Correlation(every.estimate, min(every.used, *(each.used if each else 0.0 for each in single)))


def text_variance(blocks_B: Array) -> float:
    """The variance of a mean over a text, from its means in B blocks of consecutive tokens; `WAVES` degrees of freedom.

    Neighbouring tokens and blocks are alike, so that it is larger than of independent ones: it is what the slowest
    cosine waves along the text find, each alike (Lazarus, Lewis, Stock and Watson 2018, "HAR inference: recommendations
    for practice", Journal of Business & Economic Statistics 36: the equal-weighted cosine test). The blocks are of a
    difference. Seeds that differ by token count here and as seed noise too, which errs towards a wider interval.
    """
    # A sum, not a product of matrices, whose last digits differ from machine to machine.
    found_W = (_slow_waves(blocks_B.size) * (blocks_B - blocks_B.mean())).mean(axis=1)
    return 2 * float((found_W**2).mean())


def text_correlation(blocks: Sequence[Array]) -> float:
    """How far neighbouring pieces of a text go together in contrasts, whose means in B blocks are given.

    One number for all, in which contrasts count by their size along the text.

    The autocorrelation at lag one, less the bias of short series (Kendall 1954, "Note on bias in the estimation of
    autocorrelation", Biometrika 41). B is a multiple of `PIECES`.
    """
    pieces = np.stack(blocks).reshape(len(blocks), PIECES, -1).mean(axis=2)
    centred = pieces - pieces.mean(axis=1, keepdims=True)
    raw = float((centred[:, 1:] * centred[:, :-1]).sum() / max(float((centred**2).sum()), 1e-300))
    return raw + (1 + 3 * raw) / PIECES


def missed_by_waves(correlation: float) -> float:
    """By what factor `text_variance` is too small on average, if neighbouring pieces correlate by so much; at least 1.

    Topics are taken to end with the same chance after every block, and to last a third of the text at the most. Below
    `LONG_TOPICS` nothing is corrected: there the waves miss up to a sixth, and a correlation that is not there would be
    corrected for as often as one that is.
    """
    if correlation <= LONG_TOPICS:
        return 1.0
    # How neighbouring pieces of four blocks correlate, if neighbouring blocks do so by R.
    blocks_R = np.linspace(0.0, 0.95, 96)
    pieces_R = blocks_R * (1 + blocks_R + blocks_R**2 + blocks_R**3) ** 2
    pieces_R /= 4 + 6 * blocks_R + 4 * blocks_R**2 + 2 * blocks_R**3
    lags_BB = np.abs(np.subtract.outer(np.arange(BLOCKS), np.arange(BLOCKS)))
    alike_BB = np.interp(correlation, pieces_R, blocks_R) ** lags_BB
    slow_WB = _slow_waves(BLOCKS)
    seen = 2 * np.einsum("wb,bc,wc->w", slow_WB, alike_BB, slow_WB).mean()
    return float(alike_BB.sum() / seen)


@cache
def _slow_waves(blocks: int) -> Array:
    places_B = (np.arange(blocks) + 0.5) / blocks
    return np.cos(math.pi * np.outer(np.arange(1, WAVES + 1), places_B))


def interaction_variance(blocks_SB: Array) -> float:
    """How much of the text's variance of a mean over S seeds is of single seeds, and goes away with more of them.

    It is measured on what neither seed nor block explains (two-way analysis of variance; Montgomery, "Design and
    Analysis of Experiments", 8th edition, section 13.3).
    """
    rest_SB = blocks_SB - blocks_SB.mean(axis=1, keepdims=True) - blocks_SB.mean(axis=0) + blocks_SB.mean()
    seeds = len(blocks_SB)
    return sum(text_variance(rest_B) for rest_B in rest_SB) / ((seeds - 1) * seeds)


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of independent variance estimates, given as (variance, degrees of freedom).

    Satterthwaite 1946, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2.
    """
    total = sum(variance for variance, _ in parts)
    return total**2 / sum(variance**2 / degrees for variance, degrees in parts if variance > 0)


def t_beyond(error: float, degrees: float | Array) -> Array:
    """The value that Student's t exceeds with probability `error`, by `scipy.special`: `scipy.stats` takes a second."""
    return np.asarray(-special.stdtrit(degrees, error))


def mean_interval(values: Sequence[float], error: float) -> tuple[float, tuple[float, float]]:
    """The mean of two values or more, and its interval by Student's t, which misses with probability `error`."""
    mean = fmean(values)
    half = float(t_beyond(error / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean, (mean - half, mean + half)


@dataclass(frozen=True)
class Errors:
    """How often an interval may miss: as one of all that are judged together (`each`), and by itself (`alone`)."""

    each: float
    alone: float

    @classmethod
    def of(cls, level: float, intervals: int) -> Errors:
        """The errors of intervals that all together cover with probability `level` (Šidák 1967)."""
        return cls(1 - level ** (1 / max(1, intervals)), 1 - level)


Estimate = tuple[float | Array, float | Array]
"""A variance that is estimated, and its degrees of freedom."""


def half_width(seeds: Estimate, lone: Estimate, text: Estimate | None, errors: Errors) -> float | Array:
    """Half the width of an interval, from the variances by seeds and by the text.

    One Student's t for both noises, with the degrees of freedom of their sum (Satterthwaite), divided by `CAUTION`: few
    seeds that happen to lie close overstate them, and never fewer than either noise has. `seeds` rests on what groups
    borrow from each other, `lone` on the compared groups alone: no interval is narrower than one of a lone comparison,
    with the text or by its seeds alone, whose few degrees of freedom a text would hide.
    """
    alone = np.maximum(_squared(lone, text, errors.alone), _squared(lone, None, errors.alone))
    return np.sqrt(np.maximum(_squared(seeds, text, errors.each), alone))


def _squared(seeds: Estimate, text: Estimate | None, error: float) -> float | Array:
    variance, degrees = seeds
    if text is not None:
        total = np.maximum(variance + text[0], 1e-300)
        of_sum = total**2 / np.maximum(variance**2 / degrees + text[0] ** 2 / text[1], 1e-300)
        variance, degrees = total, np.maximum(of_sum / CAUTION, np.minimum(degrees, text[1]))
    return t_beyond(error / 2, degrees) ** 2 * variance


def borrowed_text(
    variances: Sequence[float], scales: Sequence[float], kinds: Sequence[str]
) -> list[tuple[float, float]]:
    """The text's variance of each contrast, averaged with the others' of its kind, which count `TEXT_BORROWED` degrees.

    `scales` are what a contrast's weights make of one variant's variance: their squares, added up.
    """
    single = np.array(variances) / np.array(scales)
    used = []
    for own, scale, kind in zip(single, scales, kinds, strict=True):
        alike = single[[each == kind for each in kinds]]
        others = WAVES * (alike.size - 1)
        weight = TEXT_BORROWED * others / (TEXT_BORROWED + others)
        mean_of_others = (alike.sum() - own) / max(1, alike.size - 1)
        used.append((float((weight * mean_of_others + WAVES * own) / (weight + WAVES) * scale), WAVES + weight))
    return used
