"""The answer of a page: one sentence that the numbers support, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from orchestrator.analysis.effects import DECIDED, Comparison, Reason
from orchestrator.analysis.statistics import perplexity_change
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.report.sections.interactions import InteractionRow
from orchestrator.report.sections.verdicts import DID_NOT_TRAIN, NO_NOISE, level_in_words, no_effect
from orchestrator.words import Markdown, counted, decimals_for, escape, listed, rounded_by_interval, signed, significant

_NAMED = 3
"""The most undecided variants that the answer names; more are counted."""
_SAME_SIZE = 0.1
"""Models that differ by less than this share of their parameters are of one size."""
_WHY: dict[Reason, str] = {
    "another budget": "trained with another budget",
    "another test text": "scored on another text",
    "did not train": f"which {DID_NOT_TRAIN}",
    "adaptive": "which adapts to the text of the test",
}
_LISTED = 8
"""The most variants of one verdict that are listed; of more, their number and the range of their differences."""


def answer(
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    scale: str,
    tuning: Sequence[int] = (),
    hardly_chosen: Sequence[str] = (),
    interactions: Sequence[InteractionRow] = (),
) -> Markdown:
    """The answer; `tuning`: how many trials tuned each variant; `hardly_chosen`: those tuned by one complete trial."""
    sentence, tuned = "; ".join([_answer(rows, comparison), *_contrasts(interactions)]), ""
    if tuning and comparison is not None:
        low, high = min(tuning), max(tuning)
        named = listed([f"“{escape(name)}”" for name in hardly_chosen])
        alone = named if len(hardly_chosen) <= _NAMED else f"{len(hardly_chosen)} variants"
        tuned = f"after {counted(high, 'trial') if low == high else f'{low} to {high} trials'} of tuning each"
        tuned += f" (of those of {alone} a single one ran to its end), " if alone else ", "
    return Markdown(f"At scale {escape(scale)}, {tuned}{sentence}.")


def changes(rows: Sequence[AblationRow]) -> dict[str, str]:
    """The change in test perplexity of each variant that has an interval: `+3.2% [+0.5%, +6.0%]`."""
    words = {}
    for row in rows:
        if row.effect is not None and row.effect.interval is not None:
            shares = (100 * perplexity_change(0.0, value) for value in (row.effect.nats or 0.0, *row.effect.interval))
            change, low, high = rounded_by_interval(*shares)
            words[row.variant] = f"{change}% [{low}%, {high}%]"
    return words


def _answer(rows: Sequence[AblationRow], comparison: Comparison | None) -> str:
    base = next(row for row in rows if row.is_baseline)
    name = escape(base.variant)
    if not any(row.complete for row in rows):
        return "nothing is complete yet, so there is no answer"
    if comparison is None and base.adaptive:
        return f"nothing is compared, since {name} adapts to the text it is scored on"
    if comparison is None and base.reason == DID_NOT_TRAIN:
        return f"nothing is compared, since {name} {DID_NOT_TRAIN}: it is worse than guessing by the words' frequencies"
    if comparison is None:
        return f"nothing can be compared yet: {base.complete} of {counted(base.seeds, 'seed')} of {name} complete"
    others = [row for row in rows if not row.is_baseline and not row.adaptive]
    if not others:
        seeds = counted(base.complete, "seed")
        return f"{name} reaches test perplexity {base.test} ({seeds}), and nothing is compared with it"
    level = level_in_words(comparison)
    parts = _decided(others, base, level)
    if equal := [row for row in others if row.effect is not None and row.effect.verdict == "equivalent"]:
        has = f"ha{'s' if len(equal) == 1 else 've'} {no_effect(comparison.margin)} of perplexity"
        parts.append(f"{_named(equal, 'other ')} {has}")
    return "; ".join([*parts, *_undecided(others, base.variant, level)])


def _decided(rows: Sequence[AblationRow], base: AblationRow, level: str) -> list[str]:
    def variants(verdict: str) -> str:
        matching = [row for row in rows if row.effect is not None and row.effect.verdict == verdict]
        matching.sort(key=lambda row: abs(row.effect.nats or 0.0) if row.effect else 0.0, reverse=True)
        if len(matching) <= _LISTED:
            return listed([f"{escape(row.variant)} ({_rounded(row)}{_size(row, base)})" for row in matching])
        ends = (f"{_rounded(row)} with {escape(row.variant)}" for row in (matching[-1], matching[0]))
        return f"{len(matching)} changes (from {' to '.join(ends)})"

    words = (("higher", variants("hurts")), ("lower", variants("helps")))
    parts = " and ".join(f"{word} with {names}" for word, names in words if names)
    over = f"({level} {_intervals(rows)} over {_seeds(rows)})" if parts else ""
    return [f"test perplexity is {parts} than with {escape(base.variant)} {over}"] if parts else []


def _size(row: AblationRow, base: AblationRow) -> str:
    """How much larger or smaller the model is, if that may make the difference."""
    ratio = row.parameters / base.parameters
    return "" if abs(ratio - 1) < _SAME_SIZE else f", with {significant(ratio, 2)} times the parameters"


def _intervals(rows: Sequence[AblationRow]) -> str:
    return "interval" if len(rows) == 1 else "simultaneous intervals"


def _contrasts(rows: Sequence[InteractionRow]) -> list[str]:
    """What the design's own contrasts show, a clause a kind."""
    clauses = []
    for kind, noun in (("main effect", "main effect"), ("alone", "lone component"), ("interaction", "interaction")):
        judged = [row for row in rows if row.estimand.kind == kind and row.effect.verdict != "no verdict"]
        decided = [f"{escape(row.estimand.name)} {row.verdict}" for row in judged if row.verdict != "not decided"]
        if judged:
            verb = "are" if len(decided) > 1 else "is"
            names = f" ({listed(decided)})" if 0 < len(decided) <= _LISTED else ""
            clauses.append(f"{len(decided) or 'none'} of {counted(len(judged), noun)} {verb} decided{names}")
    return clauses


