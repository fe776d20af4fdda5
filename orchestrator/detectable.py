"""How small a difference so many seeds can show."""

from __future__ import annotations

import numpy as np

from orchestrator.noise import BLOCKS, Array, Losses
from orchestrator.power import WANTED
from orchestrator.statistics import LEVEL_OF_ERROR, compare

_SWEEPS = 400


def smallest_detectable(
    deviation: float, text_error: float, seeds: int, variants: int, level: float = 1 - LEVEL_OF_ERROR
) -> float | None:
    """The true difference, nats per token, that a variant's verdict tells from zero with probability `WANTED`.

    `deviation` is that of seeds, one for all variants, `text_error` the standard error of a difference by the text,
    both in nats per token; `variants` are compared with a baseline, each of `seeds` seeds. None with fewer than two
    seeds, or nothing to compare.

    Simulated sweeps go through `statistics.compare`, always the same ones. A difference is told where it is more than
    the interval's reach less what noise adds to it, so that the answer is a quantile of these.
    """
    if seeds < 2 or variants < 1:
        return None
    if deviation == 0.0:
        return 0.0
    rng = np.random.default_rng(0)
    needed: list[float] = []
    for _ in range(_SWEEPS):
        baseline, *others = (_drawn(rng, deviation, text_error, seeds) for _ in range(variants + 1))
        found = compare(baseline, {str(k): losses for k, losses in enumerate(others)}, level)
        needed += [
            (effect.interval.high - effect.interval.low) / 2 - effect.nats
            for effect in found.effects.values()
            if effect.interval is not None
        ]
    return float(np.quantile(needed, WANTED))


def _drawn(rng: np.random.Generator, deviation: float, text_error: float, seeds: int) -> Losses:
    """A variant's losses; its share of a difference's variance by the text is half."""
    text_B: Array = text_error * np.sqrt(BLOCKS / 2) * rng.standard_normal(BLOCKS)
    blocks_SB = deviation * rng.standard_normal((seeds, 1)) + text_B
    return Losses(tuple(range(seeds)), blocks_SB.mean(axis=1), blocks_SB)
