"""Contrasts against least squares on the coded design, and their intervals against simulation."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.effects import Comparison, Obstacle
from orchestrator.analysis.noise import BLOCKS, Losses
from orchestrator.analysis.statistics import compare, contrasts
from orchestrator.report.sections.interactions import Estimand, estimands
from orchestrator.sweep.designs import Ablation, Design, Factors
from tests.support.factories import seeded

LossesOfVariants = dict[Factors, np.ndarray]


def judged(ablation: Ablation, losses: LossesOfVariants) -> tuple[list[Estimand], Comparison]:
    asked = estimands(ablation)
    names = {away: ablation.variant(away) or "full" for away in losses}
    weights = {f"{one.kind} {one.name}": {names[away]: weight for away, weight in one.weights.items()} for one in asked}
    return asked, contrasts({names[away]: seeded(values) for away, values in losses.items()}, weights)


def simulated(ablation: Ablation, rng: np.random.Generator, seeds: int = 3, sd: float = 0.01) -> LossesOfVariants:
    """Losses with main effects and one two-way interaction."""
    factors = ablation.factors
    means = {
        away: 4.0 + sum(0.02 * (factors.index(f) + 1) for f in away) + 0.05 * (set(factors[:2]) <= away)
        for away in (Factors(), *ablation.removals)
    }
    return {away: rng.normal(mean, sd, seeds) for away, mean in means.items()}


@pytest.mark.parametrize(("design", "count"), [("factorial", 2), ("factorial", 4), ("half", 5), ("quarter", 8)])
def test_effects_are_those_of_least_squares_on_the_coded_design(design: Design, count: int) -> None:
    ablation = Ablation(design, tuple("ABCDEFGH"[:count]))
    losses = simulated(ablation, np.random.default_rng(count))
    asked, result = judged(ablation, losses)
    # Away is +1, there is -1.
    effects = [(f,) for f in ablation.factors] + list(itertools.combinations(ablation.factors, 2))
    runs = [(away, loss) for away, values in losses.items() for loss in values]
    signs = np.array([[1 if f in away else -1 for f in ablation.factors] for away, _ in runs])
    columns = [np.prod([signs[:, ablation.factors.index(f)] for f in effect], axis=0) for effect in effects]
    fitted = np.linalg.lstsq(np.stack([np.ones(len(runs)), *columns], axis=1), [loss for _, loss in runs])[0][1:]
    assert [one.name for one in asked] == ["no " * (len(effect) == 1) + " × ".join(effect) for effect in effects]
    assert not any(one.aliases for one in asked)
    assert result.intervals == len(effects)
    for effect, coefficient, contrast in zip(effects, fitted, result.effects.values(), strict=True):
        scale = 2.0 if len(effect) == 1 else 4.0  # from -1 to +1, and that once more
        assert contrast.nats == pytest.approx(scale * coefficient)


def test_with_many_seeds_the_interval_is_that_of_least_squares() -> None:
    """Its deviations all but known, a contrast's interval is the classical one at Šidák's level."""
    ablation, seeds = Ablation("factorial", ("A", "B")), 400
    _, result = judged(ablation, simulated(ablation, np.random.default_rng(0), seeds=seeds))
    critical = stats.norm.isf((1 - 0.95 ** (1 / 3)) / 2)
    for contrast, scale in zip(result.effects.values(), (2, 2, 4), strict=True):
        assert contrast.interval is not None
        reach = (contrast.interval.high - contrast.interval.low) / 2
        assert reach == pytest.approx(critical * scale * 0.01 / math.sqrt(4 * seeds), rel=0.05)


def test_the_interactions_of_both_and_pairs_are_differences_of_differences() -> None:
    both = Ablation("both", ("A", "B", "C"))
    cells = {"full": 4.0, "no A": 4.1, "no B": 4.0, "no C": 4.0, "stripped": 5.0}
    cells |= {"only A": 4.6, "only B": 4.7, "only C": 5.0}
    losses = {away: np.array([cells[both.variant(away) or "full"]]) for away in (Factors(), *both.removals)}
    asked, result = judged(both, losses)
    got = {(one.kind, one.name): c.nats for one, c in zip(asked, result.effects.values(), strict=True)}
    expected = {"A": 0.4, "B": 0.3, "C": 0.0}
    assert got == pytest.approx(
        {("alone", f"no {name}"): cost for name, cost in expected.items()}
        | {("interaction", "A × the rest"): 0.4 - 0.1, ("interaction", "B × the rest"): 0.3}
        | {("interaction", "C × the rest"): 0.0}
    )
    pairs = Ablation("pairs", ("A", "B"))
    costs = {Factors(): 4.0, Factors("A"): 4.2, Factors("B"): 4.3, Factors("AB"): 4.4}
    _, result = judged(pairs, {away: np.array([cost]) for away, cost in costs.items()})
    assert [c.nats for c in result.effects.values()] == [pytest.approx(4.4 - 4.2 - 4.3 + 4.0)]


def test_a_fraction_of_low_resolution_tells_only_what_it_can() -> None:
    asked = estimands(Ablation("half", ("A", "B", "C")))
    aliases = {one.name: one.aliases for one in asked}
    assert aliases == {"no A": ("B × C",), "no B": ("A × C",), "no C": ("A × B",)}
    asked = estimands(Ablation("half", tuple("ABCD")))
    assert [(one.name, one.aliases) for one in asked if one.kind == "interaction"] == [
        ("A × B", ("C × D",)),
        ("A × C", ("B × D",)),
        ("A × D", ("B × C",)),
    ]
    for ablation in (Ablation("eighth", tuple("ABCDEF")), Ablation("quarter", tuple("ABCDE"))):
        rows = np.array([list(one.weights.values()) for one in estimands(ablation)])
        assert np.allclose(rows @ rows.T, np.diag(np.diag(rows @ rows.T)))  # orthogonal: no effect told twice


@pytest.mark.parametrize("design", ["both", "pairs", "factorial", "half"])
def test_intervals_cover_all_true_contrasts_together(design: Design) -> None:
    ablation = Ablation(design, tuple("ABCD"))
    rng = np.random.default_rng(1)
    _, exact = judged(ablation, simulated(ablation, rng, seeds=1, sd=0.0))
    truth = [contrast.nats for contrast in exact.effects.values()]
    trials, missed = 800, 0
    for _ in range(trials):
        _, result = judged(ablation, simulated(ablation, rng, seeds=4))
        intervals = [contrast.interval for contrast in result.effects.values()]
        missed += not all(i and t is not None and i.low <= t <= i.high for i, t in zip(intervals, truth, strict=True))
    assert missed / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    assert missed > 0


EVEN = np.array([-0.01, 0.0, 0.01])
"""Three seeds: alike in every variant, which pairs nothing, since it is too good to be relied on."""


@pytest.mark.parametrize(
    ("design", "name", "wider", "scale"),
    [
        ("factorial", "main effect no A", stats.t.isf((1 - 0.95 ** (1 / 3)) / 2, 8 / 1.25), 0.5),
        ("pairs", "interaction A × B", stats.t.isf(0.025, 4), 1.0),
    ],
)
def test_degrees_of_freedom_are_no_more_than_the_seeds_have_and_alone_half_of_them(
    design: Design, name: str, wider: float, scale: float
) -> None:
    """Four variants of three seeds: eight degrees of freedom by 1.25 together, four for a lone contrast of all four."""
    ablation = Ablation(design, ("A", "B"))
    _, result = judged(ablation, {away: k + EVEN for k, away in enumerate((Factors(), *ablation.removals))})
    ends = result.effects[name].interval
    assert ends is not None
    assert (ends.high - ends.low) / 2 == pytest.approx(wider * scale * 0.01 * math.sqrt(4 / 3))


def test_of_many_variants_no_contrast_is_narrower_than_by_the_noise_of_the_noisiest() -> None:
    """Two seeds of it may lie close by chance, and fifteen others must not hide that."""
    ablation = Ablation("factorial", ("A", "B", "C", "D"))
    deviations = [0.01, *[0.005] * 15]
    signs = np.array([-1.0, 1.0]) / math.sqrt(2)
    cells = enumerate(zip((Factors(), *ablation.removals), deviations, strict=True))
    _, result = judged(ablation, {away: k + (-1) ** k * deviation * signs for k, (away, deviation) in cells})
    ends = result.effects["main effect no A"].interval
    assert ends is not None
    assert (ends.high - ends.low) / 2 == pytest.approx(stats.t.isf(0.025, 1) * 0.01 / 8 / math.sqrt(2))


def test_a_noisy_variant_of_a_design_is_not_believed_to_be_like_the_others() -> None:
    """Of four variants the first has five times the noise, of which the others would lend it less."""
    ablation, deviations = Ablation("factorial", ("A", "B")), np.array([0.05, 0.01, 0.01, 0.01])
    orders = np.array([[-1, 0, 1], [0, 1, -1], [1, -1, 0], [-1, 1, 0]])
    cells = zip((Factors(), *ablation.removals), deviations[:, None] * orders, strict=True)
    _, result = judged(ablation, dict(cells))
    assert result.noise is not None and result.noise.correlation is not None and result.noise.correlation.used == 0
    parts = (deviations / 2) ** 2 / 3
    degrees = parts.sum() ** 2 / (parts**2 / 2).sum() / 1.25
    ends = result.effects["main effect no A"].interval
    assert ends is not None and degrees < 2
    expected = stats.t.isf((1 - 0.95 ** (1 / 3)) / 2, 2) * math.sqrt(parts.sum())
    assert (ends.high - ends.low) / 2 == pytest.approx(expected)


def test_a_contrast_whose_own_variants_have_no_noise_has_no_verdict() -> None:
    kinds = {"": "softmax", "x": "mixture", "y": "ecoc"}
    losses = {"": [4.0] * 3, "x": [4.1] * 3, "y": [4.2, 4.3, 4.1]}
    of = {name: replace(seeded(values), kind=kinds[name]) for name, values in losses.items()}
    result = compare(of[""], {name: each for name, each in of.items() if name})
    effect = result.effects["x"]
    assert effect.interval is None and effect.obstacle == Obstacle("seeds do not differ")
    assert result.intervals == 1 and result.effects["y"].interval is not None


def test_reasons_where_nothing_can_be_said() -> None:
    groups = {name: seeded(nats) for name, nats in (("a", [1.0, 2.0]), ("b", [1.0, 2.5]), ("one", [3.0]))}
    groups["twin"] = groups["a"]
    weights = {
        "one seed": {"a": 1.0, "one": -1.0},
        "twins": {"a": 1.0, "twin": -1.0},
        "good": {"a": 1.0, "b": -1.0},
    }
    result = contrasts(groups, weights)
    assert {name: (effect.nats, effect.obstacle) for name, effect in result.effects.items()} == {
        "one seed": (-1.5, Obstacle("one seed")),
        "twins": (0.0, Obstacle("equal in every seed")),
        "good": (-0.25, None),
    }
    assert [name for name, c in result.effects.items() if c.interval] == ["good"]
    ends, error = result.effects["good"].interval, math.sqrt((0.5 + 1.125) / 2)
    assert ends is not None
    assert ends.high + 0.25 == pytest.approx(stats.t.isf(0.025, 1) * error), "two seeds are believed no more than alone"
    still = contrasts({"a": seeded([1.0, 1.0]), "b": seeded([2.0, 2.0])}, {"c": {"a": 1.0, "b": -1.0}})
    assert (still.effects["c"].obstacle, still.noise) == (Obstacle("seeds do not differ"), None)


def test_groups_that_are_equal_in_every_seed_are_one_measurement() -> None:
    rng = np.random.default_rng(0)
    full, a, both = (seeded(rng.normal(mean, 0.1, 3)) for mean in (1.0, 2.0, 3.0))
    weights = {"ab": 1.0, "a": -1.0, "b": -1.0, "full": 1.0}
    twin = contrasts({"full": full, "a": a, "b": full, "ab": both}, {"x": weights})
    plain = contrasts({"a": a, "ab": both}, {"x": {"ab": 1.0, "a": -1.0}})
    assert twin.effects["x"] == plain.effects["x"]


def test_a_variant_that_stands_twice_changes_no_interval() -> None:
    """Its copy is no second witness of how the text differs, neither for itself nor for the others."""
    rng = np.random.default_rng(0)

    def losses(mean: float) -> Losses:
        blocks = mean + rng.normal(0.0, 0.01, (3, 1)) + rng.normal(0.0, 0.05, BLOCKS)
        return Losses((1, 2, 3), blocks.mean(axis=1), blocks)

    base, variants = losses(4.0), {"a": losses(4.1), "b": losses(4.0)}
    once, twice = compare(base, variants), compare(base, {**variants, "copy of a": variants["a"]})
    assert twice.effects == {**once.effects, "copy of a": once.effects["a"]}
    assert (twice.intervals, twice.noise and twice.noise.text_correlation) == (
        once.intervals,
        once.noise and once.noise.text_correlation,
    )


@pytest.mark.parametrize("order", [1, -1])
def test_groups_are_equal_if_they_are_in_every_seed_that_both_have(order: int) -> None:
    sizes = {"two": seeded([1.0, 1.1]), "three": seeded([1.0, 1.1, 1.3])}
    groups, pair = dict(list(sizes.items())[::order]), {"x": {"two": 1.0, "three": -1.0}}
    assert contrasts(groups, pair).effects["x"].obstacle == Obstacle("equal in every seed")
    groups["three"] = seeded([1.0, 1.2, 1.3])
    assert contrasts(groups, pair).effects["x"].obstacle is None
