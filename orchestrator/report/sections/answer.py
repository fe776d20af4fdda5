"""The answer of a page: what its question asks, in sentences that the numbers support, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from orchestrator.analysis.effects import DECIDED, Comparison, Effect, Reason, Verdict
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.report.sections.interactions import InteractionRow
from orchestrator.report.sections.verdicts import (
    DID_NOT_TRAIN,
    NO_NOISE,
    at_most,
    by_percent,
    in_percent,
    level_in_words,
    no_effect,
)
from orchestrator.words import Markdown, counted, escape, listed, significant

_NAMED = 3
"""The most variants that a clause names if nothing is decided about them; more are counted."""
_SAME_SIZE = 0.1
"""Models that differ by less than this share of their parameters are of one size."""
_LISTED = 8
"""The most variants of one verdict that are listed; of more, their number and the range of their differences."""
_TOGETHER: dict[Verdict, str] = {
    "raises": "each partly replaces the other",
    "lowers": "each needs the other",
    "equivalent": "hardly any",
}
_WHY: dict[Reason, str] = {
    "another budget": "trained with another budget",
    "another test text": "scored on another text",
    "did not train": f"which {DID_NOT_TRAIN}",
    "adaptive": "which adapts to the text of the test",
}


def answer(
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    scale: str,
    tuning: Sequence[int] = (),
    hardly_chosen: Sequence[str] = (),
    interactions: Sequence[InteractionRow] = (),
    best: Sequence[str] = (),
    published: float | None = None,
    front: str = "",
) -> Markdown:
    """The answer; `scale` is empty if the file has none.

    `tuning`: how many trials tuned each variant; `hardly_chosen`: those tuned by one complete trial; `best`: the
    variants that may have the lowest test perplexity; `published`: the baseline's at this scale; `front`:
    what is on a search's front.
    """
    designed = [row for row in interactions if row.estimand.kind != "interaction" and row.effect.verdict in DECIDED]
    # Main effects summarize the variants of the design, which are then not listed one by one.
    shown = [row for row in rows if not (designed and row.removed)]
    clauses = [front, *_contrasts(interactions), *_best(rows, best), _answer(rows, shown, comparison, published)]
    tuned = ""
    if tuning and comparison is not None:
        low, high = min(tuning), max(tuning)
        named = listed([f"“{escape(name)}”" for name in hardly_chosen])
        alone = named if len(hardly_chosen) <= _NAMED else f"{len(hardly_chosen)} variants"
        tuned = f"after {counted(high, 'trial') if low == high else f'{low} to {high} trials'} of tuning each"
        tuned += f" (of {alone} only one trial ran to its end), " if alone else ", "
    where = f"At scale {escape(scale)}" if scale else "In this sweep"
    return Markdown(f"{where}, {tuned}{'; '.join(filter(None, clauses))}.")


def changes(rows: Sequence[AblationRow]) -> dict[str, str]:
    """The change in test perplexity of each variant that has an interval: `+3.2% [+0.5%, +6.0%]`."""
    effects = {row.variant: row.effect for row in rows if row.effect is not None}
    return {name: in_percent(e.nats or 0.0, e.interval) for name, e in effects.items() if e.interval is not None}


def _answer(
    rows: Sequence[AblationRow], shown: Sequence[AblationRow], comparison: Comparison | None, published: float | None
) -> str:
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
    others = [row for row in shown if not row.is_baseline and not row.adaptive]
    if not others and len(shown) == len(rows):
        seeds = counted(base.complete, "seed")
        beside = "" if published is None else f"; {published:g} is published"
        return f"{name} reaches test perplexity {base.test} ({seeds}{beside}), and nothing is compared with it"
    level = level_in_words(comparison)
    parts = _decided(others, base, level)
    if equal := [row for row in others if row.effect is not None and row.effect.verdict == "equivalent"]:
        has = f"ha{'s' if len(equal) == 1 else 've'} {no_effect(comparison.margin)} of perplexity"
        parts.append(f"{_named(equal, 'other ')} {has}")
    return "; ".join([*parts, *_undecided(others, base.variant, level)])


def _subject(row: AblationRow) -> str:
    """What a row changes, as the subject of a sentence: `removing AR/TAR`, or the variant's name in quotes.

    Nobody reads “no AR/TAR lowers it” as he should. A code span's quotes would be lost in plain text.
    """
    removed = listed([escape(name) for name in row.removed])
    return f"removing {removed}" if 0 < len(row.removed) <= 2 else f"“{escape(row.variant)}”"


def _decided(rows: Sequence[AblationRow], base: AblationRow, level: str) -> list[str]:
    """The changes that raise and those that lower test perplexity, the largest first."""
    clauses = []
    for verdict in ("raises", "lowers"):
        matching = [row for row in rows if row.effect is not None and row.effect.verdict == verdict]
        matching.sort(key=lambda row: abs(row.effect.nats or 0.0) if row.effect else 0.0, reverse=True)
        if len(matching) > _LISTED:
            ends = (f"{_size_of(row)} by {_subject(row)}" for row in (matching[-1], matching[0]))
            clauses.append(f"{len(matching)} changes {verdict[:-1]} test perplexity, from {' to '.join(ends)}")
        elif matching:
            first, *rest = matching
            sentence = f"{_subject(first)} {verdict} test perplexity by {_size_of(first)}{_larger(first, base)}"
            tail = [f"{_subject(row)} by {_size_of(row)}{_larger(row, base)}" for row in rest]
            clauses.append(listed([sentence, *tail]))
    if not clauses:
        return []
    return ["; ".join(clauses) + f" (against {escape(base.variant)}; {level} {_intervals(rows)} over {_seeds(rows)})"]


def _size_of(row: AblationRow) -> str:
    assert row.effect is not None
    return by_percent(row.effect)


def _larger(row: AblationRow, base: AblationRow) -> str:
    """How much larger or smaller the model is, if that may be what makes the difference."""
    ratio = row.parameters / base.parameters
    return "" if abs(ratio - 1) < _SAME_SIZE else f", of {significant(ratio, 2)} times the parameters"


def _intervals(rows: Sequence[AblationRow]) -> str:
    return "interval" if len(rows) == 1 else "simultaneous intervals"


def _best(rows: Sequence[AblationRow], best: Sequence[str]) -> list[str]:
    """Which variants may have the lowest test perplexity; nothing if all may, none is known, or it is of two."""
    compared = [row for row in rows if row.is_baseline or (row.effect is not None and _is_fair(row.effect))]
    names = listed([f"“{escape(name)}”" for name in best])
    if not best or len(compared) < 3 or len(best) >= len(compared):
        return []
    if len(best) == 1:
        return [f"{names} has the lowest test perplexity of the {len(compared)} that are compared (95%)"]
    if len(best) <= _NAMED:
        return [f"the lowest test perplexity of the {len(compared)} that are compared is that of {names} (95%)"]
    return [f"{len(best)} of the {len(compared)} that are compared may have the lowest test perplexity (95%)"]


def _is_fair(effect: Effect) -> bool:
    return effect.obstacle is None or effect.obstacle.reason == "equal in every seed"


def _contrasts(rows: Sequence[InteractionRow]) -> list[str]:
    """What the design's own contrasts show, a clause a kind: main effects first, with their sizes."""
    clauses = []
    averaged = {"main effect": "averaged over the other components", "alone": "with all other components away"}
    for kind, context in averaged.items():
        judged = [row for row in rows if row.estimand.kind == kind and row.effect.verdict != "no verdict"]
        decided = sorted(
            (row for row in judged if row.effect.verdict in ("raises", "lowers")),
            key=lambda row: -abs(row.effect.nats or 0.0),
        )
        sentences = [
            f"removing {escape(row.estimand.factor)} {row.effect.verdict} test "
            f"perplexity by {by_percent(row.effect)}{_also(row)}"
            for row in decided[:_LISTED]
        ]
        still_open = [row for row in judged if row.effect.verdict == "not decided"]
        parts = [f"{context}, {listed(sentences)}"] if sentences else []
        if still_open:
            names = listed([escape(row.estimand.factor) for row in still_open])
            what = names if len(still_open) <= _NAMED else f"{len(still_open)} components"
            where = "" if sentences else f"{context}, "
            bound = at_most([row.effect for row in still_open])
            parts.append(f"{where}nothing is decided about removing {what} ({bound})")
        clauses += parts
    judged = [row for row in rows if row.estimand.kind == "interaction" and row.effect.verdict != "no verdict"]
    decided = [row for row in judged if row.effect.verdict in DECIDED]
    if judged:
        named = listed(
            [f"{escape(row.estimand.name)} ({_TOGETHER[row.effect.verdict]}{_also(row)})" for row in decided[:_LISTED]]
        )
        names = f": {named}" if decided else ""
        verb = "are" if len(decided) > 1 else "is"
        clauses.append(f"{len(decided) or 'none'} of {counted(len(judged), 'interaction')} {verb} decided{names}")
    return clauses


