"""What the page says of the papers' numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Literal

from orchestrator.report.sections.tables import RECALLED, AblationRow, Published, PublishedDifference, PublishedNumber
from orchestrator.words import (
    NOTHING,
    Markdown,
    difference,
    escape,
    listed,
    published,
    published_difference,
    signed,
    spread,
)

RECALLED_MARK = "†"
_LONGEST_NOTE = 200


def published_line(published: Mapping[str, Published], baseline: str) -> PublishedNumber | None:
    """The baseline's validation perplexity as a picture may show it: a line has no room for a doubt."""
    number = published[baseline].valid if baseline in published else None
    return None if number is None or number.certainty == RECALLED else number


Reproduction = Literal["reproduced", "not reproduced", "not decided"]


def published_section(
    rows: Sequence[AblationRow], baseline: str, note: str, published_scale: bool
) -> dict[str, object]:
    """The values for the page; ours beside theirs, and notes, only at the scale of the published numbers."""
    return {
        "published_note": _whose(rows, note, published_scale),
        "published_notes": _notes(rows) if published_scale else [],
        "reproductions": [_beside(row, row.variant == baseline) for row in rows if _compares(row)]
        if published_scale
        else [],
    }


def reproduction(row: AblationRow) -> Reproduction | None:
    """Whether our interval of a variant's difference to the baseline bears out the published one; None without one.

    Reproduced where it holds the published difference and leaves out zero, not reproduced where it leaves out the
    published difference, not decided where it holds both, or where there is no interval. Differences are compared as
    ratios of perplexities.
    """
    if row.published_difference is None:
        return None
    if row.effect is None or row.effect.interval is None:
        return "not decided"
    low, high = row.effect.interval.low, row.effect.interval.high
    if not low <= row.published_difference.nats <= high:
        return "not reproduced"
    return "not decided" if low <= 0.0 <= high else "reproduced"


def _compares(row: AblationRow) -> bool:
    return row.test is not None and row.published_test is not None


def _beside(row: AblationRow, is_baseline: bool) -> dict[str, str]:
    """A row of the table; of the baseline only the perplexities are compared."""
    assert row.test is not None
    assert row.published_test is not None
    ours, theirs = row.test.mean, row.published_test.perplexity
    shown = NOTHING
    if row.change_in_perplexity is not None:
        shown = difference(row.change_in_perplexity, row.interval_in_perplexity)
    return {
        "variant": row.variant,
        "ours": spread(ours, row.test.deviation),
        "seeds": str(row.test.n),
        "theirs": printed(row.published_test),
        "apart": f"{signed(ours - theirs)} ({signed(100 * (ours / theirs - 1), 1)}%)",
        "published_difference": printed_difference(row.published_difference),
        "difference": Markdown(shown),
        "verdict": "baseline" if is_baseline else reproduction(row) or NOTHING,
    }


def _whose(rows: Sequence[AblationRow], note: str, published_scale: bool) -> Markdown:
    numbers = [number for row in rows for number in (row.published_valid, row.published_test) if number]
    if not numbers:
        return Markdown("No published numbers belong to these variants.")
    sentences = [f"Published numbers: {escape(note)}; the papers' settings need not be those of the base spec below."]
    if not published_scale:
        sentences.append(
            "**They belong to another scale**, with another corpus or size, so their perplexities cannot be compared "
            "with ours; at most the order of the differences can."
        )
    if any(number.certainty == RECALLED for number in numbers):
        sentences.append(f"{RECALLED_MARK} from memory, not checked against the paper.")
    return Markdown(" ".join(sentences))


def _notes(rows: Sequence[AblationRow]) -> list[Markdown]:
    """The notes on the published numbers, each once, with the numbers that it is about."""
    about: dict[str, list[str]] = {}
    for row in rows:
        for split, number in (("validation", row.published_valid), ("test", row.published_test)):
            if number is not None and number.note is not None:
                about.setdefault(number.note, []).append(f"{row.variant} ({split})")
    shown = sum(number is not None for row in rows for number in (row.published_valid, row.published_test))
    notes = []
    for note, places in about.items():
        which = "all" if len(places) == shown else listed([escape(place) for place in places])
        notes.append(Markdown(f"{which}: {escape(shorten(note, _LONGEST_NOTE, placeholder=' …'))}"))
    return notes


def printed(number: PublishedNumber | None) -> str:
    """A published number as its paper has it, with its deviation where that is printed."""
    if number is None:
        return NOTHING
    deviation = "" if number.std is None else f" ± {published(number.std)}"
    return published(number.perplexity) + deviation + _mark(number.certainty == RECALLED)


def printed_difference(difference: PublishedDifference | None) -> str:
    """A published difference, marked where one of its numbers is from memory."""
    if difference is None:
        return NOTHING
    return published_difference(difference.perplexity) + _mark(difference.recalled)


def _mark(recalled: bool) -> str:
    return RECALLED_MARK if recalled else ""
