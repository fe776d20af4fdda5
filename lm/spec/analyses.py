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


Analysis = Annotated[RankAnalysis | SubspaceAnalysis, Field(discriminator="kind")]
"""Every kind; `lm.analyze.ask.find` answers each."""

_Kind = Literal["rank", "subspace"]
AskedAnalysis = Annotated[
    Analysis,
    BeforeValidator(lambda x: {"kind": x} if isinstance(x, str) else x, json_schema_input_type=_Kind | Analysis),
]
"""An analysis as a sweep file has it: with its settings, or its kind alone."""


def unanswerable(analysis: Analysis, spec: TrainSpec) -> str | None:
    """Why the models of a spec cannot be asked this; None if they can."""
    match analysis:
        case RankAnalysis():
            return None
        case SubspaceAnalysis():
            return subspace_misfit(spec.head, spec.model)
        case _:
            assert_never(analysis)
