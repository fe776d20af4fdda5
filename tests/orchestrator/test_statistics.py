"""Intervals against tables, another implementation and simulation; honest words where nothing can be said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.statistics import (
    IDENTICAL,
    NO_NOISE,
    ONE_SEED,
    compare,
    critical_value,
    perplexity_change,
    perplexity_ratio,
)


def arrays(**losses: list[float]) -> dict[str, np.ndarray]:
    return {name: np.array(values) for name, values in losses.items()}


# Dunnett's printed table, two-sided 5%: treatments beside the control, degrees of freedom, value.
@pytest.mark.parametrize(
    ("variants", "degrees", "value"),
    [(1, 10, 2.23), (2, 10, 2.57), (5, 10, 2.99), (9, 10, 3.24), (5, 5, 3.62), (2, 20, 2.38), (9, 20, 2.95)],
)
def test_critical_value_agrees_with_the_printed_table(variants: int, degrees: int, value: float) -> None:
    assert critical_value(3, (3,) * variants, degrees, 0.95) == pytest.approx(value, abs=0.0051)


def test_one_variant_is_students_t() -> None:
    assert critical_value(3, (4,), 5, 0.95) == pytest.approx(stats.t.ppf(0.975, 5), rel=1e-4)
    assert critical_value(2, (2,), 2, 0.95) == pytest.approx(stats.t.ppf(0.975, 2), rel=1e-4)


def test_unequal_sizes_agree_with_scipys_sampling() -> None:
    rng = np.random.default_rng(3)
    base, *others = [rng.normal(4.0, 0.01, n) for n in (5, 2, 3, 4)]
    ours = compare(base, dict(zip("abc", others, strict=True)))
    theirs = stats.dunnett(*others, control=base, rng=np.random.default_rng(0)).confidence_interval(0.95)
    for effect, low, high in zip(ours.effects.values(), theirs.low, theirs.high, strict=True):
        assert effect.interval is not None
        assert effect.interval.low == pytest.approx(low, abs=2e-4)
        assert effect.interval.high == pytest.approx(high, abs=2e-4)


def test_critical_value_is_the_quantile_of_simulated_maxima() -> None:
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((100_000, 9, 2))
    means, deviation = draws.mean(axis=2), np.sqrt(draws.var(axis=2, ddof=1).mean(axis=1))
    largest = np.abs(means[:, 1:] - means[:, :1]).max(axis=1) / deviation
    assert critical_value(2, (2,) * 8, 9, 0.95) == pytest.approx(np.quantile(largest, 0.95), rel=0.01)


@pytest.mark.parametrize("seeds", [2, 3])
def test_intervals_cover_all_true_differences_together(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    truth = np.array([0.0, 0.0, 0.03, -0.02])
    trials, missed = 2000, 0
    for _ in range(trials):
        base = rng.normal(4.0, 0.01, seeds)
        losses = {str(k): rng.normal(4.0 + true, 0.01, seeds) for k, true in enumerate(truth)}
        intervals = [effect.interval for effect in compare(base, losses).effects.values()]
        missed += not all(i and i.low <= true <= i.high for i, true in zip(intervals, truth, strict=True))
    assert missed / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_verdicts_say_what_the_change_does() -> None:
    comparison = compare(
        np.array([4.00, 4.01, 3.99]),
        arrays(worse=[4.30, 4.31, 4.29], better=[3.70, 3.71, 3.69], same=[4.005, 3.995, 4.01]),
    )
    assert {name: effect.verdict for name, effect in comparison.effects.items()} == {
        "worse": "hurts",
        "better": "helps",
        "same": "not decided",
    }
    assert comparison.noise is not None
    assert comparison.noise.degrees_of_freedom == 8
    assert set(comparison.noise.own) == {"worse", "better", "same"}


def test_whether_one_deviation_fits_all_is_bartletts_test() -> None:
    def bartlett(groups: list[list[float]]) -> float:  # Bartlett 1937, from its formula
        degrees = [len(group) - 1 for group in groups]
        variances = [sum((x - sum(g) / len(g)) ** 2 for x in g) / (len(g) - 1) for g in groups]
        pooled = sum(d * v for d, v in zip(degrees, variances, strict=True)) / sum(degrees)
        excess = sum(d * math.log(pooled / v) for d, v in zip(degrees, variances, strict=True))
        correction = 1 + (sum(1 / d for d in degrees) - 1 / sum(degrees)) / (3 * (len(groups) - 1))
        return float(stats.chi2.sf(excess / correction, len(groups) - 1))

    base, loud, other = [4.0, 4.0002], [4.3, 4.9, 4.1], [4.1, 4.1003]
    for variants in ({"a": loud, "b": other}, {"b": other}):
        noise = compare(np.array(base), arrays(**variants)).noise
        assert noise is not None
        assert noise.alike == pytest.approx(bartlett([base, *variants.values()]))
        assert noise.one_fits_all == ("a" not in variants)
        assert (noise.baseline, noise.own["b"]) == pytest.approx((0.0002 / math.sqrt(2), 0.0003 / math.sqrt(2)))
    silent = compare(np.array([4.0, 4.0]), arrays(a=loud)).noise
    assert silent is not None and not silent.one_fits_all


def test_equal_deviations_are_seldom_called_unequal() -> None:
    rng = np.random.default_rng(5)
    draws = rng.normal(4.0, 0.01, (500, 10, 2))
    noises = [compare(base, {str(k): losses for k, losses in enumerate(others)}).noise for base, *others in draws]
    assert sum(noise is not None and not noise.one_fits_all for noise in noises) / 500 <= 0.05
    assert sum(noise is not None and min(noise.own.values()) < noise.deviation / 3 for noise in noises) / 500 > 0.8


@pytest.mark.parametrize(("base", "variant"), [([4.0], [4.2]), ([4.0, 4.1], [4.2]), ([4.0], [4.2, 4.3])])
def test_one_seed_has_no_interval(base: list[float], variant: list[float]) -> None:
    comparison = compare(np.array(base), arrays(change=variant))
    effect = comparison.effects["change"]
    assert (effect.interval, effect.verdict, effect.reason) == (None, "not decided", ONE_SEED)
    assert effect.nats == pytest.approx(np.mean(variant) - np.mean(base))
    assert comparison.noise is None


def test_seeds_that_do_not_differ_give_no_noise_and_no_interval() -> None:
    effect = compare(np.array([4.1, 4.1]), arrays(change=[4.3, 4.3])).effects["change"]
    assert (effect.interval, effect.verdict, effect.reason) == (None, "not decided", NO_NOISE)


def test_a_component_that_does_nothing_is_named_and_adds_no_certainty() -> None:
    base, other = np.array([4.00, 4.02]), [4.05, 4.06]
    alone = compare(base, arrays(other=other))
    beside = compare(base, arrays(other=other, nothing=[4.00, 4.02]))
    effect = beside.effects["nothing"]
    assert (effect.nats, effect.interval, effect.verdict, effect.reason) == (0.0, None, "not decided", IDENTICAL)
    assert beside.effects["other"] == alone.effects["other"]


def test_no_variants_is_no_comparison() -> None:
    comparison = compare(np.array([4.0, 4.1]), {})
    assert comparison.effects == {}
    assert comparison.noise is None


def test_losses_convert_to_perplexities() -> None:
    assert perplexity_change(math.log(60.0), math.log(66.0 / 60.0)) == pytest.approx(6.0)
    assert perplexity_ratio(math.log(1.1)) == pytest.approx(1.1)
    assert perplexity_change(4.0, 1e4) == math.inf
    assert perplexity_change(4.0, -1e4) == pytest.approx(-math.exp(4.0))
