"""A sweep file's seeds: a list, or rounds that end when every comparison is decided."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from lm.spec import Part
from orchestrator.sweep.problems import shown


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    twice = next((seed for i, seed in enumerate(seeds) if seed in seeds[:i]), None)
    if twice is not None:
        raise ValueError(f"seeds must be distinct, got {twice} twice")
    return seeds


def _a_list(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError(f"should be a list such as [1, 2, 3], or {{min, max, until: decided}}, got {shown(value)}")
    return value


Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63, strict=True)], ...],
    Field(min_length=1),
    AfterValidator(_distinct),
    BeforeValidator(_a_list),
]


class UntilDecided(Part):
    """Seeds from 1 on, in rounds: `min` for every variant, then more where a comparison is still undecided."""

    min: int = Field(default=2, ge=2)
    max: int = Field(ge=2)
    until: Literal["decided"]
    total: int | None = Field(default=None, ge=1, description="no round begins that would make more trials in all")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max must be at least min, got {self.max} and {self.min}")
        return self

    @property
    def looks(self) -> tuple[int, ...]:
        """How many seeds a variant has at each look at the comparisons: half as many more each time, 2 3 4 6 9."""
        looks = [self.min]
        while looks[-1] < self.max:
            looks.append(min(self.max, looks[-1] + max(1, looks[-1] // 2)))
        return tuple(looks)


def _which_seeds(value: object) -> str:
    return "rounds" if isinstance(value, dict | UntilDecided) else "list"


SomeSeeds = Annotated[
    Annotated[Seeds, Tag("list")] | Annotated[UntilDecided, Tag("rounds")], Discriminator(_which_seeds)
]
