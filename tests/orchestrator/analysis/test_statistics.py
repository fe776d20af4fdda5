"""Intervals against textbook cases and simulation; verdicts that read them alone; words where nothing can be said."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.effects import Effect, Interval, Obstacle, further_seeds, perplexity_change, perplexity_ratio
from orchestrator.analysis.noise import (
    BLOCKS,
    CAUTION,
    LONG_TOPICS,
    PIECES,
    TEXT_BORROWED,
    WAVES,
    Correlation,
    Errors,
    Losses,
    borrowed_text,
    correlation,
    deviations,
    half_width,
    interaction_variance,
    mean_interval,
    missed_by_waves,
    text_correlation,
    text_variance,
)
from orchestrator.analysis.statistics import compare, contrasts
from tests.benchmarks import calibration
from tests.support.factories import seeded


def groups(**losses: list[float]) -> dict[str, Losses]:
    return {name: seeded(values) for name, values in losses.items()}


@pytest.mark.parametrize(("count", "t"), [(1, 4.302653), (2, 6.164414)])
def test_a_mean_has_the_interval_of_students_t(count: int, t: float) -> None:
    """Of 1, 2 and 4, one of so many intervals that hold at once; their deviation is the root of 7/3."""
    mean, (low, high) = mean_interval([1.0, 2.0, 4.0], Errors.of(0.95, count).each)
    assert (mean, high - mean, mean - low) == pytest.approx((7 / 3, *2 * [t * math.sqrt(7 / 9)]))


def test_a_deviation_is_averaged_with_the_others_which_count_as_one_more_seed() -> None:
    found = deviations(groups(a=[1.0, 2.0, 3.0], b=[0.0, 4.0], c=[1.0, 1.0, 1.0, 1.0]))
    assert found is not None
    assert [known.own for known in found.values()] == pytest.approx([1.0, math.sqrt(8.0), 0.0])
    # The others of a have four degrees of freedom, and a variance of (8 + 0) / 4; they are two of eight lenders.
    weight = 2 / 8 * 1 * 4 / (1 + 4)
    assert found["a"].used == pytest.approx(math.sqrt((2 * 1.0 + weight * 2.0) / (2 + weight)))
    assert found["a"].degrees_of_freedom == pytest.approx(2 + weight)
    assert found["c"].used > 0


def test_more_than_eight_others_count_no_more_than_eight() -> None:
    found = deviations(groups(**{str(k): [1.0, 1.2] for k in range(9)}, quiet=[1.0, 1.1]))
    weight = 1 * 9 / (1 + 9)
    assert found is not None and found["quiet"].degrees_of_freedom == pytest.approx(weight + 1)
    assert found["quiet"].used == pytest.approx(math.sqrt((weight * 0.02 + 0.005) / (weight + 1)))


def test_a_deviation_borrows_from_its_own_kind_alone() -> None:
    quiet = groups(a=[1.0, 1.1], b=[1.0, 1.2])
    noisy = {name: replace(losses, kind="ecoc") for name, losses in groups(c=[5.0, 9.0], d=[4.0, 9.0]).items()}
    alone, found = deviations(quiet), deviations(quiet | noisy)
    assert alone is not None and found is not None
    assert [found[name] for name in quiet] == list(alone.values())
    assert found["c"].used == pytest.approx(math.sqrt((8 + 1 / 16 * 12.5) / (1 + 1 / 16)))


def test_the_text_s_noise_is_borrowed_from_contrasts_of_one_kind_alone() -> None:
    degrees = WAVES + WAVES * 1 / 2  # one other lends its six waves as three
    used = borrowed_text([1.0, 3.0, 100.0], [2.0, 2.0, 2.0], ["softmax", "softmax", "ecoc"])
    assert used == [pytest.approx((5 / 3, degrees)), pytest.approx((7 / 3, degrees)), (100.0, WAVES)]


def test_several_others_lend_their_mean_noise_of_the_text() -> None:
    used = borrowed_text([1.0, 2.0, 6.0], [1.0, 1.0, 2.0], ["", "", ""])  # in units of one variant's: 1, 2 and 3
    weight = TEXT_BORROWED * 2 * WAVES / (TEXT_BORROWED + 2 * WAVES)
    nats = [scale * (WAVES * own + weight * mean) for own, mean, scale in ((1, 2.5, 1), (2, 2.0, 1), (3, 1.5, 2))]
    assert [variance for variance, _ in used] == pytest.approx([each / (WAVES + weight) for each in nats])
    assert {degrees for _, degrees in used} == {WAVES + weight}


def test_the_correlation_of_neighbouring_pieces_is_less_its_bias_and_weighs_contrasts_by_their_size() -> None:
    """Sixteen pieces of 1 and −1: halves have 14 of 15 pairs alike, and alternating ones none."""
    halves, alternating = (np.repeat(signs, BLOCKS // PIECES) for signs in ([1.0] * 8 + [-1.0] * 8, [1.0, -1.0] * 8))
    for blocks, raw in (([halves], 13 / 16), ([alternating + 5.0], -15 / 16), ([halves, 3 * alternating], -122 / 160)):
        assert text_correlation(blocks) == pytest.approx(raw + (1 + 3 * raw) / 16)


@pytest.mark.parametrize(("topic_blocks", "correlates"), [(1.0, False), (6.0, True)])
def test_pieces_of_a_text_correlate_if_its_topics_are_long(topic_blocks: float, correlates: bool) -> None:
    setting = calibration.Setting("", text_deviation=0.006, topic_blocks=topic_blocks)
    correlations = []
    for seed in range(20):
        noise = calibration.judge(calibration.simulated(setting, 3, np.random.default_rng(seed))).noise
        assert noise is not None and noise.text_correlation is not None
        correlations.append(noise.text_correlation)
    assert (np.median(correlations) > LONG_TOPICS) == correlates
    assert np.mean([(each > LONG_TOPICS) is correlates for each in correlations]) > 0.8


@pytest.mark.parametrize("topic_blocks", [6.0, 10.0])
def test_what_the_waves_miss_of_long_topics_is_what_simulated_texts_say(topic_blocks: float) -> None:
    """The variance of a mean over a text, over what the waves see of it, at the correlation that the pieces have."""
    rng, setting = np.random.default_rng(2), calibration.Setting("", variants=1, topic_blocks=topic_blocks)
    texts = [calibration.topics(rng, setting)[0] for _ in range(4000)]
    pieces = np.array([text.reshape(PIECES, -1).mean(axis=1) for text in texts])
    together = np.corrcoef(pieces[:, :-1].ravel(), pieces[:, 1:].ravel())[0, 1]
    missed = np.var([text.mean() for text in texts]) / fmean(map(text_variance, texts))
    assert missed_by_waves(float(together)) == pytest.approx(missed, rel=0.1)
    assert missed > 1.3


def test_short_topics_are_not_corrected_for_and_longer_ones_the_more_the_longer() -> None:
    assert [missed_by_waves(each) for each in (-0.5, 0.0, LONG_TOPICS)] == [1.0, 1.0, 1.0]
    factors = [missed_by_waves(each) for each in (0.36, 0.5, 0.7, 0.9, 1.0)]
    assert factors == sorted(factors) and 1.2 < factors[0] < 1.3 and math.isfinite(factors[-1])


def test_long_topics_narrow_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their larger variance brings degrees of freedom that would hide the few of seeds that are as noisy."""
    setting = calibration.Setting("", topic_blocks=10.0)
    widths: dict[float, list[float]] = {1.0: [], 2.5: []}
    for seed in range(20):
        sweep = calibration.simulated(setting, 3, np.random.default_rng(seed))
        for missed, of in widths.items():
            monkeypatch.setattr("orchestrator.analysis.statistics.missed_by_waves", lambda _, by=missed: by)
            ends = [effect.interval or Interval(0, 0) for effect in calibration.judge(sweep).effects.values()]
            of += [high - low for low, high in ends]
    seen, whole = map(np.array, widths.values())
    assert np.all(whole >= seen) and np.any(whole > 1.05 * seen)


