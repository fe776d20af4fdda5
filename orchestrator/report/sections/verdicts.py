"""Verdicts in words: why there is none, what would decide, what a row of a table says."""

from __future__ import annotations

from orchestrator.analysis.effects import Comparison, Effect, Obstacle, Reason
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.power import MOST_FURTHER, Further
from orchestrator.words import counted, listed

DID_NOT_TRAIN = "did not train"
NO_NOISE = "the seeds do not differ, so the seed noise cannot be estimated"


def why_no_verdict(obstacle: Obstacle, *, of_contrast: bool = False) -> str:
    """A clause that says why there is no verdict, and names the variants that are the reason."""
    names = listed(obstacle.variants)
    adapts = "adapts" if len(obstacle.variants) == 1 else "adapt"
    why: dict[Reason, str] = {
        "adaptive": f"{names} {adapts} to the text of the test",
        "not complete": f"{names} not complete",
        "did not train": f"{names} {DID_NOT_TRAIN}",
        "another test text": "scored on another text",
        "another budget": "another budget",
        "one seed": "one seed: the seed noise is unknown",
        "seeds do not differ": NO_NOISE,
        "equal in every seed": f"{'the variants are equal' if of_contrast else 'equal to the baseline'} in every seed",
    }
    return why[obstacle.reason]


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
