"""What so many seeds can show, against simulated sweeps of other numbers that go through the report's own verdicts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis.comparison import Detectable, detectable, losses_on_test, smallest_detectable
from orchestrator.analysis.noise import BLOCKS, Losses, text_variance
from orchestrator.analysis.outcomes import Outcomes, read_outcomes
from orchestrator.analysis.statistics import compare
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import make_trial, settle, write_tokens


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
        decided += compare(baseline, variants).effects["0"].verdict == "raises"
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


TESTS = {"full": (60.0, 60.6, 61.2), "b": (63.0, 64.0), "longer": (59.0, 61.0)}


def settled(runs: Path, *, tokens: tuple[str, ...] = (), missing: tuple[Trial, ...] = ()) -> Outcomes:
    """`longer` has another budget; so it has no verdict, but noise and an interval."""
    trials = []
    for k, (variant, tests) in enumerate(TESTS.items()):
        for seed, test in enumerate(tests, start=1):
            trial = make_trial(variant, seed, batch_size=20 + k, epochs=12 + (variant == "longer"))
            settle(runs, trial, test)
            if variant in tokens:
                write_tokens(runs, trial, harder=k * seed / 10)
            trials.append(trial)
    return read_outcomes([*trials, *missing], Records(runs), "full")


def test_the_noise_is_that_of_all_seeds_that_are_there_and_of_their_text(tmp_path: Path) -> None:
    last = make_trial("b", 3, batch_size=21)
    outcomes = settled(tmp_path, tokens=tuple(TESTS), missing=(last,))
    found = detectable(outcomes, 0.02)
    nats = [np.log(tests) for tests in TESTS.values()]
    deviation = math.sqrt(sum(((each - each.mean()) ** 2).sum() for each in nats) / (2 + 1 + 1))
    blocks = {name: losses_on_test(group).blocks for name, group in outcomes.items()}
    means = {name: each.mean(axis=0) for name, each in blocks.items() if each is not None}
    text_error = math.sqrt(np.mean([text_variance(means[name] - means["full"]) for name in ("b", "longer")]))
    smallest = smallest_detectable(deviation, text_error, (3, 2), 2, 0.98)
    assert smallest is not None and text_error > 1e-4
    share = math.expm1(smallest[1])
    perplexity = math.exp(nats[0].mean()) * math.expm1(smallest[0])
    expected = (smallest[0], perplexity, share, deviation, text_error, 2)
    assert found == Detectable(*(pytest.approx(value) for value in expected))


def test_without_losses_by_token_of_the_baseline_the_texts_noise_is_unknown(tmp_path: Path) -> None:
    found = detectable(settled(tmp_path, tokens=("b",)))
    assert found is not None and found.text_error_nats is None
    assert found.nats == smallest_detectable(found.deviation_nats, 0.0, (3, 2), 2)[0]  # type: ignore[index]


def test_before_the_baseline_is_complete_the_others_tell_the_perplexity(tmp_path: Path) -> None:
    outcomes = settled(tmp_path)
    early = Outcomes(
        {"full": read_outcomes([make_trial("full", 9)], Records(tmp_path), "full").of_baseline}
        | {name: outcomes[name] for name in ("b", "longer")},
        "full",
    )
    assert detectable(early) is None, "one seed of the baseline is planned"
    two = read_outcomes([make_trial("full", 8), make_trial("full", 9)], Records(tmp_path), "full").of_baseline
    found = detectable(Outcomes({"full": two} | {name: outcomes[name] for name in ("b", "longer")}, "full"))
    assert found is not None
    assert found.perplexity == pytest.approx(math.exp(np.log(TESTS["b"]).mean()) * math.expm1(found.nats))