def test_a_table_of_a_text_with_long_topics_errs_no_more_often_than_it_says() -> None:
    """Nine variants that are one, where the text dominates: without the correction 9.5% of tables erred."""
    setting, rng = calibration.Setting("", text_deviation=0.006, topic_blocks=6.0), np.random.default_rng(3)
    tally, sweeps = calibration.Tally(), 300
    for _ in range(sweeps):
        tally.add(calibration.judge(calibration.simulated(setting, 3, rng)), 0.0)
    assert tally.wrong / sweeps < 0.06


def test_what_seeds_alone_decide_is_certain_on_this_text() -> None:
    """Seeds agree to 0.1%, and another text would turn the difference: not decided, but certain here."""
    rng = np.random.default_rng(1)
    along = 0.2 * rng.normal(size=BLOCKS)
    seeds = 0.001 * rng.normal(size=(2, 3, 1))
    base, variant = 4.0 + seeds[0] + 0 * along, 4.01 + seeds[1] + along - along.mean()
    losses = [Losses((1, 2, 3), blocks.mean(axis=1), blocks) for blocks in (base, variant)]
    effect = compare(losses[0], {"a": losses[1]}).effects["a"]
    assert effect.verdict == "not decided" and effect.decided_on_this_text
    assert effect.interval is not None and effect.interval.low < 0


