"""Verdicts in words: why there is none, what would decide, what a row of a table says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.analysis.effects import (
    MOST_FURTHER,
    Comparison,
    Effect,
    Further,
    Interval,
    Obstacle,
    Reason,
    per_cent,
)
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.words import counted, listed, rounded_by_interval, signed, significant

WORSE_THAN_GUESSING: Reason = "worse than guessing"
TWOFOLD = "a twofold change cannot be excluded"
NOT_DECIDED = "not decided"
NAMED = 3
"""The most that a clause names if nothing is decided about them; more are counted."""
LISTED = 8
"""The most of one verdict that a sentence lists."""
OTHER_TEXT = "scored on another text, or in another number of columns"
NO_NOISE = "the seeds do not differ, so the seed noise cannot be estimated"


def why_no_verdict(obstacle: Obstacle, *, of_contrast: bool = False) -> str:
    """A clause that says why there is no verdict, and names the variants that are the reason."""
    many = len(obstacle.variants) > NAMED
    names = f"{len(obstacle.variants)} variants" if many else listed(obstacle.variants)
    adapts = "adapts" if len(obstacle.variants) == 1 else "adapt"
    why: dict[Reason, str] = {
        "adaptive": f"{names} {adapts} to the text of the test",
        "not complete": f"{names} not complete",
        "worse than guessing": f"{names} {'is' if len(obstacle.variants) == 1 else 'are'} {WORSE_THAN_GUESSING}",
        "another test text": OTHER_TEXT,
        "another budget": "another budget",
        "one seed": "one seed: the seed noise is unknown",
        "seeds do not differ": NO_NOISE,
        "equal in every seed": f"{'the variants are equal' if of_contrast else 'equal to the baseline'} in every seed",
    }
    return why[obstacle.reason]


def why_nothing_complete(incomplete: Sequence[str], trials: int) -> str:
    """A clause that says why no trial of a page is complete; each row of `incomplete` says why its own are not."""
    if any(status in row for row in incomplete for status in ("unfinished", "missing", "failed")):
        return "nothing is complete yet"
    return "the only trial diverged" if trials == 1 else f"all {trials} trials diverged"


def verdict_in_words(effect: Effect, margin: float) -> str:
    """A verdict with its margin, `no effect larger than 0.5%`."""
    return no_effect(margin) if effect.verdict == "equivalent" else effect.verdict


def in_percent(nats: float, interval: Interval | None) -> str:
    """A difference of losses as a change of perplexity: `+3.2% [+0.5%, +6.0%]`."""
    if interval is None:
        return f"{signed(per_cent(nats), 1)}%"
    change, low, high = rounded_by_interval(*map(per_cent, (nats, *interval)))
    return f"{change}% [{low}%, {high}%]"


def by_percent(effect: Effect) -> str:
    """The size of a decided effect, without a sign, and its interval: `3.2% (−6.0% to −0.5%)`."""
    assert effect.interval is not None
    change, low, high = rounded_by_interval(*map(per_cent, (effect.nats, *effect.interval)))
    return f"{change.lstrip('+−')}% ({low}% to {high}%)"


def at_most(effects: Sequence[Effect]) -> str:
    """How large effects that are not decided can be: `at most 2.3% either way`."""
    largest = max(abs(per_cent(end)) for effect in effects for end in effect.interval or ())
    return TWOFOLD if any(map(may_be_twofold, effects)) else f"at most {significant(largest, 2)}% either way"


def may_be_twofold(effect: Effect) -> bool:
    """Whether the interval has twice or half the perplexity in it."""
    return any(not -50.0 <= per_cent(end) <= 100.0 for end in effect.interval or ())


def signed_ends(effects: Sequence[Effect]) -> str:
    """Between which changes effects that are not decided lie, all of them: `−3.1% to +3.3%`."""
    if any(map(may_be_twofold, effects)):
        return TWOFOLD
    ends = [per_cent(end) for effect in effects for end in effect.interval or ()]
    low, high = min(ends), max(ends)
    between = per_cent(effects[0].nats) if len(effects) == 1 else (low + high) / 2
    _, low_end, high_end = rounded_by_interval(between, low, high)
    return f"{low_end}% to {high_end}%"


def all_within(effects: Sequence[Effect]) -> str:
    """The same of many effects, those that may be twofold apart: `all within −3.1% to +3.3%`."""
    narrow = [effect for effect in effects if not may_be_twofold(effect)]
    if not narrow:
        return TWOFOLD
    if wide := len(effects) - len(narrow):
        return f"{len(narrow)} within {signed_ends(narrow)}; of {wide} {TWOFOLD}"
    return f"all within {signed_ends(narrow)}"


def no_effect(margin: float) -> str:
    """That an effect is smaller than the margin."""
    return f"no effect larger than {100 * margin:.3g}%"


def level_in_words(comparison: Comparison | float | None) -> str:
    """The probability with which the intervals of a comparison, or of a level, cover, all at once: `95%`."""
    level = comparison.level if isinstance(comparison, Comparison) else comparison or 1 - LEVEL_OF_ERROR
    nines = math.floor(-math.log10(1 - level)) if level < 1 else 0
    return f"{100 * level:.{max(3, 1 + nines)}g}%"  # that of an early look is no 100%


def what_would_decide(further: Further | None) -> str:
    """What would decide, in a few words; empty if the effect is decided."""
    if further is None:
        return ""
    if further.text == "short":
        return "only a longer test text" if further.seeds_suffice else "more seeds on a longer test text"
    if further.text == "perhaps short":
        return (
            "perhaps only a longer test text" if further.seeds_suffice else "more seeds, perhaps on a longer test text"
        )
    more = f"more than {MOST_FURTHER} more seeds"
    return more if further.seeds is None else f"about {counted(further.seeds, 'more seed')}"