def _without_verdict(reason: Reason, rows: Sequence[AblationRow], baseline: str) -> str:
    match reason:
        case "equal in every seed":
            return f"{_named(rows)} {'equals' if len(rows) == 1 else 'equal'} {baseline} in every seed"
        case "one seed":
            return f"with one seed nothing is decided about {_named(rows)}, because the seed noise is unknown"
        case "seeds do not differ":
            return f"nothing is decided about {_named(rows)}, because {NO_NOISE}"
        case "not complete" if len(rows) > _NAMED:
            return f"{len(rows)} changes have seeds that are not complete and no verdict"
        case "not complete":
            why = listed([f"{_quoted(row)} ({row.incomplete or row.reason})" for row in rows])
            return f"there is no verdict on {why}"
        case _:
            return f"there is no verdict on {_named(rows, 'other ')}, {_WHY[reason]}"


def _undecided(rows: Sequence[AblationRow], baseline: str, level: str) -> list[str]:
    parts = []
    effects = [(row, row.effect) for row in rows if row.effect is not None]
    decided = any(effect.verdict in DECIDED for _, effect in effects)
    still_open = [row for row, effect in effects if effect.verdict == "not decided"]
    if still_open and decided:
        parts.append(f"{_seeds(still_open)} do not decide about {_named(still_open, 'other ')}")
    elif still_open:
        of = f"{_intervals(still_open)} of {_named(still_open)} contain{'s' * (len(still_open) == 1)} zero"
        parts.append(f"{_seeds(still_open)} decide no difference to {escape(baseline)}: the {level} {of}")
    incomplete = [row for row in rows if row.incomplete]
    for reason in get_args(Reason):
        barred = [row for row, effect in effects if effect.obstacle and effect.obstacle.reason == reason]
        if matching := incomplete if reason == "not complete" else barred:
            parts.append(_without_verdict(reason, matching, escape(baseline)))
    return parts


def _named(rows: Sequence[AblationRow], which: str = "") -> str:
    return listed([_quoted(row) for row in rows]) if len(rows) <= _NAMED else f"{len(rows)} {which}changes"


def _quoted(row: AblationRow) -> str:
    """A name that nobody takes for words of the sentence: `no AR/TAR`. A code span's quotes are lost in plain text."""
    return f"“{escape(row.variant)}”"


def _seeds(rows: Sequence[AblationRow]) -> str:
    counts = sorted({row.complete for row in rows if row.effect is not None and row.effect.interval is not None})
    return counted(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def _rounded(row: AblationRow) -> str:
    assert row.change_in_perplexity is not None and row.interval_in_perplexity is not None
    change, ends = row.change_in_perplexity, row.interval_in_perplexity
    return signed(change, max(decimals_for((ends.high - ends.low) / 2), decimals_for(abs(change))))
