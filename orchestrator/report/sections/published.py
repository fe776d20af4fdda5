"""What the page says of the papers' numbers, and whether our intervals bear out their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Literal

from orchestrator.report.sections.ablation import RECALLED, AblationRow, PublishedDifference
from orchestrator.sweep.published import Number, Published
from orchestrator.words import NOTHING, Markdown, escape, listed, published, published_difference

RECALLED_MARK = "†"
_LONGEST_NOTE = 200
Reproduction = Literal["reproduced", "not reproduced", "not decided"]


@dataclass(frozen=True)
class PublishedSection:
    """The published numbers; notes on them, and a row for each variant, only at the papers' own scale."""

    numbers: Sequence[Number]
    notes: Sequence[Markdown] = ()
    rows: Sequence[AblationRow] = ()


def published_section(rows: Sequence[AblationRow], published_scale: bool) -> PublishedSection:
    """What the page says; `published_scale`: the numbers were made at this scale."""
    numbers = {
        (row.variant, split): number
        for row in rows
        for split, number in (("validation", row.published_valid), ("test", row.published_test))
        if number is not None
    }
    if not published_scale:
        return PublishedSection([*numbers.values()])
    beside = [row for row in rows if row.test is not None and row.published_test is not None]
    return PublishedSection([*numbers.values()], _notes(numbers), beside)


def published_line(published: Mapping[str, Published], baseline: str) -> Number | None:
    """The baseline's validation perplexity as a picture may show it: a line has no room for a doubt."""
    number = published[baseline].valid if baseline in published else None
    return None if number is None or number.certainty == RECALLED else number


def reproduction(row: AblationRow) -> Reproduction | None:
    """Whether our interval bears out the published difference, as ratios of perplexities; None if there is none."""
    if row.published_difference is None:
        return None
    if row.effect is None or row.effect.interval is None:
        return "not decided"
    low, high = row.effect.interval
    if not low <= row.published_difference.nats <= high:
        return "not reproduced"
    return "not decided" if low < 0.0 < high else "reproduced"


def printed(number: Number | None) -> str:
    """A published number as its paper has it, with its deviation if that is printed."""
    if number is None:
        return NOTHING
    deviation = "" if number.std is None else f" ± {published(number.std)}"
    return published(number.perplexity) + deviation + RECALLED_MARK * (number.certainty == RECALLED)


def printed_difference(difference: PublishedDifference | None) -> str:
    """A published difference, marked if one of its numbers is from memory."""
    if difference is None:
        return NOTHING
    return published_difference(difference.perplexity) + RECALLED_MARK * difference.recalled


def _notes(numbers: Mapping[tuple[str, str], Number]) -> list[Markdown]:
    """The notes on the published numbers, each once, with the numbers that it is about."""
    about: dict[str, list[str]] = {}
    for (variant, split), number in numbers.items():
        if number.note is not None:
            about.setdefault(number.note, []).append(escape(f"{variant} ({split})"))
    return [
        Markdown(
            f"{'all' if len(places) == len(numbers) else listed(places)}: "
            f"{escape(shorten(note, _LONGEST_NOTE, placeholder=' …'))}"
        )
        for note, places in about.items()
    ]