def test_with_a_hundred_seeds_nothing_matters_but_ones_own_and_the_interval_is_welchs() -> None:
    rng = np.random.default_rng(0)
    base, variant = rng.normal(4.0, 0.01, 200), rng.normal(4.1, 0.05, 300)
    interval = compare(seeded(base), {"a": seeded(variant)}).effects["a"].interval
    welch = stats.ttest_ind(variant, base, equal_var=False).confidence_interval(0.95)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((welch.low, welch.high), rel=1e-3)


def test_two_seeds_are_believed_no_more_than_their_own_spread() -> None:
    """Welch's lone comparison with the fewest seeds' degrees of freedom: borrowing must not make it narrower."""
    base, variant = [4.0, 4.02], [4.1, 4.2]
    interval = compare(seeded(base), groups(a=variant)).effects["a"].interval
    error = math.sqrt((np.var(base, ddof=1) + np.var(variant, ddof=1)) / 2)
    assert interval is not None
    assert (interval.high - interval.low) / 2 == pytest.approx(stats.t.isf(0.025, 1) * error)


def test_of_four_seeds_what_is_borrowed_decides() -> None:
    """Eight variants whose spreads are equal: Sidak's share of t with what is borrowed is wider than t alone."""
    spread = np.array([-0.01, 0.0, 0.0, 0.01]) * math.sqrt(1.5)
    found = compare(seeded(4.0 + spread), {str(k): seeded(4.1 + k + spread) for k in range(8)})
    interval, borrowed = found.effects["3"].interval, 24 / 25
    assert interval is not None
    critical = stats.t.isf((1 - 0.95 ** (1 / 8)) / 2, 2 * (3 + borrowed))
    assert (interval.high - interval.low) / 2 == pytest.approx(critical * 0.01 * math.sqrt(2 / 4))


def test_the_noise_of_a_text_is_that_of_its_slow_waves() -> None:
    """Independent blocks: the variance of their mean. Blocks that are alike: many times what is naive."""
    rng = np.random.default_rng(5)
    independent = rng.normal(0.0, 1.0, (4000, BLOCKS))
    assert np.mean([text_variance(blocks) for blocks in independent]) == pytest.approx(1 / BLOCKS, rel=0.03)
    alike = np.empty_like(independent)
    alike[:, 0] = independent[:, 0]
    for k in range(1, BLOCKS):
        alike[:, k] = 0.5 * alike[:, k - 1] + math.sqrt(0.75) * independent[:, k]
    told, true = np.mean([text_variance(blocks) for blocks in alike]), alike.mean(axis=1).var()
    assert 0.85 * true < told < 1.02 * true and told > 2.3 / BLOCKS
    shifted = alike[0] + 7.0
    assert text_variance(shifted) == pytest.approx(text_variance(alike[0])), "a constant is no noise"
    wave = np.cos(math.pi * 3 * (np.arange(BLOCKS) + 0.5) / BLOCKS)
    assert text_variance(wave) == pytest.approx(0.5 / WAVES)


