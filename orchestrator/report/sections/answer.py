"""What the numbers support, in sentences: the answer, the verdict of a row."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis.comparable import DID_NOT_TRAIN, OTHER_BUDGET, OTHER_TEXT
from orchestrator.analysis.power import MOST_FURTHER, Further
from orchestrator.analysis.statistics import (
    DECIDED,
    IDENTICAL,
    LEVEL_OF_ERROR,
    NO_NOISE,
    ONE_SEED,
    Comparison,
    Effect,
    Interval,
    perplexity_change,
)
from orchestrator.report.sections.interaction_tables import InteractionRow
from orchestrator.report.sections.tables import AblationRow
from orchestrator.words import (
    Markdown,
    counted,
    decimals_for,
    escape,
    listed,
    rounded_by_interval,
    signed,
    significant,
    spread,
)

_NAMED = 3
"""So many undecided variants are named in the answer; more are counted."""
_SAME_SIZE = 0.1
"""Models that differ by less than this share of their parameters are of one size."""
_LISTED = 8
"""So many variants of one verdict are listed; of more, their number and the range of their differences."""


def answer(
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    scale: str,
    baseline: str,
    tuning: Sequence[int] = (),
    hardly_chosen: Sequence[str] = (),
    interactions: Sequence[InteractionRow] = (),
) -> Markdown:
    """One sentence that the numbers support, and nothing more.

    `tuning` is how many trials tuned each variant, `hardly_chosen` are those whose values one complete trial chose.
    """
    sentence, tuned = "; ".join([_answer(rows, comparison, baseline), *_contrasts(interactions)]), ""
    if tuning and comparison is not None:
        low, high = min(tuning), max(tuning)
        named = listed([f"“{escape(name)}”" for name in hardly_chosen])
        alone = named if len(hardly_chosen) <= _NAMED else f"{len(hardly_chosen)} variants"
        tuned = f"after {counted(high, 'trial') if low == high else f'{low} to {high} trials'} of tuning each"
        tuned += f" (of those of {alone} a single one ran to its end), " if alone else ", "
    return Markdown(f"At scale {escape(scale)}, {tuned}{sentence}.")


def changes(rows: Sequence[AblationRow]) -> dict[str, str]:
    """The change in test perplexity of each variant that has an interval: `+3.2% [+0.5%, +6.0%]`."""
    effects = {row.variant: row.effect for row in rows if row.effect is not None}
    return {name: _in_percent(one.nats, one.interval) for name, one in effects.items() if one.interval is not None}


def _in_percent(nats: float, interval: Interval) -> str:
    shares = (100 * perplexity_change(0.0, value) for value in (nats, interval.low, interval.high))
    shown, low, high = rounded_by_interval(*shares)
    return f"{shown}% [{low}%, {high}%]"


def verdict_cell(row: AblationRow, baseline: str, margin: float) -> Markdown:
    """The verdict as the table shows it; where there is none the reason, or what would decide."""
    if row.variant == baseline:
        return Markdown(f"baseline ({row.reason})" if row.reason else "baseline")
    if row.adaptive:
        return Markdown("adaptive, not compared")
    if row.effect is None:
        return Markdown(f"no verdict ({escape(row.reason)})")
    verdict = verdict_in_words(row.effect, margin)
    if row.effect.verdict in DECIDED:
        return Markdown(f"**{verdict}**")
    why = row.effect.reason or what_would_decide(row.effect.further)
    return Markdown(f"{verdict} ({why})" if why else verdict)


def verdict_in_words(effect: Effect, margin: float) -> str:
    """A verdict with its margin, `no effect larger than 0.5%`."""
    return _no_effect(margin) if effect.verdict == "equivalent" else effect.verdict


def _no_effect(margin: float) -> str:
    return f"no effect larger than {100 * margin:.3g}%"


def level_in_words(comparison: Comparison | None) -> str:
    """The probability with which the intervals cover, all at once: `95%`."""
    return f"{100 * (1 - LEVEL_OF_ERROR if comparison is None else comparison.level):.3g}%"


def _answer(rows: Sequence[AblationRow], comparison: Comparison | None, baseline: str) -> str:
    base = next(row for row in rows if row.variant == baseline)
    name = escape(baseline)
    if not any(row.complete for row in rows):
        return "nothing is complete yet, so there is no answer"
    if comparison is None and base.adaptive:
        return f"nothing is compared, since {name} adapts to the text it is scored on"
    if comparison is None and base.reason == DID_NOT_TRAIN:
        return f"nothing is compared, since {name} {DID_NOT_TRAIN}: it is worse than guessing by the words' frequencies"
    if comparison is None:
        return f"nothing can be compared yet: {base.complete} of {counted(base.seeds, 'seed')} of {name} complete"
    others = [row for row in rows if row.variant != baseline and not row.adaptive]
    if not others:
        assert base.test is not None
        test = spread(base.test.mean, base.test.deviation)
        return (
            f"{name} reaches test perplexity {test} ({counted(base.complete, 'seed')}), and nothing is compared with it"
        )
    level = level_in_words(comparison)
    parts = [*_decided(others, base, level), *_equivalent(others, comparison.margin)]
    parts += _undecided(others, baseline, level)
    return "; ".join(parts)


def _decided(rows: Sequence[AblationRow], base: AblationRow, level: str) -> list[str]:
    def names(verdict: str) -> str:
        found = [row for row in rows if row.effect is not None and row.effect.verdict == verdict]
        found.sort(key=lambda row: abs(row.effect.nats if row.effect else 0.0), reverse=True)
        if len(found) <= _LISTED:
            return listed([f"{escape(row.variant)} ({_rounded(row)}{_size(row, base)})" for row in found])
        ends = (f"{_rounded(row)} with {escape(row.variant)}" for row in (found[-1], found[0]))
        return f"{len(found)} changes (from {' to '.join(ends)})"

    higher, lower = names("hurts"), names("helps")
    parts = [f"{word} with {found}" for word, found in (("higher", higher), ("lower", lower)) if found]
    if not parts:
        return []
    return [
        f"test perplexity is {' and '.join(parts)} than with {escape(base.variant)} "
        f"({level} {_intervals(rows)} over {_seeds(rows)})"
    ]


def _size(row: AblationRow, base: AblationRow) -> str:
    """How much larger or smaller the model is, where that may be what makes the difference."""
    ratio = row.parameters / base.parameters
    return "" if abs(ratio - 1) < _SAME_SIZE else f", with {significant(ratio, 2)} times the parameters"


def _intervals(rows: Sequence[AblationRow]) -> str:
    return "interval" if len(rows) == 1 else "simultaneous intervals"


def _equivalent(rows: Sequence[AblationRow], margin: float) -> list[str]:
    found = [row for row in rows if row.effect is not None and row.effect.verdict == "equivalent"]
    if not found:
        return []
    verb = "has" if len(found) == 1 else "have"
    return [f"{_named(found, 'other ')} {verb} {_no_effect(margin)} of perplexity"]


def what_would_decide(further: Further | None) -> str:
    """How many more seeds would decide, in a few words."""
    if further is None:
        return ""
    if further.text == "short":
        return "no number of seeds would tell: the test text is too short"
    if further.text == "perhaps short":
        return "no number of seeds would tell, with the noise of the test text as it is estimated"
    if further.seeds is None:
        return f"more than {MOST_FURTHER} more seeds would be needed"
    return f"about {counted(further.seeds, 'more seed')} would decide"


def _contrasts(rows: Sequence[InteractionRow]) -> list[str]:
    """What the design's own contrasts show, a clause a kind."""
    clauses = []
    for kind, noun in (("main effect", "main effect"), ("alone", "lone component"), ("interaction", "interaction")):
        found = [row for row in rows if row.estimand.kind == kind and row.contrast.interval and not row.contrast.reason]
        decided = [f"{escape(row.estimand.name)} {row.verdict}" for row in found if row.verdict != "not decided"]
        if found:
            are = "are" if len(decided) > 1 else "is"
            names = f" ({listed(decided)})" if 0 < len(decided) <= _LISTED else ""
            clauses.append(f"{len(decided) or 'none'} of {counted(len(found), noun)} {are} decided{names}")
    return clauses