def _also(row: InteractionRow) -> str:
    return f"; {row.trigger}" if row.trigger else ""


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
            why = listed([f"{_subject(row)} ({row.incomplete or row.reason})" for row in rows])
            return f"there is no verdict on {why}"
        case _:
            return f"there is no verdict on {_named(rows, 'other ')}, {_WHY[reason]}"


def _undecided(rows: Sequence[AblationRow], baseline: str, level: str) -> list[str]:
    parts = []
    effects = [(row, row.effect) for row in rows if row.effect is not None]
    decided = any(effect.verdict in DECIDED for _, effect in effects)
    still_open = [(row, effect) for row, effect in effects if effect.verdict == "not decided"]
    on_this_text = [row for row, effect in still_open if effect.decided_on_this_text]
    nowhere = [(row, effect) for row, effect in still_open if not effect.decided_on_this_text]
    if nowhere:
        if len(nowhere) <= _NAMED:
            what = listed([f"{_subject(row)} ({at_most([effect])})" for row, effect in nowhere])
        else:
            bound = at_most([effect for _, effect in nowhere])
            what = f"{len(nowhere)} {'other ' * decided}changes ({bound})"
        from_base = "" if decided else f", compared with {escape(baseline)} ({level} {_intervals(rows)})"
        parts.append(f"{_seeds([row for row, _ in nowhere])} do not decide about {what}{from_base}")
    if on_this_text:
        names = listed([f"{_subject(row)} ({_direction(row)})" for row in on_this_text[:_LISTED]])
        parts.append(f"certain on this test text alone, because another text of its length could turn it: {names}")
    incomplete = [row for row in rows if row.incomplete]
    for reason in get_args(Reason):
        barred = [row for row, effect in effects if effect.obstacle and effect.obstacle.reason == reason]
        if matching := incomplete if reason == "not complete" else barred:
            parts.append(_without_verdict(reason, matching, escape(baseline)))
    return parts


def _direction(row: AblationRow) -> str:
    assert row.effect is not None and row.effect.on_this_text is not None and row.effect.nats is not None
    return in_percent(row.effect.nats, row.effect.on_this_text)


def _named(rows: Sequence[AblationRow], which: str = "") -> str:
    return listed([_subject(row) for row in rows]) if len(rows) <= _NAMED else f"{len(rows)} {which}changes"


def _seeds(rows: Sequence[AblationRow]) -> str:
    counts = sorted({row.complete for row in rows if row.effect is not None and row.effect.interval is not None})
    return counted(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