def test_one_t_serves_both_noises_and_no_interval_is_narrower_than_a_lone_one() -> None:
    errors, each = Errors.of(0.95, 3), 1 - 0.95 ** (1 / 3)
    assert half_width((4.0, 9.0), (0.0, 1.0), None, errors) == pytest.approx(2.0 * stats.t.isf(each / 2, 9.0))
    assert half_width((0.0, 9.0), (4.0, 2.0), None, errors) == pytest.approx(2.0 * stats.t.isf(0.025, 2.0))
    both = half_width((4.0, 9.0), (0.0, 9.0), (3.0, 12.0), errors)
    degrees = 7.0**2 / (4.0**2 / 9.0 + 3.0**2 / 12.0) / CAUTION
    assert both == pytest.approx(math.sqrt(7.0) * stats.t.isf(each / 2, degrees))
    small = half_width((4e-6, 9.0), (0.0, 9.0), (3e-6, 12.0), errors)
    assert small == pytest.approx(1e-3 * both)
    lone = half_width((0.0, 9.0), (1.0, 2.0), (9.0, 12.0), Errors.of(0.95, 1))
    degrees = 10.0**2 / (1.0**2 / 2.0 + 9.0**2 / 12.0) / CAUTION
    assert lone == pytest.approx(math.sqrt(10.0) * stats.t.isf(0.025, degrees))
    hardly = half_width((4.0, 9.0), (0.0, 9.0), (1e-9, 12.0), errors)
    assert hardly == pytest.approx(2.0 * stats.t.isf(each / 2, 9.0)), "no fewer degrees of freedom than either has"


def test_the_noise_of_the_text_is_averaged_with_that_of_the_other_comparisons() -> None:
    assert borrowed_text([3.0], [2.0], [""]) == [(pytest.approx(3.0), WAVES)]
    weight = TEXT_BORROWED * WAVES / (TEXT_BORROWED + WAVES)
    first, second = borrowed_text([1.0, 12.0], [1.0, 4.0], ["", ""])  # in units of one variant's: 1 and 3
    assert first == (pytest.approx((WAVES * 1.0 + weight * 3.0) / (WAVES + weight)), WAVES + weight)
    assert second == (pytest.approx(4.0 * (WAVES * 3.0 + weight * 1.0) / (WAVES + weight)), WAVES + weight)


def test_verdicts_step_down_and_an_interval_that_a_later_step_decides_ends_at_zero() -> None:
    """Of four effects three are large: when they are decided, the last is judged as if it were alone."""
    noise = 0.01 * np.linspace(-1.75, 1.75, 8)
    base, large = seeded(4.0 + noise), {str(k): seeded(4.5 + k + noise[::-1]) for k in range(3)}

    def last(shift: float) -> Effect:
        return compare(base, {**large, "last": seeded(4.0 + shift + noise[::-1])}).effects["last"]

    still = last(0.0).interval
    assert still is not None
    for share, verdict, end in (
        (1.1, "raises", None),
        (0.9, "raises", 0.0),
        (-0.9, "lowers", 0.0),
        (0.5, "not decided", None),
    ):
        effect = last(share * still.high)
        assert effect.verdict == verdict and effect.interval is not None
        assert (0.0 in effect.interval) == (end == 0.0)
        assert effect.decided_on_this_text == (verdict != "not decided"), "the text has no noise here"


def test_comparisons_that_wait_for_trials_have_their_share_at_every_step() -> None:
    """A verdict is that of one among all planned: the number of those that come later takes nothing from it."""
    noise = 0.01 * np.linspace(-1.75, 1.75, 8)
    base, equal = seeded(4.0 + noise), {str(k): seeded(4.0 + noise[::-1] + k * 1e-9) for k in range(3)}

    def first(shift: float, others: dict[str, Losses], waiting: int) -> Effect:
        return compare(base, {"first": seeded(4.0 + shift + noise[::-1]), **others}, waiting=waiting).effects["first"]

    alone, early, late = (first(0.0, *how).interval for how in (({}, 0), ({}, 3), (equal, 0)))
    assert alone and early and late and alone.high < early.high == pytest.approx(late.high, rel=0.1)
    between = (alone.high + early.high) / 2
    assert [first(between, {}, waiting).verdict for waiting in (0, 3)] == ["raises", "not decided"]
    assert first(between, {"large": seeded(5.0 + noise[::-1])}, 3).verdict == "not decided"


