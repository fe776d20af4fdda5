"""Ensembles: the mean of several models' probabilities, from their losses alone. M models, N predicted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm.by_token.losses import Array
from lm.record import perplexity


@dataclass(frozen=True)
class Ensemble:
    """Test perplexities of the members and of their ensemble."""

    members: tuple[float, ...]
    perplexity: float

    @property
    def mean(self) -> float:
        """The mean of the members' perplexities."""
        return sum(self.members) / len(self.members)

    @property
    def change(self) -> float:
        """The share by which the ensemble's perplexity differs from the members' mean; never above 0."""
        return self.perplexity / self.mean - 1


def ensemble_nats(nats_MN: Sequence[Array]) -> Array:
    """The loss (N,) of the mean probability of the members, -(logsumexp_m(-nats) - ln M), from each one's losses (N,).

    Perplexity needs the probabilities of the targets alone. Probabilities are averaged, as in the ensembles of Takase
    et al. (2018, tables 7 and 8). By Jensen's inequality at most the mean of the members' losses, and equal to them
    where they are equal.
    """
    lowest_N = np.min(nats_MN, axis=0)  # taken out first, so that nothing underflows and equal members stay exact
    return np.asarray(lowest_N - np.log(np.mean([np.exp(lowest_N - nats_N) for nats_N in nats_MN], axis=0)))


def ensemble(nats_MN: Sequence[Array]) -> Ensemble:
    """The ensemble of models that predict the same tokens."""
    members = tuple(perplexity(float(nats_N.mean())) for nats_N in nats_MN)
    return Ensemble(members, perplexity(float(ensemble_nats(nats_MN).mean())))
