"""What so many more seeds decide, against simulated sweeps that go through the report's own verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from orchestrator.analysis.effects import MOST_FURTHER, WANTED, Effect, further_seeds
from orchestrator.analysis.noise import BLOCKS, WAVES, Deviation, Errors, Losses, half_width
from orchestrator.analysis.statistics import MARGIN, compare
from tests.support.factories import seeded


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
    assert further is not None and further.seeds is not None and further.text == "long enough"
    decided, sweeps = 0, 400
    for _ in range(sweeps):
        drawn = {n: seeded(4.6 + m + rng.normal(0, 0.004, 3 + further.seeds)) for n, m in (("a", effect), ("base", 0))}
        decided += compare(drawn["base"], {"a": drawn["a"]}).effects["a"].verdict != "not decided"
    assert 0.72 < decided / sweeps < 0.92


def test_where_the_text_is_short_no_number_of_seeds_decides() -> None:
    rng = np.random.default_rng(3)
    found = compare(with_text(rng, 4.6, 3, 1e-4, 0.01), {"a": with_text(rng, 4.6 + MARGIN, 3, 1e-4, 0.01)})
    assert found.effects["a"].further is not None
    assert (found.effects["a"].further.seeds, found.effects["a"].further.text) == (None, "short")


def test_a_text_that_only_single_seeds_find_hard_is_no_short_one() -> None:
    """Without any difference of the variants along the text, more seeds lessen all of its noise."""
    rng, short = np.random.default_rng(4), 0
    for _ in range(60):
        losses = {}
        for name in ("a", "base"):
            blocks = 4.6 + rng.normal(0, 1e-3, (4, 1)) + rng.normal(0, 0.02, (4, BLOCKS))
            losses[name] = Losses((1, 2, 3, 4), blocks.mean(axis=1), blocks)
        further = compare(losses["base"], {"a": losses["a"]}).effects["a"].further
        short += further is not None and further.text == "short"
    assert short <= 6


def test_more_seeds_than_anyone_has_are_not_counted() -> None:
    noisy = {name: seeded(4.6 + 0.2 * np.array([-1.0, 0.0, 1.0])) for name in ("a", "base")}
    further = compare(noisy["base"], {"a": seeded(noisy["a"].nats + 0.001)}).effects["a"].further
    assert further is not None and further.seeds is None and further.text == "long enough", MOST_FURTHER


@pytest.mark.parametrize(("known", "intervals"), [(1.5, 1), (1.5, 6), (40.0, 1)])
def test_further_seeds_are_those_whose_power_is_enough(known: float, intervals: int) -> None:
    """By hand, for two groups of two seeds: borrowed degrees of freedom grow by a seed each, those alone are n - 1."""
    deviation, each = 0.01, 1 - 0.95 ** (1 / intervals)

    def power(nats: float, more: int) -> float:
        error = deviation * math.sqrt(2 / (2 + more))
        borrowed, alone = stats.t.isf(each / 2, 2 * (known + more)), stats.t.isf(0.025, 2 + more - 1)
        reach = error * max(borrowed, alone)
        return float(stats.norm.sf((reach - nats) / error) + stats.norm.sf((reach + nats) / error))

    hardly = optimize.brentq(lambda nats: power(nats, MOST_FURTHER) - WANTED, 1e-4, 0.1)
    for nats in (0.07, 0.03, 0.02, 0.012, 0.008, 1.0001 * hardly, 0.9999 * hardly):
        parts = [(weight, Deviation(deviation, deviation, known), 2) for weight in (1.0, -1.0)]
        found = further_seeds(nats, parts, (0.0, 1.0, 0.0), Errors.of(0.95, intervals), 0.0)
        enough = (more for more in range(1, MOST_FURTHER + 1) if power(nats, more) >= WANTED)
        assert found.seeds == next(enough, None)
        assert nats not in (0.07, 1.0001 * hardly) or found.seeds == (1 if nats == 0.07 else MOST_FURTHER)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("nats", [0.0, 0.001, 0.003, 0.0045, 0.006, -0.006, 0.012])
def test_a_verdict_comes_from_outside_zero_or_from_within_the_margin(nats: float, share: float) -> None:
    """By hand, for two groups of three and four seeds with a text: the chance that a normal difference lies so."""
    margin, errors, known = 0.005, Errors.of(0.95, 1), Deviation(0.003, 0.003, 3.0)

    def power(more: int) -> float:
        each = [known.used**2 / (n + more) for n in (3, 4)]
        degrees = sum(each) ** 2 / sum(variance**2 / (3.0 + more) for variance in each)
        text = 0.0004**2 * (1 - share + share * 3 / (3 + more))
        half = half_width((sum(each), degrees), (sum(each), 3 + more - 1.0), (text, 6.0), errors)
        if margin >= 2 * half:
            return 1.0
        difference = stats.norm(nats, math.sqrt(sum(each) + text))
        inside = margin - half
        return float(
            difference.cdf(-half) + difference.sf(half) + max(0.0, difference.cdf(inside) - difference.cdf(-inside))
        )

    found = further_seeds(nats, [(1.0, known, 3), (-1.0, known, 4)], (0.0004, 6.0, share), errors, margin)
    assert found.seeds == next((more for more in range(1, MOST_FURTHER + 1) if power(more) >= WANTED), None)


def test_a_text_is_short_to_the_point_where_its_noise_alone_hides_the_difference() -> None:
    """With endless seeds Student's t of the text's six degrees is left, and the power that is wanted beyond it."""
    reach = 0.01 * float(stats.t.isf(0.025, 6) + stats.norm.isf(1 - WANTED))
    at_lower_limit = reach * math.sqrt(6 / float(stats.chi2.ppf(0.95, 6)))
    for nats, text in (
        (0.999 * at_lower_limit, "short"),
        (1.001 * at_lower_limit, "perhaps short"),
        (0.999 * reach, "perhaps short"),
        (1.001 * reach, "long enough"),
    ):
        parts = [(weight, Deviation(1e-6, 1e-6, 9.0), 3) for weight in (1.0, -1.0)]
        assert further_seeds(nats, parts, (0.01, 6.0, 0.0), Errors.of(0.95, 1), 0.0).text == text


@pytest.mark.parametrize(("deviation", "suffice"), [(1e-6, True), (0.05, False)])
def test_a_longer_text_alone_decides_only_if_these_seeds_would(deviation: float, suffice: bool) -> None:
    known = Deviation(deviation, deviation, 9.0)
    parts = [(weight, known, 3) for weight in (1.0, -1.0)]
    further = further_seeds(0.003, parts, (0.01, 6.0, 0.0), Errors.of(0.95, 1), 0.0)
    assert (further.text, further.seeds_suffice) == ("short", suffice)


@pytest.mark.parametrize(("share", "text"), [(0.5, "short"), (0.95, "perhaps short")])
def test_a_difference_that_the_noise_of_the_text_hides_is_no_matter_of_seeds(share: float, text: str) -> None:
    """`share` of what the text's noise, as estimated, lets an interval reach; of its lower limit that is 1.45 times."""
    wave = 0.02 * np.cos(math.pi * (np.arange(BLOCKS) + 0.5) / BLOCKS)

    def compared(nats: float) -> Effect:
        seeds = 1e-6 * np.array([[-1.0], [0.0], [1.0]])
        base, variant = (4.6 + seeds + blocks for blocks in (np.zeros(BLOCKS), nats + wave))
        losses = [Losses((1, 2, 3), blocks.mean(axis=1), blocks) for blocks in (base, variant)]
        return compare(losses[0], {"a": losses[1]}).effects["a"]

    text_error = compared(0.0).text_error
    assert text_error is not None
    further = compared(share * text_error * float(special.stdtrit(WAVES, 0.975))).further
    assert further is not None and (further.seeds, further.text) == (None, text)
