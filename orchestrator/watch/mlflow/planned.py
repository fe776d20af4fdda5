"""What a sweep plans when a command ends: which runs in MLflow show the sweep as its file has it now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.trials.trial import Trial

SUPERSEDED = "superseded"
"""The tag of a run whose trial is no longer planned: the key of the trial in its place, or `true`."""


@dataclass(frozen=True)
class Planned:
    """Trials by key and variant. Nothing is known yet of `undecided` variants: their search is not over."""

    names: frozenset[tuple[str, str]]
    keys: Mapping[tuple[str, str], str]
    undecided: frozenset[str]

    @classmethod
    def of(
        cls, trials: Iterable[Trial], searched: Iterable[tuple[str, str]] = (), undecided: Iterable[str] = ()
    ) -> Planned:
        """Those of the table, and what searches asked for."""
        table = list(trials)
        names = frozenset((trial.key, trial.variant) for trial in table) | frozenset(searched)
        keys = {(trial.variant, str(trial.seed)): trial.key for trial in table}
        return cls(names, keys, frozenset(undecided))

    def has(self, tags: Mapping[str, str]) -> bool:
        """Whether the trial of a run with these tags is planned."""
        return (tags.get("trial_key", ""), tags.get("variant", "")) in self.names

    def instead(self, tags: Mapping[str, str]) -> str | None:
        """What the tag `superseded` says of a run whose trial is not planned; None while that may change."""
        if tags.get("variant") in self.undecided:
            return None
        return self.keys.get((tags.get("variant", ""), tags.get("seed", "")), "true")
