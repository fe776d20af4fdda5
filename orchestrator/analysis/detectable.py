"""How small a difference a number of seeds can show."""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.noise import BLOCKS, Array, Losses
from orchestrator.analysis.power import WANTED
from orchestrator.analysis.statistics import LEVEL_OF_ERROR, contrasts

_VALUES, _FEWEST_SWEEPS = 2000, 40


def smallest_detectable(
    deviation: float, text_error: float, seeds: int, variants: int, level: float = 1 - LEVEL_OF_ERROR
) -> float | None:
    """The true difference, nats per token, that a variant's verdict tells from zero with probability `WANTED`.

    `deviation` is that of seeds, one for all variants, `text_error` the standard error of a difference by the text,
    both in nats per token; `variants` are compared with a baseline, each of `seeds` seeds. None with fewer than two
    seeds, seeds that do not differ, or nothing to compare: then no verdict is given.

    Simulated sweeps go through `statistics.contrasts`, always the same ones. A difference is decided if it
    brings the interval's upper end below zero, so that the answer is a quantile of these ends.
    """
    if seeds < 2 or variants < 1 or deviation == 0.0:
        return None
    rng = np.random.default_rng(0)
    weights = {str(k): {str(k): 1.0, "": -1.0} for k in range(variants)}
    needed: list[float] = []
    for _ in range(max(_FEWEST_SWEEPS, _VALUES // variants)):
        groups = {name: _drawn(rng, deviation, text_error, seeds) for name in ("", *weights)}
        for effect in contrasts(groups, weights, level).effects.values():
            assert effect.interval is not None, "seeds that differ"
            needed.append(effect.interval.high)
    return float(np.quantile(needed, WANTED))


def _drawn(rng: np.random.Generator, deviation: float, text_error: float, seeds: int) -> Losses:
    """A variant's losses; its share of a difference's variance by the text is half."""
    text_B: Array = text_error * np.sqrt(BLOCKS / 2) * rng.standard_normal(BLOCKS)
    blocks_SB = deviation * rng.standard_normal((seeds, 1)) + text_B
    return Losses(tuple(range(seeds)), blocks_SB.mean(axis=1), blocks_SB)