def test_the_text_adds_its_noise() -> None:
    rng = np.random.default_rng(1)
    texts = rng.normal(0.0, 0.02, (2, BLOCKS))
    texts -= texts.mean(axis=1, keepdims=True)
    nats = {"base": np.array([4.0, 4.01, 3.99]), "a": np.array([4.02, 4.03, 4.01])}
    silent = {name: seeded(values) for name, values in nats.items()}
    told = {
        name: Losses((1, 2, 3), values, values[:, None] + text)
        for (name, values), text in zip(nats.items(), texts, strict=True)
    }
    without = compare(silent["base"], {"a": silent["a"]}).effects["a"]
    with_text = compare(told["base"], {"a": told["a"]}).effects["a"]
    assert without.interval is not None and with_text.interval is not None
    assert without.text_error is None and with_text.seed_error == without.seed_error
    variance = text_variance(texts[1] - texts[0])
    assert with_text.text_error == pytest.approx(math.sqrt(variance))
    of_seeds = (without.seed_error or 0.0) ** 2
    widths = [  # four degrees of freedom of all seeds together, two of a lone comparison
        half_width((of_seeds, 4.0), (of_seeds, 2.0), text, Errors.of(0.95, 1)) for text in (None, (variance, WAVES))
    ]
    assert [effect.interval.high - effect.nats for effect in (without, with_text)] == pytest.approx(widths)  # type: ignore[union-attr,operator]


def test_what_single_seeds_add_along_the_text_is_what_neither_seed_nor_block_explains() -> None:
    rng = np.random.default_rng(6)
    of_seeds, of_blocks = rng.normal(0.0, 1.0, (3, 1)), rng.normal(0.0, 1.0, BLOCKS)
    found = [interaction_variance(of_seeds + of_blocks + rng.normal(0.0, 0.1, (3, BLOCKS))) for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0.1**2 / (3 * BLOCKS), rel=0.03)
    assert interaction_variance(of_seeds + of_blocks) == pytest.approx(0.0)


def test_what_makes_a_text_hard_for_all_variants_is_no_noise() -> None:
    hard = np.random.default_rng(2).normal(0.0, 1.0, BLOCKS)
    blocks = {name: np.array([[mean + d] for d in (0.0, 0.01)]) + hard for name, mean in (("base", 4.0), ("a", 4.1))}
    losses = {name: Losses((1, 2), found.mean(axis=1), found) for name, found in blocks.items()}
    assert compare(losses["base"], {"a": losses["a"]}).effects["a"].text_error == pytest.approx(0.0, abs=1e-12)


def test_the_correlation_of_seeds_is_the_intraclass_one() -> None:
    # Shrout and Fleiss 1979, table 2: six targets (seeds), four judges (variants); ICC(3,1) = .71, from .34.
    ratings = np.array([[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]], dtype=float)
    judges = {str(k): seeded(row) for k, row in enumerate(ratings)}
    found = correlation(judges, level=0.975)
    assert found is not None
    assert (found.estimate, found.used) == (pytest.approx(0.71, abs=0.005), pytest.approx(0.34, abs=0.005))
    assert correlation({"0": judges["0"]}) is None
    shifted = {"0": judges["0"], "1": seeded(ratings[0] + 2.0)}
    assert correlation(shifted) == Correlation(1.0, 0.0), "equal differences are too good to be relied on"
    later = {name: Losses(tuple(range(9, 15)), losses.nats) for name, losses in judges.items() if name != "0"}
    assert correlation(later | {"0": judges["0"]}) is None, "no seed in common"
    last = {name: Losses(tuple(range(6, 12)), losses.nats) for name, losses in later.items()}
    assert correlation(last | {"0": judges["0"]}) is None, "one seed in common"


def test_seeds_that_go_together_narrow_the_interval_and_others_do_not() -> None:
    rng = np.random.default_rng(3)
    common, own = rng.normal(0, 0.02, 5), rng.normal(0, 0.002, (5, 5))
    paired = {str(k): seeded(4.0 + 0.004 * k + common + own[k]) for k in range(5)}
    shuffled = {k: Losses(tuple(np.roll((1, 2, 3, 4, 5), int(k)).tolist()), v.nats) for k, v in paired.items()}
    for sweep, narrow in ((paired, True), (shuffled, False)):
        comparison = compare(sweep["0"], {k: v for k, v in sweep.items() if k != "0"})
        assert comparison.noise is not None and comparison.noise.correlation is not None
        assert (comparison.noise.correlation.used > 0.5) is narrow
        interval = comparison.effects["4"].interval
        assert interval is not None and ((interval.high - interval.low) / 2 < 0.03) is narrow


