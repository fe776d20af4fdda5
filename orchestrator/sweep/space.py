"""A search's space: which values may stand where, and for which trials."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from lm.spec import Part
from lm.validation import NAME

Name = Annotated[str, Field(pattern=NAME, max_length=80)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Scalar = bool | int | float | str | None


class _Dimension(Part):
    """One searched value; `when` says for which trials.

    It names values by their dotted paths, or options of choices and changes that come earlier in the space.
    """

    when: dict[str, Scalar] = Field(
        default={},
        description="For which trials the value is searched: earlier values by dotted path, or options of earlier"
        " choices and changes, such as {head.kind: mixture} or {output layer: codes}; all must hold. "
        "Empty: for every trial.",
    )


class _Range(_Dimension):
    """A number between two ends."""

    kind: str
    low: Finite = Field(description="The lower end.")
    high: Finite = Field(description="The upper end.")

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low:g} and {self.high:g}")
        return self


class Uniform(_Range):
    """A number between two ends, uniformly distributed."""

    kind: Literal["uniform"]


class LogUniform(_Range):
    """A positive number between two ends, its logarithm uniformly distributed."""

    kind: Literal["log_uniform"]
    low: Annotated[Finite, Field(gt=0.0)] = Field(description="The lower end, above 0.")


class Integer(_Range):
    """A whole number between two ends, both included; with `log` its logarithm is uniformly distributed."""

    kind: Literal["integer"]
    low: int = Field(description="The smallest number.")
    high: int = Field(description="The largest number.")
    log: bool = Field(
        default=False,
        description="Whether the logarithm is uniformly distributed, for numbers that span orders of magnitude.",
    )

    @model_validator(mode="after")
    def _check_log(self) -> Self:
        if self.log and self.low < 1:
            raise ValueError(f"low must be at least 1 on a log scale, got {self.low}")
        return self


class Choice(_Dimension):
    """One of several values: a list of plain ones, or named ones, which may be whole parts."""

    kind: Literal["choice"]
    among: Annotated[tuple[Scalar, ...], Field(min_length=2)] | Annotated[dict[Name, Any], Field(min_length=2)] = Field(
        description="The values to choose from: a list, or a mapping from names to values."
    )

    @property
    def options(self) -> dict[str, Any]:
        """Every value by its name."""
        if isinstance(self.among, dict):
            return self.among
        return {"null" if value is None else str(value): value for value in self.among}

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        if len(self.options) < len(self.among):
            raise ValueError(f"among must hold distinct values, got {list(self.among)}")
        return self


class Change(_Dimension):
    """One of several named changes, each written as a variant's; it stands in the space under a name of its own."""

    kind: Literal["change"]
    among: Annotated[dict[Name, dict[str, Any]], Field(min_length=2)] = Field(
        description="The changes to choose from, by name: values by dotted path, as a variant has them. An empty "
        "one is the base."
    )

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """Every change by its name."""
        return self.among


Range = Uniform | LogUniform | Integer
Dimension = Range | Choice | Change


def _check_apart(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """No two of these ranges of one path may hold in the same trial, judged by their conditions alone."""
    for (first, a), (second, b) in itertools.combinations(enumerate(ranges, 1), 2):
        if not any(a.when[path] != b.when[path] for path in a.when.keys() & b.when.keys()):
            raise ValueError(
                f"ranges {first} and {second} may hold for the same trial: their 'when' must give one path two values"
            )
    if len({isinstance(dimension, Integer) for dimension in ranges}) > 1:
        raise ValueError("ranges of one path must be all of whole numbers (kind integer), or none of them")
    return ranges


Ranges = Annotated[
    tuple[Annotated[Range, Field(discriminator="kind")], ...], Field(min_length=2), AfterValidator(_check_apart)
]
"""Ranges of one path for different trials, such as a learning rate for each output layer."""
Dimensions = Annotated[
    Annotated[Annotated[Dimension, Field(discriminator="kind")], Tag("one value")] | Annotated[Ranges, Tag("ranges")],
    Discriminator(lambda value: "ranges" if isinstance(value, list | tuple) else "one value"),
]
Space = Annotated[dict[str, Dimensions], Field(min_length=1)]
"""Dotted paths into the base and what may stand there, applied in the file's order: a part before what is in it.

If none of a path's conditions holds, the path keeps the value that the trial has there anyway.
"""


def dimensions_of(place: Dimension | Sequence[Range]) -> Sequence[Dimension]:
    """What may be searched at one place of a space: a single dimension, or each of its ranges."""
    return place if isinstance(place, Sequence) else (place,)


def fits(dimension: Dimension, value: object) -> bool:
    """Whether a dimension can give a value; the value of a choice or change is the name of an option."""
    if isinstance(dimension, Choice | Change):
        return isinstance(value, str) and value in dimension.options
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return dimension.low <= value <= dimension.high and (not isinstance(dimension, Integer) or value == int(value))
