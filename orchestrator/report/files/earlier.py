"""What an earlier report has that a new one in its place would not; a fuller page is never lost without a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from lm.spec import TrainSpec
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.report.files.places import ReportPlace
from orchestrator.report.files.staging import PAGE, remove_report
from orchestrator.report.files.summary import FILE, Summary, read_summary
from orchestrator.report.files.written import complete_trials
from orchestrator.trials.plan import differences
from orchestrator.words import counted, listed

IfFuller = Literal["refuse", "write beside", "replace"]
"""What becomes of a new report where the earlier one has trials that it would lack."""

_MOST_NAMED = 3


class FullerPageError(ValueError):
    """The earlier page has complete trials that the new one would lack; nothing was written."""


def place_for(
    folder: Path, summary: Summary, outcomes: Mapping[str, tuple[Outcome, ...]], if_fuller: IfFuller
) -> tuple[Path, str | None]:
    """The folder for a new report, which is `folder` or one beside it, and the line that says why not `folder`.

    Beside are `<folder>+2`, `<folder>+3`, ...: the first where no earlier report has trials that the new one would
    lack. A sweep's and a scale's name have no `+`.
    """
    why = None if if_fuller == "replace" else lost_from(folder, summary, outcomes)
    if why is None:
        return folder, None
    if if_fuller == "refuse":
        raise FullerPageError(f"{why}; --force replaces it")
    place = next(place for place in beside(folder) if lost_from(place, summary, outcomes) is None)
    return place, f"{why}; so the new page lies beside it (`report --force` replaces it)"


def remove_contained(
    folder: Path, written: Path, summary: Summary, outcomes: Mapping[str, tuple[Outcome, ...]]
) -> None:
    """Remove the reports beside `folder` that the one just written makes superfluous: it has all their trials."""
    for page in folder.parent.glob(f"{folder.name}+*/{PAGE}"):
        if page.parent != written and lost_from(page.parent, summary, outcomes) is None:
            remove_report(page.parent)


def beside(folder: Path) -> Iterator[Path]:
    """The folders for reports that may not take the place of the one in `folder`, without end."""
    return (folder.with_name(f"{folder.name}+{number}") for number in count(2))


def lost_from(folder: Path, summary: Summary, outcomes: Mapping[str, tuple[Outcome, ...]]) -> str | None:
    """What the report in `folder` has that the new one would lack, in a line; None if nothing.

    Nothing is lost if every trial that is complete there is complete in the new one: the same trial or, of a variant
    whose values the same search looks for, that of any values.
    """
    page = folder / PAGE
    if not page.exists():
        return None
    try:
        earlier = read_summary(folder)
        if earlier is None:
            raise ValueError(f"it has no {FILE}")
        there = complete_trials(ReportPlace(folder, None))
    except (ValueError, OSError) as error:
        return f"{page} cannot be compared with this report ({str(error).partition(';')[0]})"
    keys = {(one.trial.variant, one.trial.seed): one.trial.key for one in flat(outcomes) if one.final is not None}
    missing = [variant for variant, seed in there if (variant, seed) not in keys]
    other = [
        variant
        for (variant, seed), key in there.items()
        if keys.get((variant, seed), key) != key and not _same_search(variant, earlier, summary)
    ]
    if not missing and not other:
        return None
    counts = f"{counted(len(there), 'complete trial')}, this report would have {len(keys)}"
    details = list(_details(earlier, summary, missing if keys else [], other))
    return f"{page} has {counts}" + (f" ({'; '.join(details)})" if details else "")


def _same_search(variant: str, earlier: Summary, new: Summary) -> bool:
    """Whether one search chose the variant's values, then and now; a summary that names none may be older than that."""
    return variant in new.searches and earlier.searches.get(variant, new.searches[variant]) == new.searches[variant]


def _details(earlier: Summary, new: Summary, missing: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    changes = [] if new.baseline in new.searches else _changes(earlier, new)
    if changes:
        yield f"the base has {_some(changes)}"
    if missing:
        yield f"not complete: {_some(missing)}"
    if other:
        rest = "" if changes else ", of another spec, text or version of the numerics"
        yield f"other trials: {_some(other)}{rest}"


def _changes(earlier: Summary, new: Summary) -> list[str]:
    """How the base has changed; nothing where the earlier report does not hold it, or in a form of its own."""
    try:
        old = TrainSpec.model_validate({**earlier.base, "seed": 1})
    except ValidationError:
        return []
    return list(differences(old, TrainSpec.model_validate({**new.base, "seed": 1})))


def _some(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _MOST_NAMED
    return listed([*distinct[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
