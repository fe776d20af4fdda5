"""What every part of a spec shares, and the kinds of number its fields hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
Share = Annotated[float, Field(gt=0.0, lt=1.0, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class Part(BaseModel):
    """A part of a spec: immutable, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
