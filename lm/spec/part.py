"""What every part of a spec shares, and the kinds of number its fields hold.

The upper bounds are far above any published value: a number beyond one is a slip of the keyboard, which would
otherwise end in a full memory or a trial without end.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, le=1_000_000.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, le=1_000_000.0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Size = Annotated[int, Field(ge=1, le=100_000, strict=True)]
"""A number of units of a layer, or of dimensions of a vector."""
Length = Annotated[int, Field(ge=2, le=1_000_000)]
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
