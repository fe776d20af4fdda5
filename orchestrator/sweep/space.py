"""What may be searched: numbers in a range, choices, named changes, each perhaps for some trials alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from lm.spec import Part
from lm.validation import NAME, shown
from orchestrator.words import value_in_words

Name = Annotated[str, Field(pattern=NAME, max_length=80)]
_Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_Scalar = bool | int | float | str | None


class _Dimension(Part):
    """`when` names values by their dotted paths, or options of choices and changes that come earlier in the space."""

    when: dict[str, _Scalar] = Field(
        default={},
        description="For which trials the value is searched: earlier values by dotted path, or options of earlier "
        "choices and changes, such as {head.kind: mixture} or {output layer: codes}; all hold. Empty: every trial.",
    )


class _Range(_Dimension):
    kind: str
    low: _Finite = Field(description="The lower end.")
    high: _Finite = Field(description="The upper end.")

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
    low: Annotated[_Finite, Field(gt=0.0)] = Field(description="The lower end, above 0.")


class Integer(_Range):
    """A whole number between two ends, both included; with `log` its logarithm is uniformly distributed."""

    kind: Literal["integer"]
    low: int = Field(strict=True, description="The smallest number.")
    high: int = Field(strict=True, description="The largest number.")
    log: bool = Field(
        default=False,
        strict=True,
        description="Whether its logarithm is uniform, for numbers that span orders of magnitude.",
    )

    @model_validator(mode="after")
    def _check_log(self) -> Self:
        if self.log and self.low < 1:
            raise ValueError(f"low must be at least 1 on a log scale, got {self.low}")
        return self


class OneOf(_Dimension):
    """One of several options; the value of a trial is an option's name."""

    kind: str
    among: Any

    @property
    def options(self) -> dict[str, Any]:
        """Every option by its name."""
        return self.among if isinstance(self.among, dict) else {"null" if v is None else str(v): v for v in self.among}

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        if len(self.options) < len(self.among):
            raise ValueError(f"among must hold distinct values, got {list(self.among)}")
        for (first, a), (second, b) in itertools.combinations(self.options.items(), 2):
            if same_value(a, b):
                raise ValueError(f"among must hold distinct values, but options {first!r} and {second!r} are the same")
        return self


class Choice(OneOf):
    """One of several values: a list of plain ones, or named ones, which may be whole parts."""

    kind: Literal["choice"]
    among: Annotated[
        Annotated[tuple[_Scalar, ...], Field(min_length=2), Tag("list")]
        | Annotated[dict[Name, Any], Field(min_length=2), Tag("mapping")],
        Discriminator(lambda value: "list" if isinstance(value, list | tuple) else "mapping"),
    ] = Field(description="The values to choose from: a list, or a mapping from names to values.")


class Change(OneOf):
    """One of several named changes, each written as a variant's; it stands in the space under a name of its own."""

    kind: Literal["change"]
    among: Annotated[dict[Name, dict[str, Any]], Field(min_length=2)] = Field(
        description="The changes to choose from, by name: values by dotted path, as a variant has them. An empty one "
        "is the base."
    )


Range = Uniform | LogUniform | Integer
Dimension = Range | Choice | Change


def _check_apart(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Of these ranges of one path no two may hold in the same trial, by their conditions alone."""
    for (first, a), (second, b) in itertools.combinations(enumerate(ranges, 1), 2):
        if not any(a.when[path] != b.when[path] for path in a.when.keys() & b.when.keys()):
            problem = f"ranges {first} and {second} may hold for the same trial"
            raise ValueError(f"{problem}: their 'when' must give one path two values")
    if len({isinstance(dimension, Integer) for dimension in ranges}) > 1:
        raise ValueError("ranges of one path must be all of whole numbers (kind integer), or none of them")
    return ranges


def _check_no_bare_values(value: object) -> object:
    """A list of plain values is a choice that lacks its kind."""
    if isinstance(value, list) and value and all(isinstance(one, _Scalar) for one in value):
        values = ", ".join(map(shown, value))
        raise ValueError(f"a list here has ranges; values to choose from are {{kind: choice, among: [{values}]}}")
    return value


_Ranges = tuple[Annotated[Range, Field(discriminator="kind")], ...]
Dimensions = Annotated[
    Annotated[Annotated[Dimension, Field(discriminator="kind")], Tag("one value")]
    | Annotated[_Ranges, Field(min_length=2), AfterValidator(_check_apart), Tag("ranges")],
    Discriminator(lambda value: "ranges" if isinstance(value, list | tuple) else "one value"),
    BeforeValidator(_check_no_bare_values),
]
Space = Annotated[dict[str, Dimensions], Field(min_length=1)]
"""By dotted path into the base a dimension, or ranges for different trials; applied in the file's order."""


def same_value(one: object, other: object) -> bool:
    """Whether two values of a sweep file are the same: 1 and 1.0 are, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def dimensions_of(place: Dimension | Sequence[Range]) -> Sequence[Dimension]:
    """What may be searched at one place of a space: a single dimension, or each of its ranges."""
    return place if isinstance(place, Sequence) else (place,)


def is_log(dimension: Range) -> bool:
    """Whether a range is searched on a log scale."""
    return isinstance(dimension, LogUniform) or (isinstance(dimension, Integer) and dimension.log)


def range_in_words(dimension: Dimension) -> str:
    """What is searched: `0.1 to 0.6`, `whole, 1 to 4`, the options of a choice; and where it is."""
    if isinstance(dimension, OneOf):
        words = ", ".join(dimension.options)
    else:
        whole = "whole, " if isinstance(dimension, Integer) else ""
        words = f"{whole}{dimension.low:g} to {dimension.high:g}" + ", on a log scale" * is_log(dimension)
    where = ", ".join(f"{path} is {value_in_words(value)}" for path, value in dimension.when.items())
    return words + (f"; where {where}" if where else "")


def fits(dimension: Dimension, value: object) -> bool:
    """Whether a dimension can give a value; the value of a choice or change is the name of an option."""
    if isinstance(dimension, Choice | Change):
        return isinstance(value, str) and value in dimension.options
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return dimension.low <= value <= dimension.high and (not isinstance(dimension, Integer) or value == int(value))
