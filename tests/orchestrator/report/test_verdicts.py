"""Verdicts in words, at the edges of their rules."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from orchestrator.analysis.effects import MOST_FURTHER, Comparison, Effect, Further, Interval, Obstacle, Reason
from orchestrator.report.sections.verdicts import (
    TWOFOLD,
    all_within,
    at_most,
    level_in_words,
    signed_ends,
    what_would_decide,
    why_no_verdict,
)


def effect(low: float, high: float) -> Effect:
    """An effect whose interval has these ends, as factors of perplexity."""
    return Effect(0.0, Interval(math.log(low), math.log(high)), "not decided")


@pytest.mark.parametrize(
    ("reason", "variants", "of_contrast", "words"),
    [
        ("adaptive", ("a",), False, "a adapts to the text of the test"),
        ("adaptive", ("a", "b"), False, "a and b adapt to the text of the test"),
        ("worse than guessing", ("a",), False, "a is worse than guessing"),
        ("worse than guessing", ("a", "b", "c"), True, "a, b and c are worse than guessing"),
        ("equal in every seed", (), False, "equal to the baseline in every seed"),
        ("equal in every seed", (), True, "the variants are equal in every seed"),
        ("not complete", ("a",), False, "a not complete"),
        ("not complete", ("a", "b", "c", "d"), False, "4 variants not complete"),
    ],
)
def test_why_there_is_no_verdict(reason: str, variants: tuple[str, ...], of_contrast: bool, words: str) -> None:
    assert why_no_verdict(Obstacle(reason, variants), of_contrast=of_contrast) == words  # type: ignore[arg-type]


def test_every_reason_has_words_of_its_own() -> None:
    words = [why_no_verdict(Obstacle(reason, ("a",))) for reason in get_args(Reason)]
    assert all(words) and len(set(words)) == len(get_args(Reason))


@pytest.mark.parametrize(
    ("ends", "largest", "between"),
    [
        ([(0.9691, 1.0331)], "at most 3.3% either way", "−3.1% to +3.3%"),
        ([(0.95, 1.01), (0.99, 1.02)], "at most 5.0% either way", "−5.0% to +2.0%"),
        ([(0.7, 1.0041)], "at most 30% either way", "−30% to +0.41%"),
        ([(0.5, 2.0)], "at most 100% either way", "−50% to +100%"),
        ([(0.499, 1.0)], TWOFOLD, TWOFOLD),
        ([(1.0, 2.01)], TWOFOLD, TWOFOLD),
    ],
)
def test_how_large_an_undecided_effect_can_be(ends: list[tuple[float, float]], largest: str, between: str) -> None:
    effects = [effect(low, high) for low, high in ends]
    assert (at_most(effects), signed_ends(effects)) == (largest, between)
    assert all_within(effects) == (TWOFOLD if between == TWOFOLD else f"all within {between}")


def test_one_wide_interval_does_not_hide_the_others() -> None:
    effects = [effect(0.95, 1.01), effect(0.4, 3.0), effect(0.99, 1.02)]
    assert all_within(effects) == f"2 within −5.0% to +2.0%; of 1 {TWOFOLD}"


@pytest.mark.parametrize(
    ("error", "words"),
    [(0.05, "95%"), (0.025, "97.5%"), (0.0004, "99.96%"), (6.1e-5, "99.994%"), (1e-7, "99.99999%"), (0.0, "100%")],
)
def test_an_early_looks_level_is_not_100_per_cent(error: float, words: str) -> None:
    assert level_in_words(Comparison({}, None, 1, 0, 1 - error, 0.005)) == words


def test_what_would_decide() -> None:
    assert what_would_decide(None) == ""
    assert what_would_decide(Further(1, "long enough")) == "about 1 more seed"
    assert what_would_decide(Further(None, "long enough")) == f"more than {MOST_FURTHER} more seeds"
    assert what_would_decide(Further(5, "short")) == "only a longer test text"
    assert what_would_decide(Further(5, "perhaps short")) == "perhaps only a longer test text"
    assert what_would_decide(Further(None, "short", seeds_suffice=False)) == "more seeds on a longer test text"
    assert what_would_decide(Further(None, "perhaps short", False)) == "more seeds, perhaps on a longer test text"
