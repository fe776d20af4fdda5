"""How a model goes on learning while it is scored."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lm.spec.part import NonNegative, Part, Positive, PositiveInt

_Values = NonNegative | Annotated[tuple[NonNegative, ...], Field(min_length=1)]


class Dynamic(Part):
    """Dynamic evaluation: after each segment a step on its loss, and back towards the trained weights.

    Krause et al. 2018, section 4. Of several values the combination best on validation is used on test. The defaults
    are those of the authors' code for the Penn Treebank, and values around them.
    """

    learning_rate: _Values = Field(default=(3e-5, 5e-5, 1e-4), description="Step size, eta; or a list to try.")
    decay: _Values = Field(
        default=(0.001, 0.002, 0.005),
        description="Share of the way back to the trained weights that one of average gradient goes, lambda; or a "
        "list.",
    )
    segment: PositiveInt = Field(default=5, description="Tokens between two steps.")
    epsilon: Positive = Field(default=2e-5, description="Added to a gradient's root mean square before it divides.")
    statistics_columns: PositiveInt = Field(
        default=100, description="Columns of the training text whose gradients are squared."
    )
    choose_tokens: PositiveInt = Field(
        default=30_000, description="The first tokens of validation, on which the values are chosen."
    )
