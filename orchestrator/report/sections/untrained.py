"""What the page says of complete trials that are worse than guessing."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.analysis.guessing import Untrained, untrained
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.words import number


def untrained_section(outcomes: Mapping[str, tuple[Outcome, ...]]) -> dict[str, object]:
    """The values for the page: a row for every trial that did not train."""
    found = untrained(flat(outcomes))
    return {
        "untrained": [_cells(one) for one in found],
        "untrained_uniform": any(one.guess.model == "uniform" for one in found),
    }


def _cells(one: Untrained) -> dict[str, object]:
    return {
        "variant": one.outcome.trial.variant,
        "seed": one.outcome.trial.seed,
        "split": {"valid": "validation", "test": "test"}[one.split],
        "perplexity": number(one.perplexity),
        "model": f"{one.guess.model} model",
        "guess": number(one.guess.perplexity),
    }
