"""Who may be compared with whom, and why not: the one rule, which tables, pictures, further seeds and forecasts ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lm.record import opened
from orchestrator.analysis.guessing import untrained
from orchestrator.analysis.outcomes import Outcome
from orchestrator.trials.trial import budget_of, stage_epochs
from orchestrator.words import counted, listed

Kind = Literal["adaptive", "not complete", "another test text", "did not train", "another budget"]

OTHER_BUDGET = "another budget"
OTHER_TEXT = "scored on another text"
DID_NOT_TRAIN = "did not train"


@dataclass(frozen=True)
class Obstacle:
    """Why variants may not be compared, and which of them are the reason; all of them if they differ."""

    kind: Kind
    variants: tuple[str, ...]

    @property
    def bars_interval(self) -> bool:
        """Whether no interval is given; else there is an interval, but no verdict."""
        return self.kind != "another budget"

    def in_words(self) -> str:
        """A clause that names the variants."""
        names = listed(self.variants)
        match self.kind:
            case "adaptive":
                return f"{names} {'adapts' if len(self.variants) == 1 else 'adapt'} to the text of the test"
            case "not complete":
                return f"{names} not complete"
            case "did not train":
                return f"{names} {DID_NOT_TRAIN}"
            case "another test text":
                return OTHER_TEXT
            case "another budget":
                return OTHER_BUDGET


def obstacles(outcomes: Mapping[str, tuple[Outcome, ...]], variants: Sequence[str]) -> list[Obstacle]:
    """Why the losses of these variants may not be compared, the gravest reason first; empty if they may.

    - *adaptive*: a neural cache sees the text that it is scored on;
    - *not complete*: a seed diverged, failed or is unfinished, and the seeds that survive are not a fair sample;
    - *another test text*, or the same in another number of columns;
    - *did not train*: a seed is worse than guessing by the words' frequencies, so its difference tells of a failure;
    - *another budget*: nobody can tell what is the change's and what the budget's.

    One seed is no obstacle here: `statistics.contrasts` finds no noise in it and gives no interval.
    """
    return list(_obstacles({variant: outcomes.get(variant, ()) for variant in variants}))


def _obstacles(groups: Mapping[str, tuple[Outcome, ...]]) -> Iterator[Obstacle]:
    if adaptive := [name for name, group in groups.items() if group and is_adaptive(group)]:
        yield Obstacle("adaptive", tuple(adaptive))
    if missing := [name for name, group in groups.items() if not group or not all(one.final for one in group)]:
        yield Obstacle("not complete", tuple(missing))
    if len({frozenset(read) for group in groups.values() if (read := texts(group))}) > 1:
        yield Obstacle("another test text", tuple(groups))
    if failed := [name for name, group in groups.items() if untrained(group)]:
        yield Obstacle("did not train", tuple(failed))
    if len({budget(group) for group in groups.values() if group}) > 1:
        yield Obstacle("another budget", tuple(groups))


def is_adaptive(group: Sequence[Outcome]) -> bool:
    """Whether the variant's scores come from a model that adapts to the text it is scored on."""
    return group[0].trial.spec.cache is not None


def incomplete_seeds(group: Sequence[Outcome]) -> str:
    """How many seeds of a variant are not complete, and why: `1 of 3 seeds diverged`."""
    statuses = Counter(outcome.status for outcome in group if outcome.final is None)
    seeds = counted(len(group), "seed")
    return ", ".join(f"{count} of {seeds} {status}" for status, count in statuses.items())


def texts(group: Sequence[Outcome]) -> set[tuple[str, int]]:
    """The test texts that the complete seeds are scored on, with the columns they were cut into."""
    records = [outcome.record for outcome in group if outcome.final and outcome.record]
    return {(record.corpus.fingerprint, opened(record.stages[-1].test).columns) for record in records}


def planned_epochs(group: Sequence[Outcome]) -> int:
    """The most epochs that a trial of the variant may take, over all stages."""
    return sum(stage_epochs(group[0].trial.spec).values())


def budget(group: Sequence[Outcome]) -> tuple[int, int | None, int]:
    """What a trial of the variant may train on."""
    return budget_of(group[0].trial.spec)
