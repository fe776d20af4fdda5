"""How text is drawn from a trained model, and by what it ranks candidates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lm.spec.part import NO_SWITCH, NonNegative, Part, PositiveInt, Seed

Ranking = Literal["total", "mean", "interpolated"]


class Generate(Part):
    """Text drawn word by word from a trained model; it changes no number of a trial.

    Banned words are left out first, then the temperature acts, then `top_k`, then `top_p`.
    """

    words: Annotated[int, Field(ge=1, le=100_000, strict=True)] = Field(
        default=60, description="Words of a sample, `<eos>` (the end of a line) included."
    )
    samples: Annotated[int, Field(ge=1, le=100_000, strict=True)] = Field(
        default=50, description="Samples that are drawn; a page shows the first, and counts n-grams over all of them."
    )
    temperature: NonNegative = Field(
        default=1.0, description="What log-probabilities are divided by; 0: always the most probable word."
    )
    top_k: PositiveInt | None = Field(default=None, description="Only the k most probable words; null: all.")
    top_p: Annotated[float, Field(gt=0.0, le=1.0), NO_SWITCH] | None = Field(
        default=None,
        description="Only the fewest most probable words that together have this probability (nucleus sampling; "
        "Holtzman et al. 2020, section 3.1); null: all.",
    )
    prompt: str = Field(
        default="", description="Words of the corpus that the text goes on from, after the end of a line."
    )
    ban: tuple[str, ...] = Field(default=(), description="Words that are never drawn, such as `<unk>`.")
    seed: Seed = Field(default=1, description="Of the draws: sample i depends on it and on i alone.")