def test_pairing_narrows_only_by_what_surely_holds_in_every_contrast() -> None:
    """All together go together, and one of them with the baseline does not: the least of it all is used."""
    rng = np.random.default_rng(3)
    common, own = rng.normal(0, 0.02, 6), rng.normal(0, 0.002, (6, 6))
    alike = {str(k): seeded(4.0 + common + own[k]) for k in range(5)}
    alone = {"alone": seeded(4.0 + 0.02 * rng.normal(size=6))}

    def used(names: Iterable[str]) -> float:
        some = {name: losses for name, losses in (alike | alone).items() if name in names}
        found = correlation(some)
        assert found is not None
        return found.used

    every = {*alike, *alone}
    pairs = [used({"0", other}) for other in every - {"0"}]
    comparison = compare(alike["0"], {name: losses for name, losses in (alike | alone).items() if name != "0"})
    assert comparison.noise is not None and comparison.noise.correlation is not None
    assert used(every) > 0.3 and used({"0", "1"}) > used(every), "each is more than the least of all"
    assert comparison.noise.correlation.used == pytest.approx(min(used(every), *pairs)) == 0.0
    without = compare(alike["0"], {name: losses for name, losses in alike.items() if name != "0"})
    assert without.noise is not None and without.noise.correlation is not None
    assert without.noise.correlation.used > 0.5


def test_only_the_seeds_that_both_have_are_paired() -> None:
    rng = np.random.default_rng(5)
    common = rng.normal(0, 0.02, 8)
    base, some = (4.0 + common[:size] + rng.normal(0, 0.002, size) for size in (8, 5))
    comparison = compare(seeded(base), {"a": seeded(some)})
    assert comparison.noise is not None and comparison.noise.correlation is not None
    one, other = (comparison.noise.deviations[name].used for name in ("", "a"))
    together = comparison.noise.correlation.used
    assert together > 0.5
    variance = one**2 / 8 + other**2 / 5 - 2 * together * one * other * 5 / (8 * 5)
    assert comparison.effects["a"].seed_error == pytest.approx(math.sqrt(variance))


def test_a_contrast_of_halves_is_paired_by_its_weights() -> None:
    rng = np.random.default_rng(5)
    common, weights = rng.normal(0, 0.02, 6), {"a": 1.0, "b": -0.5, "c": -0.5}
    comparison = contrasts({name: seeded(4.0 + common + rng.normal(0, 0.002, 6)) for name in weights}, {"x": weights})
    assert comparison.noise is not None and comparison.noise.correlation is not None
    together, used = comparison.noise.correlation.used, [known.used for known in comparison.noise.deviations.values()]
    alone, by_weight = sum((w * d) ** 2 for w, d in zip(weights.values(), used, strict=True)), used[1] * used[2] / 4
    pairs = 2 * together * (by_weight - used[0] * used[1] / 2 - used[0] * used[2] / 2)
    assert together > 0.5 and comparison.effects["x"].seed_error == pytest.approx(math.sqrt((alone + pairs) / 6))


def test_groups_without_a_seed_in_common_are_not_paired() -> None:
    spread = np.array([-0.01, 0.0, 0.01])
    comparison = compare(seeded(4.0 + spread), {"a": Losses((4, 5, 6), 4.1 + spread)})
    assert comparison.noise is not None and comparison.noise.correlation is None
    assert comparison.effects["a"].seed_error == pytest.approx(0.01 * math.sqrt(2 / 3))


def test_two_groups_whose_own_seeds_agree_have_the_noise_that_a_third_lends() -> None:
    comparison = compare(seeded([4.0] * 3), groups(a=[4.1] * 3, loud=[5.0, 5.1, 5.2]))
    effect, weight = comparison.effects["a"], 2 / 8 * 1 * 4 / (1 + 4)
    assert effect.seed_error == pytest.approx(math.sqrt(2 / 3 * weight * (0.02 / 4) / (weight + 2)))
    reach = stats.t.isf((1 - 0.95 ** (1 / 2)) / 2, 2 * (weight + 2)) * effect.seed_error
    assert effect.interval is not None and effect.interval.high - effect.nats == pytest.approx(reach)


