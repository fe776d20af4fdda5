"""Models without context as rows beside the variants: what they reach says how much is learnt. Never compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.analysis.guessing import guesses, reference_corpus
from orchestrator.analysis.outcomes import Outcome
from orchestrator.words import NOTHING, number

REFERENCE = "reference, not compared"
_CHANGES = {
    "unigram": "nothing is learnt but how often the training text has each word (add-one smoothed)",
    "uniform": "nothing is learnt: every word of the vocabulary is as probable as any other",
}


@dataclass(frozen=True)
class ReferenceRow:
    """A model without context; its parameters are one probability a word, or none."""

    name: str
    change: str
    parameters: int
    valid: float | None
    test: float


def reference_rows(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> list[ReferenceRow]:
    """The unigram and the uniform model on the baseline's corpus; none before one of its trials has ended a stage."""
    corpus = reference_corpus(outcomes[baseline])
    if corpus is None:
        return []
    valid = {guess.model: guess.perplexity for guess in guesses(corpus, "valid")}
    return [
        ReferenceRow(
            name=f"{guess.model} model",
            change=_CHANGES[guess.model],
            parameters=corpus.vocabulary_size if guess.model == "unigram" else 0,
            valid=valid.get(guess.model),
            test=guess.perplexity,
        )
        for guess in guesses(corpus, "test")
    ]


def perplexity_cell(perplexity: float | None) -> str:
    """A reference's perplexity, which no seed changes."""
    return NOTHING if perplexity is None else number(perplexity)
