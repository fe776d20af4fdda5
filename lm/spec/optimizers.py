"""Optimizers: a closed union, tagged by `kind`, and the rule that says when validation stops improving."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lm.spec.part import NO_SWITCH, Part, Positive, PositiveInt, Probability

Trigger = Annotated[
    Literal["code", "literal", "monotonic"],
    Field(
        description="When validation counts as no longer improving: the loss is above the best one of more than n "
        "epochs ago (code, as in the authors' code), above the best of the last n (literal, as algorithm 1 of Merity "
        "et al. 2017 is printed), or above the last one (monotonic)."
    ),
]
NonmonotoneInterval = Annotated[
    PositiveInt, Field(description="The n of the trigger, in epochs; trigger monotonic does not use it.")
]


class _Optimizer(Part):
    learning_rate: Positive = Field(description="Step size, gamma; of the base length with windows of random length.")
    weight_decay: Annotated[float, Field(ge=0.0, le=1.0), NO_SWITCH] = Field(
        default=0.0, description="Share of every weight that is added to its gradient, after clipping; 0: none."
    )
    clip: Positive | None = Field(
        default=None, description="The largest norm of the gradient, over all weights; null: it is never clipped."
    )


class Sgd(_Optimizer):
    """Plain SGD at a constant rate."""

    kind: Literal["sgd"]


class SgdHalving(_Optimizer):
    """SGD whose rate is halved at every non-monotone trigger (Merity et al. 2017, section 5, "- NT-ASGD")."""

    kind: Literal["sgd_halving"]
    nonmonotone_interval: NonmonotoneInterval = Field(default=5)
    trigger: Trigger = Field(default="code")
    minimum_learning_rate: Positive = Field(default=1e-3, description="Training ends when the rate falls below this.")


class SgdDecay(_Optimizer):
    """SGD at the full rate for `full_epochs`, then `decay` times the last one each epoch (Zaremba et al. 2014)."""

    kind: Literal["sgd_decay"]
    decay: Annotated[float, Field(gt=0.0, le=1.0), NO_SWITCH] = Field(
        description="Factor on the rate after each epoch beyond `full_epochs`; 1: the rate stays."
    )
    full_epochs: PositiveInt = Field(description="Epochs at the full rate.")
    restart: PositiveInt | None = Field(
        default=None,
        description="Epochs after which the rate starts over while the weights go on, as in the restarts of Inan et "
        "al. 2016, table 1; null: never.",
    )


class SgdPlateau(_Optimizer):
    """SGD whose rate is divided after every epoch that does not improve the best validation loss."""

    kind: Literal["sgd_plateau"]
    divisor: Annotated[float, Field(gt=1.0, le=1_000_000.0), NO_SWITCH] = Field(
        default=4.0, description="What the rate is divided by."
    )


class NtAsgd(_Optimizer):
    """SGD that starts averaging at the non-monotone trigger (Merity et al. 2017, section 3, algorithm 1)."""

    kind: Literal["nt_asgd"]
    nonmonotone_interval: NonmonotoneInterval = Field(default=5)
    trigger: Trigger = Field(default="code")


class Adam(_Optimizer):
    """Adam (Kingma & Ba 2015); decay, if any, is coupled."""

    kind: Literal["adam"]
    beta1: Probability = Field(default=0.9, description="Decay per step of the gradient's running mean.")
    beta2: Probability = Field(default=0.999, description="Decay per step of the squared gradient's running mean.")
    epsilon: Positive = Field(default=1e-8, description="Added to the root of the squared gradient's mean.")


Optimizer = Annotated[Sgd | SgdHalving | SgdDecay | SgdPlateau | NtAsgd | Adam, Field(discriminator="kind")]
