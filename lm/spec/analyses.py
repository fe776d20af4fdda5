"""What trained weights are asked beside perplexity: a closed union, tagged by `kind`; no part of a trial's key."""

from __future__ import annotations

from typing import Annotated, Literal, assert_never

from pydantic import BeforeValidator, Field

from lm.spec.fit import subspace_misfit
from lm.spec.part import Part, PositiveInt
from lm.spec.trial import TrainSpec


class _OfText(Part):
    split: Literal["valid", "test"] = Field(default="test", description="The text that is read, in one column.")


class RankAnalysis(_OfText):
    """Rank of the matrix of log-probabilities of a text (Yang et al. 2018; Takase et al. 2018, Table 5)."""

    kind: Literal["rank"]
    positions: PositiveInt = Field(
        default=20_000,
        description="Rows of the matrix: this many consecutive predictions from the text's first on, or all that it "
        "has. With fewer than V the rank cannot reach V.",
    )


class SubspaceAnalysis(Part):
    """Distance of the output matrix's column space from the embedding's (Inan et al. 2016, Figure 1)."""

    kind: Literal["subspace"]


class NextWordsAnalysis(_OfText):
    """The most probable next words in given contexts, and what a text's words get (Inan et al. 2016, Table 4)."""

    kind: Literal["next_words"]
    contexts: tuple[Annotated[str, Field(pattern=r"\S")], ...] = Field(
        default=(),
        description="Words of the text, split at blanks; the whole text up to their first place is read. Those that "
        "the text does not have are left out. Empty, or if it has none of them: four places, spread over the text.",
    )
    words: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(
        default=10, description="How many next words are listed of each context."
    )


class CodeErrorsAnalysis(_OfText):
    """Which bits of an ECOC head fail, how many at a time, and what correction mends (O'Neill & Bollegala 2019)."""

    kind: Literal["code_errors"]


Analysis = Annotated[
    RankAnalysis | SubspaceAnalysis | NextWordsAnalysis | CodeErrorsAnalysis, Field(discriminator="kind")
]
"""Every kind; `lm.analyze.ask.find` answers each."""

_Kind = Literal["rank", "subspace", "next_words", "code_errors"]
AskedAnalysis = Annotated[
    Analysis,
    BeforeValidator(lambda x: {"kind": x} if isinstance(x, str) else x, json_schema_input_type=_Kind | Analysis),
]
"""An analysis as a sweep file has it: with its settings, or its kind alone."""


def unanswerable(analysis: Analysis, spec: TrainSpec) -> str | None:
    """Why the models of a spec cannot be asked this; None if they can."""
    match analysis:
        case RankAnalysis() | NextWordsAnalysis():
            return None
        case CodeErrorsAnalysis():
            return None if spec.head.kind == "ecoc" else f"bits are those of a head of kind ecoc, got {spec.head.kind}"
        case SubspaceAnalysis():
            return subspace_misfit(spec.head, spec.model)
        case _:
            assert_never(analysis)
