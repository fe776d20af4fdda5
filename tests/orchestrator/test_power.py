"""What so many seeds can show, against simulated sweeps that go through the report's own verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.noise import BLOCKS, Losses
from orchestrator.power import MOST_FURTHER, power, smallest_detectable
from orchestrator.statistics import MARGIN, compare
from tests.factories import seeded


@pytest.mark.parametrize(("seeds", "others"), [(2, 1), (3, 4), (6, 2)])
def test_four_of_five_simulated_sweeps_show_the_smallest_detectable_difference(seeds: int, others: int) -> None:
    deviation, repeats = 0.01, 600
    nats = smallest_detectable(deviation, seeds, (seeds,) * others)
    assert nats is not None
    rng = np.random.default_rng(seeds)
    decided = 0
    for _ in range(repeats):
        baseline = seeded(5.0 + deviation * rng.standard_normal(seeds))
        variants = {
            str(i): seeded(5.0 + nats * (i == 0) + deviation * rng.standard_normal(seeds)) for i in range(others)
        }
        decided += compare(baseline, variants).effects["0"].verdict == "hurts"
    assert decided / repeats == pytest.approx(0.8, abs=0.05)  # three standard errors


def test_without_a_difference_the_power_is_the_error_rate() -> None:
    assert power(0.0, 0.01, 5, [5], 0.95) == pytest.approx(0.05, abs=2e-3)
    assert power(0.0, 0.01, 3, [3] * 8, 0.95) < 1 - 0.95 ** (1 / 8)  # borrowing is cautious


def with_text(rng: np.random.Generator, mean: float, seeds: int, deviation: float, text_deviation: float) -> Losses:
    text = rng.normal(0.0, text_deviation * math.sqrt(BLOCKS), BLOCKS)
    blocks = mean + rng.normal(0.0, deviation, (seeds, 1)) + text
    return Losses(tuple(range(seeds)), blocks.mean(axis=1), blocks)


@pytest.mark.parametrize("effect", [0.0, 0.005, 0.008])
def test_so_many_further_seeds_decide_four_times_in_five(effect: float) -> None:
    """A sweep whose estimates are the truth is carried on with as many seeds as it says."""
    rng = np.random.default_rng(0)
    exact = np.array([-1.0, 0.0, 1.0])
    first = {"a": seeded(4.6 + effect + 0.004 * exact), "base": seeded(4.6 - 0.004 * exact)}
    further = compare(first["base"], {"a": first["a"]}).effects["a"].further
    assert further is not None and further.seeds is not None and not further.text_is_short
    decided, sweeps = 0, 400
    for _ in range(sweeps):
        drawn = {n: seeded(4.6 + m + rng.normal(0, 0.004, 3 + further.seeds)) for n, m in (("a", effect), ("base", 0))}
        decided += compare(drawn["base"], {"a": drawn["a"]}).effects["a"].verdict != "not decided"
    assert 0.72 < decided / sweeps < 0.92


def test_where_the_text_is_short_no_number_of_seeds_decides() -> None:
    rng = np.random.default_rng(3)
    found = compare(with_text(rng, 4.6, 3, 1e-4, 0.01), {"a": with_text(rng, 4.6 + MARGIN, 3, 1e-4, 0.01)})
    assert found.effects["a"].further is not None
    assert (found.effects["a"].further.seeds, found.effects["a"].further.text_is_short) == (None, True)


def test_a_text_that_only_single_seeds_find_hard_is_no_short_one() -> None:
    """Without any difference of the variants along the text, more seeds lessen all of its noise."""
    rng, short = np.random.default_rng(4), 0
    for _ in range(60):
        losses = {}
        for name in ("a", "base"):
            blocks = 4.6 + rng.normal(0, 1e-3, (4, 1)) + rng.normal(0, 0.02, (4, BLOCKS))
            losses[name] = Losses((1, 2, 3, 4), blocks.mean(axis=1), blocks)
        further = compare(losses["base"], {"a": losses["a"]}).effects["a"].further
        short += further is not None and further.text_is_short
    assert short <= 6


def test_more_seeds_than_anyone_has_are_not_counted() -> None:
    noisy = {name: seeded(4.6 + 0.2 * np.array([-1.0, 0.0, 1.0])) for name in ("a", "base")}
    further = compare(noisy["base"], {"a": seeded(noisy["a"].nats + 0.001)}).effects["a"].further
    assert further is not None and further.seeds is None and not further.text_is_short, MOST_FURTHER


def test_more_seeds_show_smaller_differences() -> None:
    found = [smallest_detectable(0.01, seeds, [seeds] * 3) for seeds in (2, 3, 5, 10)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(("baseline", "variants"), [(1, [3]), (3, [1]), (3, [])])
def test_fewer_than_two_seeds_show_nothing(baseline: int, variants: list[int]) -> None:
    assert smallest_detectable(0.01, baseline, variants) is None
