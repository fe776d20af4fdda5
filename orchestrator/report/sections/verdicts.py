"""Verdicts in words: why there is none, what would decide, what a row of a table says."""

from __future__ import annotations

from orchestrator.analysis.effects import Comparison, Effect, Obstacle
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.power import MOST_FURTHER, Further
from orchestrator.words import counted, listed

DID_NOT_TRAIN = "did not train"
NO_NOISE = "the seeds do not differ, so the seed noise cannot be estimated"


def why_no_verdict(obstacle: Obstacle, *, of_contrast: bool = False) -> str:
    """A clause that says why there is no verdict, and names the variants that are the reason."""
    names = listed(obstacle.variants)
    match obstacle.reason:
        case "adaptive":
            return f"{names} {'adapts' if len(obstacle.variants) == 1 else 'adapt'} to the text of the test"
        case "not complete":
            return f"{names} not complete"
        case "did not train":
            return f"{names} {DID_NOT_TRAIN}"
        case "another test text":
            return "scored on another text"
        case "another budget":
            return "another budget"
        case "one seed":
            return "one seed: the seed noise is unknown"
        case "seeds do not differ":
            return NO_NOISE
        case "equal in every seed":
            return "the variants are equal in every seed" if of_contrast else "equal to the baseline in every seed"


def verdict_in_words(effect: Effect, margin: float) -> str:
    """A verdict with its margin, `no effect larger than 0.5%`."""
    return no_effect(margin) if effect.verdict == "equivalent" else effect.verdict


def no_effect(margin: float) -> str:
    """That an effect is smaller than the margin."""
    return f"no effect larger than {100 * margin:.3g}%"


def level_in_words(comparison: Comparison | None) -> str:
    """The probability with which the intervals cover, all at once: `95%`."""
    return f"{100 * (1 - LEVEL_OF_ERROR if comparison is None else comparison.level):.3g}%"


def what_would_decide(further: Further | None) -> str:
    """How many more seeds would decide, in a few words."""
    if further is None:
        return ""
    if further.text == "short":
        return "no number of seeds would tell: the test text is too short"
    if further.text == "perhaps short":
        return "no number of seeds would tell, with the noise of the test text as it is estimated"
    if further.seeds is None:
        return f"more than {MOST_FURTHER} more seeds would be needed"
    return f"about {counted(further.seeds, 'more seed')} would decide"