def _undecided(rows: Sequence[AblationRow], baseline: str, level: str) -> list[str]:
    def having(reason: str | None) -> list[AblationRow]:
        return [row for row in without if row.effect and row.effect.reason == reason]

    parts = []
    without = [row for row in rows if row.effect and row.effect.verdict not in DECIDED]
    decided = any(row.effect and row.effect.verdict in DECIDED for row in rows)
    if (still_open := having(None)) and decided:
        parts.append(f"{_seeds(still_open)} do not decide about {_named(still_open, 'other ')}")
    elif still_open:
        of = f"{_intervals(still_open)} of {_named(still_open)} contain{'s' * (len(still_open) == 1)} zero"
        parts.append(f"{_seeds(still_open)} decide no difference to {escape(baseline)}: the {level} {of}")
    if same := having(IDENTICAL):
        parts.append(f"{_named(same)} {'equals' if len(same) == 1 else 'equal'} {escape(baseline)} in every seed")
    if single := having(ONE_SEED):
        parts.append(f"with one seed nothing is decided about {_named(single)}, since the seed noise is unknown")
    if unequal := having(OTHER_BUDGET):
        parts.append(f"there is no verdict on {_named(unequal, 'other ')}, trained with another budget")
    if elsewhere := having(OTHER_TEXT):
        parts.append(f"there is no verdict on {_named(elsewhere, 'other ')}, {OTHER_TEXT}")
    if untrained := having(DID_NOT_TRAIN):
        parts.append(f"there is no verdict on {_named(untrained, 'other ')}, which {DID_NOT_TRAIN}")
    if still := having(NO_NOISE):
        parts.append(f"nothing is decided about {_named(still)}, since {NO_NOISE}")
    partial = [row for row in rows if row.incomplete]
    if len(partial) > _NAMED:
        parts.append(f"{len(partial)} changes have seeds that are not complete and no verdict")
    elif partial:
        why = listed([f"{_quoted(row)} ({row.incomplete})" for row in partial])
        parts.append(f"there is no verdict on {why}")
    return parts


def _named(rows: Sequence[AblationRow], which: str = "") -> str:
    if len(rows) <= _NAMED:
        return listed([_quoted(row) for row in rows])
    return f"{len(rows)} {which}changes"


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
