"""What the numbers support, in sentences: the answer, the verdict of a row, the noise behind the intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lm.record import opened
from orchestrator.comparison import OTHER_BUDGET
from orchestrator.noise import BLOCKS, WAVES, Correlation
from orchestrator.outcomes import Outcome, flat
from orchestrator.power import MOST_FURTHER, Further
from orchestrator.report.tables import AblationRow
from orchestrator.statistics import (
    IDENTICAL,
    LEVEL_OF_ERROR,
    NO_NOISE,
    ONE_SEED,
    Comparison,
    Verdict,
    perplexity_change,
    rate_interval,
)
from orchestrator.wording import Markdown, counted, difference_decimals, escape, listed, signed, significant, spread

_NAMED = 3
"""So many undecided variants are named in the answer; more are counted."""
_LISTED = 8
"""So many variants of one verdict are listed; of more, their number and the range of their differences."""


def answer(
    rows: Sequence[AblationRow], comparison: Comparison | None, scale: str, baseline: str, tuning: Sequence[int] = ()
) -> Markdown:
    """One sentence that the numbers support, and nothing more; `tuning` is how many trials tuned each variant."""
    sentence, tuned = _answer(rows, comparison, baseline), ""
    if tuning and comparison is not None:
        low, high = min(tuning), max(tuning)
        tuned = f"after {counted(high, 'trial') if low == high else f'{low} to {high} trials'} of tuning each, "
    return Markdown(f"At scale {escape(scale)}, {tuned}{sentence}.")


def standing(outcomes: Mapping[str, tuple[Outcome, ...]]) -> Markdown:
    """How many of the planned trials stand behind the page."""
    trials = flat(outcomes)
    complete = sum(outcome.final is not None for outcome in trials)
    kinds = ("diverged", "failed", "unfinished", "missing")
    counts = {kind: sum(outcome.status == kind for outcome in trials) for kind in kinds}
    others = "".join(f", {count} {kind}" for kind, count in counts.items() if count)
    interim = counts["unfinished"] + counts["missing"] > 0
    note = " An interim page: it changes as trials end." if interim else ""
    return Markdown(f"{complete} of {counted(len(trials), 'planned trial')} complete{others}.{note}")


def divergence_sentence(outcomes: Mapping[str, tuple[Outcome, ...]]) -> Markdown:
    """How often which variants diverged or failed, with an interval for the rate; empty where none did."""
    found = []
    for variant, group in outcomes.items():
        ended = [outcome for outcome in group if outcome.status in ("complete", "diverged", "failed")]
        for status in ("diverged", "failed"):
            if count := sum(outcome.status == status for outcome in ended):
                rate = rate_interval(count, len(ended))
                of = counted(len(ended), "trial")
                found.append(
                    f"{escape(variant)} {status} in {count} of {of} ({100 * rate.low:.0f}% to {100 * rate.high:.0f}%)"
                )
    if not found:
        return Markdown("")
    return Markdown(f"How often, with the 95% interval of each rate (Clopper and Pearson 1934): {listed(found)}.")


def verdict_cell(row: AblationRow, baseline: str, margin: float) -> Markdown:
    """The verdict as the table shows it; where there is none the reason, or what would decide."""
    if row.variant == baseline:
        return Markdown("baseline")
    if row.adaptive:
        return Markdown("adaptive, not compared")
    if row.effect is None:
        why = "no seed is complete" if row.complete == 0 else f"{escape(baseline)} is not complete"
        return Markdown(f"not decided ({why})")
    verdict = verdict_in_words(row.effect.verdict, margin)
    if row.effect.verdict != "not decided":
        return Markdown(f"**{verdict}**")
    why = row.effect.reason or _what_would_decide(row.effect.further)
    return Markdown(f"{verdict} ({why})" if why else verdict)


def verdict_in_words(verdict: Verdict, margin: float) -> str:
    """A verdict with its margin: `no effect larger than 0.5%`."""
    return f"no effect larger than {100 * margin:.3g}%" if verdict == "equivalent" else verdict


def level_in_words(comparison: Comparison | None) -> str:
    """The probability with which the intervals cover, all at once: `95%`."""
    return f"{100 * (1 - LEVEL_OF_ERROR if comparison is None else comparison.level):.3g}%"


def looks_sentence(looks: Sequence[int], error: float = LEVEL_OF_ERROR) -> Markdown:
    """How seeds were given, and what that costs; empty where every variant has the same seeds."""
    if len(looks) == 1:
        return Markdown("")
    return Markdown(
        f"Variants got more seeds only as long as they were undecided, at {len(looks)} looks at most (after "
        f"{listed([str(look) for look in looks])} seeds). Each look may err with probability {error / len(looks):.2g} "
        "(Bonferroni), so that the probability that one or more verdicts of this table are wrong is at most "
        f"{error:.2g}."
    )


def noise_sentence(comparison: Comparison | None, baseline: str) -> Markdown:
    """What the intervals cover and assume, in figures; why there are none where there are none."""
    noise, intervals = (comparison.noise, comparison.intervals) if comparison else (None, 0)
    if noise is None:
        return Markdown("No interval is given: " + _why_no_interval(comparison, baseline) + ".")
    own = [known.own for known in noise.deviations.values()]
    low, high = map(_percent, (min(own), max(own)))
    covered = (
        "They cover two noises, that of another training run (the seeds) and that of another test text (the "
        f"{WAVES} slowest cosine waves of a difference along {BLOCKS} blocks of it; Lazarus et al. 2018)."
        if noise.has_text
        else "**They cover the noise of the seeds alone**, not that of another test text: not every trial has its "
        f"losses by token, or the text has fewer than {BLOCKS} tokens."
    )
    return Markdown(
        f"The intervals are Student's t, their level shared out over {counted(intervals, 'compared variant')} "
        f"(Šidák). {covered} Seeds are taken as normal; a variant's deviation is its own, averaged with that of the "
        "others, which count as one more seed (Smyth 2004); but no interval takes the seeds' noise as less than a lone "
        "comparison would from the deviations of its own variants (after Welch 1938, with fewer degrees of freedom). "
        f"The own deviations lie between {low} and {high} of "
        f"perplexity.{_pairing(noise.correlation)}"
    )


def _pairing(found: Correlation | None) -> str:
    if found is None:
        return ""
    where = "for all variants together and for each one with the baseline"
    use = f"no interval, since a correlation above zero could not be established {where}"
    if found.used > 0:
        use = f"the intervals as a correlation of {found.used:.2f} does: at least that is established {where}"
    return (
        f" Losses of trials that share a seed number correlate by {signed(found.estimate)} over all variants. "
        f"Pairing by seed narrows {use}."
    )


def convention_sentence(outcomes: Mapping[str, tuple[Outcome, ...]]) -> Markdown:
    """How far the published convention lies from exact perplexity; empty where no trial is complete."""
    scores = [
        score
        for outcome in flat(outcomes)
        if outcome.final
        for score in (outcome.final.valid, opened(outcome.final.test))
    ]
    if not scores:
        return Markdown("")
    share = max(abs(score.perplexity_reference / score.perplexity - 1) for score in scores)
    return Markdown(
        "The AWD-LSTM authors' convention, which divides by all rows, differs by at most "
        f"{significant(100 * share, 2)}% here; trials.csv has both."
    )


def _answer(rows: Sequence[AblationRow], comparison: Comparison | None, baseline: str) -> str:
    base = next(row for row in rows if row.variant == baseline)
    name = escape(baseline)
    if not any(row.complete for row in rows):
        return "nothing is complete yet, so there is no answer"
    if comparison is None and base.adaptive:
        return f"nothing is compared, since {name} adapts to the text it is scored on"
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
    parts = [*_decided(others, baseline, level), *_equivalent(others, comparison.margin)]
    parts += _undecided(others, baseline, level)
    return "; ".join(parts)


def _decided(rows: Sequence[AblationRow], baseline: str, level: str) -> list[str]:
    def names(verdict: str) -> str:
        found = [row for row in rows if row.effect is not None and row.effect.verdict == verdict]
        found.sort(key=lambda row: abs(row.effect.nats if row.effect else 0.0), reverse=True)
        if len(found) <= _LISTED:
            return listed([f"{escape(row.variant)} ({_rounded(row)})" for row in found])
        ends = (f"{_rounded(row)} with {escape(row.variant)}" for row in (found[-1], found[0]))
        return f"{len(found)} changes (from {' to '.join(ends)})"

    higher, lower = names("hurts"), names("helps")
    parts = [f"{word} with {found}" for word, found in (("higher", higher), ("lower", lower)) if found]
    if not parts:
        return []
    return [
        f"test perplexity is {' and '.join(parts)} than with {escape(baseline)} "
        f"({level} simultaneous intervals over {_seeds(rows)} exclude zero)"
    ]


def _equivalent(rows: Sequence[AblationRow], margin: float) -> list[str]:
    found = [row for row in rows if row.effect is not None and row.effect.verdict == "equivalent"]
    if not found:
        return []
    verb = "has" if len(found) == 1 else "have"
    return [f"{_named(found, 'other ')} {verb} {verdict_in_words('equivalent', margin)} of perplexity"]


def _what_would_decide(further: Further | None) -> str:
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


def _undecided(rows: Sequence[AblationRow], baseline: str, level: str) -> list[str]:
    def having(reason: str | None) -> list[AblationRow]:
        return [
            row for row in rows if row.effect and row.effect.verdict == "not decided" and row.effect.reason == reason
        ]

    parts = []
    decided = any(row.effect and row.effect.verdict != "not decided" for row in rows)
    if (still_open := having(None)) and decided:
        parts.append(f"{_seeds(still_open)} do not decide about {_named(still_open, 'other ')}")
    elif still_open:
        contain = "interval of {} contains" if len(still_open) == 1 else "intervals of {} contain"
        contain = contain.format(_named(still_open))
        parts.append(f"{_seeds(still_open)} decide nothing: the {level} simultaneous {contain} zero")
    if same := having(IDENTICAL):
        parts.append(f"{_named(same)} {'equals' if len(same) == 1 else 'equal'} {escape(baseline)} in every seed")
    if single := having(ONE_SEED):
        parts.append(f"with one seed nothing is decided about {_named(single)}, since the seed noise is unknown")
    if unequal := having(OTHER_BUDGET):
        parts.append(f"there is no verdict on {_named(unequal, 'other ')}, trained with another budget")
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
    return signed(row.change_in_perplexity, difference_decimals(row.interval_in_perplexity))


def _why_no_interval(comparison: Comparison | None, baseline: str) -> str:
    if comparison is None:
        return f"the baseline {escape(baseline)} is not complete"
    reasons = {effect.reason for effect in comparison.effects.values() if effect.reason is not None}
    return listed(sorted(reasons)) or "no variant is complete"


def _percent(nats: float) -> str:
    return f"{significant(100 * perplexity_change(0.0, nats), 2)}%"
