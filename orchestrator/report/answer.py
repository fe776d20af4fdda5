"""What the numbers support, in sentences: the answer, the verdict of a row, the noise behind the intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from lm.record import opened
from orchestrator.comparison import OTHER_BUDGET, is_adaptive
from orchestrator.curve import curve_of
from orchestrator.noise import BLOCKS, WAVES, Correlation, Deviation
from orchestrator.outcomes import Outcome, flat
from orchestrator.power import MOST_FURTHER, Further
from orchestrator.report.interaction_tables import InteractionRow
from orchestrator.report.tables import AblationRow
from orchestrator.statistics import (
    IDENTICAL,
    LEVEL_OF_ERROR,
    NO_NOISE,
    ONE_SEED,
    Comparison,
    Effect,
    perplexity_change,
    rate_interval,
)
from orchestrator.wording import Markdown, counted, decimals_for, escape, listed, signed, significant, spread

_NAMED = 3
"""So many undecided variants are named in the answer; more are counted."""
_NOISY = 10.0
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
        return Markdown(f"no verdict ({why})")
    verdict = verdict_in_words(row.effect, margin)
    if row.effect.verdict != "not decided":
        return Markdown(f"**{verdict}**")
    why = row.effect.reason or what_would_decide(row.effect.further)
    return Markdown(f"{verdict} ({why})" if why else verdict)


def verdict_in_words(effect: Effect, margin: float) -> str:
    """A verdict with its margin, `no effect larger than 0.5%`; `no verdict` where there is a reason for none."""
    if effect.reason is not None:
        return "no verdict"
    return _no_effect(margin) if effect.verdict == "equivalent" else effect.verdict


def _no_effect(margin: float) -> str:
    return f"no effect larger than {100 * margin:.3g}%"


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


def noise_sentence(comparison: Comparison | None, baseline: str, searched: bool) -> Markdown:
    """What the intervals cover and assume, in figures; why there are none where there are none.

    `searched`: some variant has values that a search found.
    """
    noise, intervals = (comparison.noise, comparison.intervals) if comparison else (None, 0)
    if noise is None:
        return Markdown("No interval is given: " + _why_no_interval(comparison, baseline) + ".")
    own = [known.own for known in noise.deviations.values()]
    ends = dict.fromkeys(map(_percent, (min(own), max(own))))
    shared = f", their level shared out over {intervals} compared variants (Šidák)" if intervals > 1 else ""
    found = " The values that a search found are taken as given: what another search would find is in no interval."
    covered = (
        "They cover two noises, that of another training run (the seeds) and that of another test text (the "
        f"{WAVES} slowest cosine waves of a difference along {BLOCKS} blocks of it; Lazarus et al. 2018)."
        if noise.has_text
        else "**They cover the noise of the seeds alone**, not that of another test text: not every trial has its "
        f"losses by token, or the text has fewer than {BLOCKS} tokens."
    )
    return Markdown(
        f"The intervals are Student's t{shared}. {covered}{found * searched} Seeds are taken as normal; a variant's "
        "deviation is its own, averaged with that of the others, which count as one more seed (Smyth 2004); but "
        "no interval takes the seeds' noise as less than a lone comparison would from the deviations of its own "
        "variants (after Welch 1938, with fewer degrees of freedom). The own deviations are "
        f"{' to '.join(ends)} of perplexity.{_noisiest(noise.deviations)}{_pairing(noise.correlation)}"
    )


def _noisiest(deviations: Mapping[str, Deviation]) -> str:
    """Who widens the intervals of all, where somebody does."""
    own = {name: known.own for name, known in deviations.items()}
    most, middle = max(own, key=lambda name: own[name]), median(own.values())
    if own[most] < _NOISY * middle:
        return ""
    who = "the baseline" if most == "" else escape(most.removeprefix("variant "))
    return (
        f" One of them, that of {who}, is more than {_NOISY:g} times the middle one and widens all intervals: with few "
        "seeds nobody can tell a quiet variant from a noisy one whose seeds happen to lie close."
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


def averaging_sentence(outcomes: Mapping[str, tuple[Outcome, ...]]) -> Markdown:
    """Where NT-ASGD's trigger fired before fine-tuning, unless it did in every trial that has one.

    It is a threshold on a noisy loss: whether it fires can differ between variants, and between seeds of one.
    """
    fired = {
        variant: [_has_averaged(outcome) for outcome in group if outcome.final]
        for variant, group in outcomes.items()
        if group[0].trial.spec.optimizer.kind == "nt_asgd" and not is_adaptive(group)
    }
    trials = [one for each in fired.values() for one in each]
    if all(trials):
        return Markdown("")
    if not any(trials):
        return Markdown("NT-ASGD never began to average before fine-tuning, so what averaging does is not tested here.")
    every = [escape(variant) for variant, each in fired.items() if each and all(each)]
    some = [
        f"{sum(one)} of {len(one)} seeds of {escape(name)}" for name, one in fired.items() if 0 < sum(one) < len(one)
    ]
    where = listed([*([f"every seed of {listed(every)}"] if every else []), *some])
    return Markdown(
        f"**NT-ASGD began to average in {sum(trials)} of {len(trials)} trials** before fine-tuning: in {where}. Where "
        "one did and another did not, their difference is that of averaging too."
    )


def _has_averaged(outcome: Outcome) -> bool:
    curve = curve_of(outcome.curve)
    return bool((curve.averaging & ~np.char.startswith(curve.stage, "finetune")).any())


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
        return [
            row for row in rows if row.effect and row.effect.verdict == "not decided" and row.effect.reason == reason
        ]

    parts = []
    decided = any(row.effect and row.effect.verdict != "not decided" for row in rows)
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


def _why_no_interval(comparison: Comparison | None, baseline: str) -> str:
    if comparison is None:
        return f"the baseline {escape(baseline)} is not complete"
    reasons = {effect.reason for effect in comparison.effects.values() if effect.reason is not None}
    return listed(sorted(reasons)) or "no variant is complete"


def _percent(nats: float) -> str:
    return f"{significant(100 * perplexity_change(0.0, nats), 2)}%"
