"""What a comparison says: effects with intervals and verdicts, why there is none, the noise behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.analysis.noise import Correlation, Deviation
from orchestrator.analysis.power import Further

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


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float

    def beside_zero(self, estimate: float) -> Interval:
        """Its part on the estimate's side of zero."""
        return Interval(max(self.low, 0.0), self.high) if estimate > 0 else Interval(self.low, min(self.high, 0.0))


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
class Effect:
    """A difference of mean losses in nats per token with its verdict: a variant's less the baseline's, or a contrast.

    `nats` is None if a variant of the contrast is missing. With an `obstacle` there is no verdict. `interval` is about
    any text of this kind; `decided_on_this_text` is whether one without the text's noise would exclude zero, at a level
    shared in the same way. The standard errors are those of seeds, from averaged deviations also where a lone
    comparison decides the interval, and of the text, None without losses by token. `further` is what would decide an
    effect that is not decided.
    """

    nats: float | None
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

    `level` is the probability that all of them cover together; a verdict counts what is within `margin`, a share of
    perplexity, as none.
    """

    effects: dict[str, Effect]
    noise: Noise | None
    intervals: int
    level: float
    margin: float


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
