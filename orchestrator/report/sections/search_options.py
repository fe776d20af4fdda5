"""What became of each option of a choice that was searched, and which were hardly tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.search.events import SearchTrial, SearchTrialStatus
from orchestrator.search.ledger import SearchState, best
from orchestrator.sweep.space import OneOf
from orchestrator.words import Markdown, escape, listed

FEWEST_COMPLETE = 3
"""Complete trials of an option below which little is known of what it reaches with values that suit it."""


@dataclass(frozen=True)
class OptionRow:
    """What became of the trials with one option of a choice; the best by validation."""

    choice: str
    option: str
    states: Mapping[SearchTrialStatus, int]
    trials: int
    best: SearchTrial | None
    is_rare: bool


def option_rows(searches: Sequence[SearchState]) -> list[OptionRow]:
    """A row for every option of every choice; none of a population, in which an option that dies out was tried too."""
    searches = [search for search in searches if not search.task.population]
    options = {
        (key, option): None
        for key in dict.fromkeys(key for search in searches for key in search.task.space)
        for search in searches
        if isinstance(dimension := search.task.space.get(key), OneOf)
        for option in dimension.options
    }
    rows = []
    for key, option in options:
        tried = [trial for search in searches for trial in search.trials if trial.values.get(key) == option]
        states = Counter(trial.state for trial in tried)
        fewest = max(FEWEST_COMPLETE, *(search.task.min_trials_per_option.get(key, 0) for search in searches))
        rows.append(OptionRow(key, option, states, len(tried), best(tried), states["complete"] < fewest))
    return rows


def hardly_tried(rows: Sequence[OptionRow]) -> Markdown:
    """The options with few complete trials, such as `mixture of `head` (1 of 4 complete)`; empty if none."""
    words = "{} of `{}` ({} of {} complete)"
    few = [(escape(row.option), row.choice, row.states.get("complete", 0), row.trials) for row in rows if row.is_rare]
    return Markdown(listed([words.format(*each) for each in few]))
