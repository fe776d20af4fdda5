"""The answer of a page: what its question asks, in sentences that the numbers support, and nothing more.

What is decided comes first, then what is not, then what cannot be compared; what the intervals are stands at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never, get_args

from orchestrator.analysis.effects import DECIDED, Comparison, Effect, Reason
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.report.sections.ablation import RECALLED, AblationRow, Spread
from orchestrator.report.sections.interactions import InteractionRow, contrast_sentences
from orchestrator.report.sections.verdicts import (
    LISTED,
    NAMED,
    NO_NOISE,
    NOT_DECIDED,
    OTHER_TEXT,
    WORSE_THAN_GUESSING,
    all_within,
    by_percent,
    level_in_words,
    no_effect,
    signed_ends,
    why_nothing_complete,
)
from orchestrator.sweep.published import Number
from orchestrator.sweep.scaled import BEST_FOUND
from orchestrator.words import Markdown, counted, ends_in_words, escape, listed, number, significant

FRAME = " (Ranges: "
"""Begins what the answer ends with: what its intervals are."""
_SAME_SIZE = 0.1
"""Models that differ by less than this share of their parameters are of one size."""
_MAY_BE_BEST = 4
"""The most variants that are named as those of which one is the best."""
Judged = tuple[AblationRow, Effect]
"""A row that is compared with the baseline, and its effect."""
_WHY: dict[Reason, str] = {
    "another budget": "trained with another budget",
    "another test text": OTHER_TEXT,
    "worse than guessing": "worse than guessing by the words' frequencies",
    "adaptive": "adapts to the text of the test",
}


def answer(
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    scale: str,
    tuning: Sequence[int] = (),
    hardly_chosen: Sequence[str] = (),
    interactions: Sequence[InteractionRow] = (),
    best: Sequence[str] = (),
    published: Number | None = None,
    measured: Sequence[str] = (),
    untuned: Sequence[str] = (),
) -> Markdown:
    """The answer; `scale` is empty if the file has none.

    `tuning`: how many trials tuned each variant; `hardly_chosen`: those tuned by one complete trial; `untuned`: those
    whose search found nothing; `best`: the variants that may have the lowest test perplexity; `published`: the
    baseline's at this scale; `measured`: what is said of other measures than test perplexity, before all verdicts.
    """
    designed = [row for row in interactions if row.estimand.kind == "main effect" and row.effect.verdict in DECIDED]
    # Main effects summarize the variants of the design, which are then not listed one by one.
    shown = [row for row in rows if not (designed and row.removed)]
    of_contrasts, open_contrasts = ([], []) if comparison is None else contrast_sentences(interactions)
    decided, left_open = _answer(rows, shown, comparison, published)
    sentences = [*measured, *_best(rows, best), *of_contrasts, *decided, *open_contrasts, *left_open]
    tuned = ""
    if tuning and comparison is not None:
        low, high = min(tuning), max(tuning)
        tuned = f"after {counted(high, 'trial') if low == high else f'{low} to {high} trials'} of tuning each, "
        if hardly_chosen:
            named = listed([_quoted(name) for name in hardly_chosen[:NAMED]])
            alone = named if len(hardly_chosen) <= NAMED else f"{len(hardly_chosen)} variants"
            sentences.append(f"only one tuning trial of {alone} came to its end")
    if rows[0].variant in untuned:
        no_trial = f"no trial of the search for {_quoted(rows[0].variant)} was complete"
        sentences.append(f"nothing is compared, because {no_trial}")
    elif untuned:
        search = "its search" if len(untuned) == 1 else "their searches"
        sentences.append(f"no verdict on {listed([*map(_quoted, untuned)])}: no trial of {search} was complete")
    where = f"at {escape(scale)} scale, " if scale else ""
    first, *rest = sentences
    text = ". ".join(said[0].upper() + said[1:] for said in (where + tuned + first, *rest))
    return Markdown(f"{text}.{_frame(rows, interactions, comparison)}")


def _frame(rows: Sequence[AblationRow], interactions: Sequence[InteractionRow], comparison: Comparison | None) -> str:
    """What the intervals are: their level, how many hold at once, what they are relative to, the seeds."""
    of_rows = [row for row in rows if row.effect is not None and row.effect.interval is not None]
    if comparison is None or not (of_rows or any(row.effect.interval for row in interactions)):
        return ""
    base = next(row for row in rows if row.is_baseline)
    counts = sorted({row.complete for row in of_rows}) or [base.complete]
    seeds = counted(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    seeds += f" and {base.complete} of {_quoted(base.variant)}" if base.complete > counts[-1] else ""
    kind = "interval" if len(of_rows) + len(interactions) + comparison.waiting == 1 else "intervals, each by itself,"
    kind = "simultaneous intervals" if comparison.family_size + len(interactions) > 1 else kind
    level = level_in_words(None) if comparison.level == 1 - LEVEL_OF_ERROR else f"at least {level_in_words(None)}"
    averaged = any(row.estimand.kind != "interaction" for row in interactions)  # over other references too
    against = "" if averaged else f" against {_quoted(base.variant)}"
    return f"{FRAME}{level} {kind} of the change in test perplexity{against}, {seeds}.)"


def _answer(
    rows: Sequence[AblationRow], shown: Sequence[AblationRow], comparison: Comparison | None, published: Number | None
) -> tuple[list[str], list[str]]:
    """What is decided of the rows, or why nothing is, and what is left open."""
    base = next(row for row in rows if row.is_baseline)
    name = _quoted(base.variant)
    if not any(row.complete for row in rows):
        why = why_nothing_complete([row.incomplete for row in rows], sum(row.seeds for row in rows))
        return [f"{why}, so there is no answer"], []
    if comparison is None and base.adaptive:
        return [f"nothing is compared, because {name} adapts to the text it is scored on"], []
    if comparison is None and base.reason == WORSE_THAN_GUESSING:
        return [f"nothing is compared, because {name} is {_WHY[WORSE_THAN_GUESSING]}"], []
    if comparison is None and "diverged" in base.incomplete:
        return [f"nothing can be compared: of {name}, {base.incomplete}"], []
    if comparison is None:
        return [f"nothing can be compared yet: {base.complete} of {counted(base.seeds, 'seed')} of {name} complete"], []
    others = [row for row in shown if not row.is_baseline and not row.adaptive]
    if not others and len(shown) == len(rows):
        return [_reached(base, published)], []
    judged = [(row, row.effect) for row in others if row.effect is not None]
    sentences = ([] if published is None else [_reached(base, published)]) + _decided(judged, base)
    if equal := [row for row, effect in judged if effect.verdict == "equivalent"]:
        has = f"ha{'s' if len(equal) == 1 else 've'} {no_effect(comparison.margin)} of perplexity"
        sentences.append(f"{_named(equal, 'other ')} {has}")
    incomplete = [row for row in rows if row.incomplete and not row.is_baseline and not row.adaptive]
    return [*sentences, *_on_this_text(judged)], _left_open(judged, incomplete, base.variant)


def _reached(base: AblationRow, published: Number | None) -> str:
    """What the baseline reaches, how far from the published number that is, and what one more seed may reach."""
    assert base.test is not None
    of_seeds = "one seed" if base.complete == 1 else f"mean ± standard deviation of {base.complete} seeds"
    reaches = f"{_quoted(base.variant)} reaches test perplexity {base.test} ({of_seeds})"
    if published is None:
        return reaches
    reaches += f", {_beside_published(base.test, published)}"
    if base.published_valid is None or base.valid is None:
        return reaches
    return f"{reaches}. Validation perplexity is {base.valid}, {_beside_published(base.valid, base.published_valid)}"


def _beside_published(reached: Spread, published: Number) -> str:
    """How far a mean lies from a published number, and whether one more seed may reach that."""
    paper, change = published.perplexity, 100 * (reached.mean / published.perplexity - 1)
    memory = " (from memory)" if published.certainty == RECALLED else ""
    text = f"{number(abs(change), 1)}% {'below' if change < 0 else 'above'} the published {paper:g}{memory}"
    mean, more = reached.of_mean, reached.one_more_seed
    if mean is None or more is None:
        return text
    if mean.low <= paper <= mean.high:
        return f"{text}, which lies in the 95% interval of this mean ({ends_in_words(*mean)})"
    one_run = "may be" if more.low <= paper <= more.high else "would hardly be"
    outside = f"which lies outside the 95% interval of this mean ({ends_in_words(*mean)})"
    return f"{text}, {outside}; a single seed {one_run} there ({ends_in_words(*more)})"


def _quoted(name: str) -> str:
    """A variant's name in a sentence, in quotes if it could be taken for words of the sentence.

    A code span's quotes would be lost in plain text.
    """
    if name == BEST_FOUND:
        return "what the search found"
    return f"“{escape(name)}”" if " " in name or name[0].islower() else escape(name)


def _subject(row: AblationRow) -> str:
    """What a row changes, as the subject of a sentence: `removing AR/TAR`, or the variant's name.

    Half of all readers would take “no AR/TAR lowers it” for the contrary.
    """
    if _takes_away_few(row):
        return f"removing {listed([escape(name) for name in row.removed])}"
    return f"leaving {escape(row.variant)}" if row.removed and row.variant.startswith("only ") else _quoted(row.variant)


def _takes_away_few(row: AblationRow) -> bool:
    return 0 < len(row.removed) <= 2


def _decided(judged: Sequence[Judged], base: AblationRow) -> list[str]:
    """The changes that raise and those that lower test perplexity, the largest first; of many what each removes."""
    sentences = []
    for verdict in ("raises", "lowers"):
        matching = [(row, effect) for row, effect in judged if effect.verdict == verdict]
        matching.sort(key=lambda each: abs(each[1].nats), reverse=True)
        named = matching if len(matching) <= LISTED else [each for each in matching if _takes_away_few(each[0])]
        if len(named) > LISTED:
            named = []
        elif len(matching) == len(named) + 1:  # a range of one says nothing
            named = matching
        if named:
            sentences.append(_each_size(named, verdict, base))
        if others := [each for each in matching if each not in named]:
            ends = " to ".join(f"{by_percent(effect)} by {_subject(row)}" for row, effect in (others[-1], others[0]))
            other = "other " if named else ""
            sentences.append(f"{len(others)} {other}changes {verdict[:-1]} test perplexity, from {ends}")
    return sentences


def _each_size(judged: Sequence[Judged], verdict: str, base: AblationRow) -> str:
    larger = [_larger(row, base) for row, _ in judged]
    shared = len(judged) > 1 and len(set(larger)) == 1
    verbs = [f" {verdict} test perplexity", *[""] * (len(judged) - 1)]
    sizes = [
        f"{_subject(row)}{verb} by {by_percent(effect)}{'' if shared else said}"
        for (row, effect), verb, said in zip(judged, verbs, larger, strict=True)
    ]
    together = f", each{larger[0].removeprefix(',')}" if shared and larger[0] else ""
    return listed(sizes) + together


def _larger(row: AblationRow, base: AblationRow) -> str:
    """How much larger or smaller the model is, if that may be what makes the difference."""
    ratio = row.parameters / base.parameters
    return "" if abs(ratio - 1) < _SAME_SIZE else f", with {significant(ratio, 2)} times the parameters"


def _best(rows: Sequence[AblationRow], best: Sequence[str]) -> list[str]:
    """Which variants may have the lowest test perplexity; nothing if all or too many may, or the verdicts say it.

    Of variants that are equal in every seed the first is named.
    """
    fair = [row for row in rows if row.is_baseline or (row.effect is not None and row.effect.obstacle is None)]
    compared = [*{row.test: row for row in reversed(fair)}.values()]
    best = [row.variant for row in compared if row.variant in best]
    not_told_apart = {
        row.variant for row in compared if row.effect is None or row.effect.verdict not in ("raises", "lowers")
    }
    if not best or len(compared) < 3 or len(best) >= len(compared) or len(best) > _MAY_BE_BEST:
        return []
    if len(best) == 1:
        return [f"{_quoted(best[0])} has the lowest test perplexity of the {len(compared)} that are compared"]
    if set(best) == not_told_apart:
        return []
    tests = {row.variant: row.test.mean for row in compared if row.test is not None}
    lowest, *others = sorted(best, key=tests.__getitem__)
    has = f"{_quoted(lowest)} has the lowest mean test perplexity of the {len(compared)} that are compared"
    return [f"{has}; that of {listed([*map(_quoted, others)])} is not shown to be higher"]


def _without_verdict(reason: Reason, rows: Sequence[AblationRow], baseline: str) -> str:
    match reason:
        case "equal in every seed" if [row.variant for row in rows] == [BEST_FOUND]:
            return f"the search found nothing better than {baseline}: the two are equal in every seed"
        case "equal in every seed":
            return f"{_named(rows)} {'equals' if len(rows) == 1 else 'equal'} {baseline} in every seed"
        case "one seed":
            return f"{NOT_DECIDED}: {_named(rows)}, because with one seed the noise is unknown"
        case "seeds do not differ":
            return f"{NOT_DECIDED}: {_named(rows)}, because {NO_NOISE}"
        case "not complete" if len(rows) > NAMED:
            return f"no verdict on {len(rows)} changes: not all of their seeds are complete"
        case "not complete":
            why = listed([f"{_subject(row)} ({row.incomplete or row.reason})" for row in rows])
            return f"no verdict on {why}"
        case "another budget" | "another test text" | "worse than guessing" | "adaptive":
            return f"no verdict on {_named(rows, 'other ')}: {_WHY[reason]}"
        case _:
            assert_never(reason)


def _on_this_text(judged: Sequence[Judged]) -> list[str]:
    certain = [each for each in judged if each[1].verdict == "not decided" and each[1].decided_on_this_text]
    said = "decided for this test text by the noise of the seeds alone, not for other texts: "
    return [said + _with_ends(certain, LISTED)] if certain else []


def _left_open(judged: Sequence[Judged], incomplete: Sequence[AblationRow], baseline: str) -> list[str]:
    sentences = []
    other = "other " if any(effect.verdict in DECIDED for _, effect in judged) else ""
    if nowhere := [each for each in judged if each[1].verdict == "not decided" and not each[1].decided_on_this_text]:
        sentences.append(f"{NOT_DECIDED}: {_with_ends(nowhere, NAMED, other)}")
    for reason in get_args(Reason):
        barred = [row for row, effect in judged if effect.obstacle and effect.obstacle.reason == reason]
        if matching := incomplete if reason == "not complete" else barred:
            sentences.append(_without_verdict(reason, matching, _quoted(baseline)))
    return sentences


def _with_ends(judged: Sequence[Judged], most: int, other: str = "") -> str:
    """Each change with its interval; more than `most` by their number, with what holds all intervals."""
    if len(judged) > most:
        return f"{len(judged)} {other}changes ({all_within([effect for _, effect in judged])})"
    return listed([f"{_subject(row)} ({signed_ends([effect])})" for row, effect in judged])


def _named(rows: Sequence[AblationRow], which: str = "") -> str:
    return listed([_subject(row) for row in rows]) if len(rows) <= NAMED else f"{len(rows)} {which}changes"