def test_the_text_is_in_the_intervals_if_every_group_has_its_losses_by_token() -> None:
    rng = np.random.default_rng(0)
    blocks = {name: rng.normal(4.0, 0.1, (3, BLOCKS)) for name in "abc"}
    every = {name: Losses((1, 2, 3), found.mean(axis=1), found) for name, found in blocks.items()}
    one_without = every | {"c": Losses((1, 2, 3), blocks["c"].mean(axis=1))}
    for groups, has_text in ((every, True), (one_without, False)):
        comparison = compare(groups["a"], {name: groups[name] for name in "bc"})
        assert comparison.noise is not None and (comparison.noise.text_correlation is not None) is has_text
        assert [(effect.text_error is not None) for effect in comparison.effects.values()] == [has_text] * 2


def test_verdicts_read_the_interval_alone() -> None:
    rng = np.random.default_rng(0)
    close = {"same": seeded(4.0 + 1e-4 * rng.normal(size=8)), "close": seeded(4.0 + 1e-4 * rng.normal(size=8) + 0.0006)}
    far = groups(worse=[4.30, 4.31, 4.29], better=[3.70, 3.71, 3.69], open=[4.005, 3.995, 4.01])
    quiet, loud = seeded(4.0 + 1e-4 * rng.normal(size=8)), seeded([4.00, 4.01, 3.99])
    found = {name: effect.verdict for name, effect in compare(quiet, close).effects.items()}
    assert found == {"same": "equivalent", "close": "raises"}
    assert compare(quiet, close, margin=1e-5).effects["same"].verdict == "not decided"
    found = {name: effect.verdict for name, effect in compare(loud, far).effects.items()}
    assert found == {"worse": "raises", "better": "lowers", "open": "not decided"}


@pytest.mark.parametrize("side", [-1, 1])
def test_an_interval_that_lies_within_the_margin_on_one_side_alone_decides_nothing(side: int) -> None:
    margin, base, spread = 0.005, seeded([4.0, 4.01, 3.99]), np.array([-0.01, 0.012, 0.0])
    (wide,) = compare(base, {"a": seeded(4.0 + spread)}).effects.values()
    assert wide.interval is not None
    reach = (wide.interval.high - wide.interval.low) / 2
    (effect,) = compare(base, {"a": seeded(4.0 + spread - wide.nats + side * (reach - margin / 2))}).effects.values()
    assert effect.interval is not None and (effect.interval.low < 0 < effect.interval.high) and reach > margin
    assert min(abs(effect.interval.low), abs(effect.interval.high)) == pytest.approx(margin / 2)
    assert effect.verdict == "not decided"


def test_further_seeds_may_decide_that_an_effect_lies_within_the_margin() -> None:
    base, alike = seeded([4.0, 4.01, 3.99]), groups(a=[4.011, 3.99, 4.0])
    few, none = (compare(base, alike, margin=margin).effects["a"].further for margin in (0.02, 1e-6))
    assert few is not None and few.seeds is not None and few.seeds < 20
    assert none is not None and none.seeds is None


def test_further_seeds_count_from_those_that_each_group_has() -> None:
    rng = np.random.default_rng(2)
    base, some = seeded(rng.normal(4.0, 0.01, 9)), seeded(rng.normal(4.004, 0.01, 5))
    comparison = compare(base, {"a": some})
    (effect,), noise = comparison.effects.values(), comparison.noise
    assert noise is not None and noise.correlation is not None and noise.correlation.used == 0.0
    parts = [(1.0, noise.deviations["a"], 5), (-1.0, noise.deviations[""], 9)]
    expected = further_seeds(effect.nats, parts, (0.0, 1.0, 0.0), Errors.of(0.95, 1), math.log1p(comparison.margin))
    assert effect.further == expected and expected.seeds is not None


