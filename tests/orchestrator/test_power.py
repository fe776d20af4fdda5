"""What so many seeds can show, against simulated sweeps that go through the report's own verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.power import power, smallest_detectable
from orchestrator.statistics import compare


@pytest.mark.parametrize(("seeds", "others"), [(2, 1), (3, 4), (6, 2)])
def test_four_of_five_simulated_sweeps_show_the_smallest_detectable_difference(seeds: int, others: int) -> None:
    deviation, repeats = 0.01, 600
    nats = smallest_detectable(deviation, seeds, (seeds,) * others)
    assert nats is not None
    rng = np.random.default_rng(seeds)
    decided = 0
    for _ in range(repeats):
        baseline = 5.0 + deviation * rng.standard_normal(seeds)
        variants = {str(i): 5.0 + nats * (i == 0) + deviation * rng.standard_normal(seeds) for i in range(others)}
        decided += compare(baseline, variants).effects["0"].verdict == "hurts"
    assert decided / repeats == pytest.approx(0.8, abs=0.05)  # three standard errors


def test_without_a_difference_the_power_is_the_error_rate() -> None:
    assert power(0.0, 0.01, 5, [5], 0.95) == pytest.approx(0.05, abs=1e-3)


def test_more_seeds_show_smaller_differences() -> None:
    found = [smallest_detectable(0.01, seeds, [seeds] * 3) for seeds in (2, 3, 5, 10)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(("baseline", "variants"), [(1, [3]), (3, [1]), (3, [])])
def test_fewer_than_two_seeds_show_nothing(baseline: int, variants: list[int]) -> None:
    assert smallest_detectable(0.01, baseline, variants) is None
