"""What so many seeds can show, against simulated sweeps of other numbers that go through the report's own verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.detectable import smallest_detectable
from orchestrator.analysis.noise import BLOCKS, Losses
from orchestrator.analysis.statistics import compare


def drawn(rng: np.random.Generator, mean: float, deviation: float, text: float, seeds: int) -> Losses:
    """`text` is the standard deviation of the whole text's mean; the baseline finds no part of it hard."""
    blocks = mean + deviation * rng.standard_normal((seeds, 1)) + rng.normal(0.0, text * 8, BLOCKS)  # 64 blocks
    return Losses(tuple(range(seeds)), blocks.mean(axis=1), blocks)


@pytest.mark.parametrize(("seeds", "others", "text"), [(2, 1, 0.0), (3, 4, 0.01), (6, 2, 0.02)])
def test_four_of_five_simulated_sweeps_show_it(seeds: int, others: int, text: float) -> None:
    deviation, repeats = 0.01, 600
    smallest = smallest_detectable(deviation, text, (seeds, seeds), others)
    assert smallest is not None
    nats, margin = smallest
    rng = np.random.default_rng(seeds)
    decided = found_none = 0
    for _ in range(repeats):
        baseline = drawn(rng, 5.0, deviation, 0.0, seeds)
        variants = {str(i): drawn(rng, 5.0 + nats * (i == 0), deviation, text, seeds) for i in range(others)}
        decided += compare(baseline, variants).effects["0"].verdict == "hurts"
        none = drawn(rng, 5.0, deviation, text, seeds)
        of_none = compare(baseline, variants | {"0": none}, margin=math.expm1(margin)).effects["0"]
        found_none += of_none.verdict == "equivalent"
    assert decided / repeats == pytest.approx(0.8, abs=0.07)  # three standard errors of both simulations
    assert found_none / repeats == pytest.approx(0.8, abs=0.07)


def test_more_seeds_show_smaller_differences_and_more_text_noise_larger_ones() -> None:
    found = [smallest_detectable(0.01, 0.0, (seeds, seeds), 3) or (0.0, 0.0) for seeds in (2, 3, 5, 10)]
    assert found == sorted(found, reverse=True)
    quiet, loud = smallest_detectable(0.01, 0.0, (3, 3), 3), smallest_detectable(0.01, 0.02, (3, 3), 3)
    assert quiet is not None and loud is not None and loud[0] > 1.5 * quiet[0] and loud[1] > 1.5 * quiet[1]


@pytest.mark.parametrize(("deviation", "seeds", "variants"), [(0.01, 1, 3), (0.01, 3, 0), (0.0, 3, 3)])
def test_where_no_verdict_is_given_nothing_can_be_shown(deviation: float, seeds: int, variants: int) -> None:
    assert smallest_detectable(deviation, 0.01, (seeds, seeds), variants) is None


def test_more_seeds_of_the_baseline_show_smaller_differences() -> None:
    alike, split = smallest_detectable(0.01, 0.0, (3, 3), 8), smallest_detectable(0.01, 0.0, (6, 3), 8)
    assert alike is not None and split is not None and split[0] < 0.95 * alike[0]
