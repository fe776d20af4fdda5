"""What every part of a spec shares, and the kinds of number its fields hold.

The upper bounds are far above any published value: a number beyond one is a slip of the keyboard, which would
otherwise end in a full memory or a trial without end.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"should be a number, got {str(value).lower()}")
    return value


NO_SWITCH = BeforeValidator(_no_switch)
"""Of a number: `true` is none, though Python takes it for 1. Text that is one, as PyYAML reads 1e-3, stays one."""
Probability = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False), NO_SWITCH]
NonNegative = Annotated[float, Field(ge=0.0, le=1_000_000.0, allow_inf_nan=False), NO_SWITCH]
Positive = Annotated[float, Field(gt=0.0, le=1_000_000.0, allow_inf_nan=False), NO_SWITCH]
PositiveInt = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Size = Annotated[int, Field(ge=1, le=100_000, strict=True)]
"""A number of units of a layer, or of dimensions of a vector."""
Length = Annotated[int, Field(ge=2, le=1_000_000, strict=True)]
"""Tokens of a window; a penalty on its change over time needs two."""
Share = Annotated[float, Field(gt=0.0, lt=1.0, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


def _describe_kind(schema: dict[str, Any]) -> None:
    """A tag means what its part's docstring says first; editors show it when they complete the tag."""
    if "kind" in schema["properties"]:
        schema["properties"]["kind"]["description"] = schema["description"].split("\n\n")[0]


class Part(BaseModel):
    """A part of a spec: immutable, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", json_schema_extra=_describe_kind)
