"""What a comparison says: effects with intervals and verdicts, why there is none, how many more seeds would decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from orchestrator.analysis.noise import Correlation, Deviation, Errors, half_width

Verdict = Literal["raises", "lowers", "equivalent", "not decided", "no verdict"]
DECIDED: tuple[Verdict, ...] = ("raises", "lowers", "equivalent")

Reason = Literal[
    "adaptive",
    "not complete",
    "another test text",
    "worse than guessing",
    "another budget",
    "one seed",
    "seeds do not differ",
    "equal in every seed",
]

WANTED = 0.8
"""The power that is asked for: the usual one (Cohen 1988, "Statistical Power Analysis", section 2.4)."""
WANTED_DEVIATIONS = 0.8416
"""How many standard errors an effect must lie beyond the half width of its interval to have that power."""
MOST_FURTHER = 100
"""More seeds than this are not counted."""


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Obstacle:
    """Why there is no verdict, and which variants are the reason; none are named if it is all that are compared."""

    reason: Reason
    variants: tuple[str, ...] = ()

    @property
    def bars_interval(self) -> bool:
        """Whether there is no interval either: a variant of another budget has one."""
        return self.reason != "another budget"


@dataclass(frozen=True)
class Further:
    """How many more seeds, of each group alike, would decide; None for more than `MOST_FURTHER`.

    No number would where another test text could turn the difference: the text is `short` where that is so at the
    lower limit of its noise too, `perhaps short` where it is so at the noise as it is estimated. Unless
    `seeds_suffice`, these seeds would not decide it on the longest text either.
    """

    seeds: int | None
    text: Literal["long enough", "perhaps short", "short"]
    seeds_suffice: bool = True


@dataclass(frozen=True)
class Effect:
    """A difference of mean losses in nats per token with its verdict: a variant's less the baseline's, or a contrast.

    `nats` is nan if a variant of the contrast is missing. With an `obstacle` there is no verdict. `interval` is about
    any text of this kind; `decided_on_this_text` is whether one without the text's noise would exclude zero, at a level
    shared in the same way. The standard errors are those of seeds, from averaged deviations also where a lone
    comparison decides the interval, and of the text, None without losses by token. `further` is what would decide an
    effect that is not decided.
    """

    nats: float
    interval: Interval | None = None
    verdict: Verdict = "no verdict"
    obstacle: Obstacle | None = None
    decided_on_this_text: bool = False
    seed_error: float | None = None
    text_error: float | None = None
    further: Further | None = None


@dataclass(frozen=True)
class Noise:
    """What intervals rest on: the groups' seed deviations, and how seeds go together.

    `text_correlation` is that of neighbouring pieces of the text; None if the text's noise is not counted.
    """

    deviations: Mapping[str, Deviation]
    correlation: Correlation | None
    text_correlation: float | None


@dataclass(frozen=True)
class Comparison:
    """Effects by name, the noise behind their intervals (None without any), and how many intervals there are.

    `waiting` further comparisons only wait for trials. `level` is the probability that all cover together; a verdict
    counts what is within `margin`, a share of perplexity, as none.
    """

    effects: dict[str, Effect]
    noise: Noise | None
    intervals: int
    waiting: int
    level: float
    margin: float

    @property
    def family_size(self) -> int:
        """Over how many comparisons the intervals are simultaneous."""
        return self.intervals + self.waiting


def perplexity_change(baseline_nats: float, nats: float) -> float:
    """The difference in perplexity that a difference in loss makes at the baseline's loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(baseline_nats) * np.expm1(nats))


def perplexity_ratio(nats: float) -> float:
    """The ratio of perplexities, variant to baseline, of a difference in loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


def per_cent(nats: float) -> float:
    """A difference in loss as a change of perplexity in per cent: −100 at the least, inf where it overflows."""
    return 100 * perplexity_change(0.0, nats)


def further_seeds(
    nats: float,
    groups: Sequence[tuple[float, Deviation, int]],
    text: tuple[float, float, float],
    errors: Errors,
    margin_nats: float,
) -> Further:
    """The fewest further seeds after which a verdict comes with probability `WANTED`, were the estimates the truth.

    `groups` are the weight of each in the difference, its deviation and its number of seeds; `text` the text's standard
    error, its degrees of freedom, and the share of its variance that belongs to single seeds; `errors` what the
    comparison may err.
    A verdict is an interval that excludes zero or lies within the margin. The difference is taken as normal, and the
    seeds' noise as independent, so that pairing, where there is any, needs fewer; where one variant is many times as
    noisy as the other, they decide less often. The noise of the text is not known well: its lower limit is at 95%.
    """
    more_M = np.append(np.arange(0.0, MOST_FURTHER + 1), 1e9)
    parts = [
        (weight**2 * known.used**2 / (n + more_M), known.degrees_of_freedom + more_M) for weight, known, n in groups
    ]
    seeds_M = sum(variance_M for variance_M, _ in parts)
    degrees_M = seeds_M**2 / sum(variance_M**2 / degrees_M for variance_M, degrees_M in parts)
    text_error, text_degrees, share = text
    fewest = min(n for _, _, n in groups)

    def enough_M(shared: float, single: float) -> NDArray[np.bool_]:
        """Which numbers of seeds are enough, with these parts of the text's variance: of all seeds, of single ones."""
        text_M = text_error**2 * (shared + single * fewest / (fewest + more_M))
        spread_M = np.sqrt(seeds_M + text_M)
        alone_M = seeds_M, fewest + more_M - 1
        text_part = (text_M, text_degrees) if text_error else None
        half_width_M = half_width((seeds_M, degrees_M), alone_M, text_part, errors)
        room_M = np.maximum(0.0, margin_nats - half_width_M)
        outside_M = special.ndtr((nats - half_width_M) / spread_M) + special.ndtr((-nats - half_width_M) / spread_M)
        inside_M = special.ndtr((room_M - nats) / spread_M) - special.ndtr((-room_M - nats) / spread_M)
        return np.asarray(outside_M + inside_M >= WANTED)

    lower_limit = text_degrees / (2 * float(special.gammaincinv(text_degrees / 2, 0.95)))
    seeds_suffice = bool(enough_M(0.0, 0.0)[0])
    if not enough_M(max(0.0, lower_limit - share), share)[-1]:
        return Further(None, "short", seeds_suffice)
    are_enough_M = enough_M(1.0 - share, share)
    if not are_enough_M[-1]:
        return Further(None, "perhaps short", seeds_suffice)
    first = next((int(more) for more in more_M[1:-1][are_enough_M[1:-1]]), None)
    return Further(first, "long enough", seeds_suffice)