@pytest.mark.parametrize(("base", "variant"), [([4.0], [4.2]), ([4.0, 4.1], [4.2]), ([4.0], [4.2, 4.3])])
def test_one_seed_has_no_interval(base: list[float], variant: list[float]) -> None:
    comparison = compare(seeded(base), groups(change=variant))
    effect = comparison.effects["change"]
    assert effect.interval is None and (effect.verdict, effect.obstacle) == ("no verdict", Obstacle("one seed"))
    assert effect.nats == pytest.approx(np.mean(variant) - np.mean(base))
    assert comparison.noise is None


def test_seeds_that_do_not_differ_give_no_noise_and_no_interval() -> None:
    still = [4.1] * 6
    assert np.ptp(still) == 0 and np.std(still) > 0, "rounding alone"
    comparison = compare(seeded(still), groups(change=[4.3] * 6))
    effect = comparison.effects["change"]
    assert comparison.intervals == 0 and effect.interval is None
    assert (effect.verdict, effect.obstacle) == ("no verdict", Obstacle("seeds do not differ"))


def test_a_component_that_does_nothing_is_named_and_adds_no_certainty() -> None:
    base, other = seeded([4.00, 4.02]), [4.05, 4.06]
    alone = compare(base, groups(other=other))
    beside = compare(base, groups(other=other, nothing=[4.00, 4.02]))
    effect = beside.effects["nothing"]
    assert effect == Effect(0.0, obstacle=Obstacle("equal in every seed"))
    assert beside.effects["other"] == alone.effects["other"]
    assert beside.noise is not None and "nothing" in beside.noise.deviations


def test_no_variants_is_no_comparison() -> None:
    comparison = compare(seeded([4.0, 4.1]), {})
    assert comparison.effects == {}
    assert comparison.noise is None


def test_losses_convert_to_perplexities() -> None:
    assert perplexity_change(math.log(60.0), math.log(66.0 / 60.0)) == pytest.approx(6.0)
    assert perplexity_ratio(math.log(1.1)) == pytest.approx(1.1)
    assert perplexity_change(4.0, 1e4) == math.inf
    assert perplexity_change(4.0, -1e4) == pytest.approx(-math.exp(4.0))


@pytest.mark.parametrize("setting", calibration.SETTINGS, ids=lambda setting: setting.name)
def test_sweeps_of_equals_err_no_more_often_than_they_say(setting: calibration.Setting) -> None:
    """A small form of the calibration benchmark: with two and with five seeds."""
    sweeps, wrong, together = 150, 0, 0
    rng = np.random.default_rng(7)
    for k in range(sweeps):
        comparison = calibration.judge(calibration.simulated(setting, (2, 5)[k % 2], rng))
        ends = [effect.interval or Interval(1, 0) for effect in comparison.effects.values()]
        wrong += any(calibration.is_wrong(effect.verdict, 0.0) for effect in comparison.effects.values())
        together += all(interval.low <= 0 <= interval.high for interval in ends)
    allowed = 0.05 * sweeps + 3 * math.sqrt(0.05 * 0.95 * sweeps)
    assert wrong <= allowed and sweeps - together <= allowed


def test_looks_err_no_more_often_than_one() -> None:
    sweeps, rng = 120, np.random.default_rng(8)
    wrong = sum(
        any(
            calibration.is_wrong(effect.verdict, 0.0)
            for comparison, _ in calibration.in_looks(calibration.simulated(calibration.SETTINGS[0], 8, rng))
            for effect in comparison.effects.values()
        )
        for _ in range(sweeps)
    )
    assert wrong <= 0.05 * sweeps + 3 * math.sqrt(0.05 * 0.95 * sweeps)


def test_an_effect_as_large_as_the_margin_is_seldom_told_as_none() -> None:
    truth, sweeps, rng = math.log1p(0.005), 100, np.random.default_rng(9)
    wrong = told = 0
    for _ in range(sweeps):
        at_margin = calibration.judge(calibration.simulated(calibration.SETTINGS[0], 20, rng, truth))
        wrong += any(effect.verdict == "equivalent" for effect in at_margin.effects.values())
        none = calibration.judge(calibration.simulated(calibration.SETTINGS[0], 20, rng))
        told += sum(effect.verdict == "equivalent" for effect in none.effects.values())
    assert wrong <= 0.05 * sweeps + 3 * math.sqrt(0.05 * 0.95 * sweeps)
    assert told > 0
