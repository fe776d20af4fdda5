"""Notes on the method, in sentences: trials, the noise in the intervals, looks, averaging, conventions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from scipy import special

from lm.record import opened
from orchestrator.analysis.comparison import obstacles
from orchestrator.analysis.effects import Comparison, Interval
from orchestrator.analysis.guessing import untrained
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.noise import BLOCKS, WAVES, Correlation, Deviation
from orchestrator.analysis.outcomes import Outcomes, Status, averaged_seeds, is_adaptive
from orchestrator.analysis.statistics import BASELINE, perplexity_change
from orchestrator.report.sections.verdicts import level_in_words, why_no_verdict
from orchestrator.words import Markdown, counted, escape, listed, signed, significant

_LOST: tuple[Status, ...] = ("diverged", "failed")
_NOISY = 10.0
"""A deviation is named if it is this many times the middle one."""


@dataclass(frozen=True)
class MethodNotes:
    """Sentences, empty if there is nothing to say. `has_steps`: some verdict came at a later step (Holm).

    `convention` is how far the published one is off exact perplexity; `divergence` lists how often what was lost.
    """

    trials: Markdown
    noise: Markdown
    averaging: Markdown
    divergence: Markdown
    convention: float | None
    level: str
    simultaneous: bool
    has_steps: bool
    error: float = LEVEL_OF_ERROR


def method_notes(outcomes: Outcomes, comparison: Comparison | None, *, searched: bool) -> MethodNotes:
    """The notes; `searched`: a search found some values."""
    return MethodNotes(
        trials=_trials(outcomes),
        noise=_noise(outcomes, comparison, searched),
        averaging=_averaging(outcomes),
        divergence=_divergence(outcomes),
        convention=_convention(outcomes),
        level=level_in_words(comparison),
        simultaneous=comparison is not None and comparison.intervals > 1,
        has_steps=comparison is not None and any(0.0 in (e.interval or ()) for e in comparison.effects.values()),
    )


def _trials(outcomes: Outcomes) -> Markdown:
    """How many of the planned trials stand behind the page."""
    trials = outcomes.all
    counts = Counter(outcome.status for outcome in trials)
    kinds: tuple[Status, ...] = ("diverged", "failed", "unfinished", "missing")
    others = "".join(f", {counts[kind]} {kind}" for kind in kinds if counts[kind])
    failed = len(untrained(trials))
    trained = f" Of those complete, {failed} did not train." if failed else ""
    note = " An interim page: it changes as trials end." if counts["unfinished"] + counts["missing"] else ""
    return Markdown(f"{counts['complete']} of {counted(len(trials), 'planned trial')} complete{others}.{trained}{note}")


def _divergence(outcomes: Outcomes) -> Markdown:
    """How often which variants diverged or failed, with an interval for the rate; empty where none did."""
    rates = []
    for variant, group in outcomes.items():
        counts = Counter(outcome.status for outcome in group)
        ended = counts["complete"] + counts["diverged"] + counts["failed"]
        for status in _LOST:
            if count := counts[status]:
                low, high = (f"{100 * end:.0f}%" for end in rate_interval(count, ended))
                rates.append(f"{escape(variant)} {status} in {count} of {counted(ended, 'trial')} ({low} to {high})")
    return Markdown(listed(rates))


def _noise(outcomes: Outcomes, comparison: Comparison | None, searched: bool) -> Markdown:
    """What the intervals cover and assume, in figures; why there are none if there are none."""
    noise, intervals = (comparison.noise, comparison.intervals) if comparison else (None, 0)
    if noise is None:
        return Markdown("No interval is given: " + _why_no_interval(outcomes, comparison) + ".")
    deviations = [each.own for each in noise.deviations.values()]
    ends = dict.fromkeys(map(_percent, (min(deviations), max(deviations))))
    shared = f", their level shared out over {intervals} comparisons (Šidák); verdicts step down (Holm)"
    shared *= intervals > 1
    given = " The values that a search found are taken as given: what another search would find is in no interval."
    covered = (
        "They cover two noises, that of another training run (the seeds) and that of another test text (the "
        f"{WAVES} slowest cosine waves of a difference along {BLOCKS} blocks of it; Lazarus et al. 2018)."
        if noise.has_text
        else "**They cover the noise of the seeds alone**, not that of another test text: not every trial has its "
        f"losses by token, or the text has fewer than {BLOCKS} tokens."
    )
    return Markdown(
        f"The intervals are Student's t{shared}. {covered}{given * searched} Seeds are taken as normal; a variant's "
        "deviation is its own, averaged with that of the others, which count as one more seed (Smyth 2004); but "
        "no interval takes the seeds' noise as less than a lone comparison would from the deviations of its own "
        "variants (after Welch 1938, with fewer degrees of freedom). The own deviations are "
        f"{' to '.join(ends)} of perplexity.{_noisiest(noise.deviations)}{_pairing(noise.correlation)}"
    )


def _noisiest(deviations: Mapping[str, Deviation]) -> str:
    """The variant that widens the intervals of all, if one does."""
    by_variant = {name: each.own for name, each in deviations.items()}
    most, middle = max(by_variant, key=lambda name: by_variant[name]), median(by_variant.values())
    if by_variant[most] < _NOISY * middle:
        return ""
    who = "the baseline" if most == BASELINE else escape(most)
    return (
        f" One of them, that of {who}, is more than {_NOISY:g} times the middle one and widens all intervals: with few "
        "seeds nobody can tell a quiet variant from a noisy one whose seeds happen to lie close."
    )


def _pairing(correlation: Correlation | None) -> str:
    if correlation is None:
        return ""
    where = "for all variants together and for each one with the baseline"
    use = f"no interval, since a correlation above zero could not be established {where}"
    if correlation.used > 0:
        use = f"the intervals as a correlation of {correlation.used:.2f} does: at least that is established {where}"
    return (
        f" Losses of trials that share a seed number correlate by {signed(correlation.estimate)} over all variants. "
        f"Pairing by seed narrows {use}."
    )


def _convention(outcomes: Outcomes) -> float | None:
    """The largest share by which the published convention is off exact perplexity; None without a complete trial."""
    final = [outcome.final for outcome in outcomes.all if outcome.final]
    scores = [score for stage in final for score in (stage.valid, opened(stage.test))]
    return max((abs(score.perplexity_reference / score.perplexity - 1) for score in scores), default=None)


def _averaging(outcomes: Outcomes) -> Markdown:
    """In how many trials NT-ASGD began to average before fine-tuning, unless it did in every one."""
    counts = [count for group in outcomes.values() if not is_adaptive(group) and (count := averaged_seeds(group))]
    began, trials = sum(count for count, _ in counts), sum(of for _, of in counts)
    if began == trials:
        return Markdown("")
    if not began:
        return Markdown("NT-ASGD never began to average before fine-tuning, so what averaging does is not tested here.")
    return Markdown(
        f"**NT-ASGD began to average in {began} of {trials} trials** before fine-tuning; the verdict on a variant in "
        "which it began more or less often than in the baseline says so: their difference is that of averaging too."
    )


def _why_no_interval(outcomes: Outcomes, comparison: Comparison | None) -> str:
    if comparison is None:
        why = obstacles(outcomes, [outcomes.baseline])[0]
        missing = f"the baseline {escape(outcomes.baseline)} is not complete"
        return missing if why.reason == "not complete" else why_no_verdict(why)
    reasons = {why_no_verdict(effect.obstacle) for effect in comparison.effects.values() if effect.obstacle}
    reasons |= {
        why_no_verdict(why)
        for variant in outcomes
        for why in obstacles(outcomes, [variant, outcomes.baseline])[:1]
        if why.reason in ("another test text", "did not train")
    }
    return listed(sorted(reasons)) or "no variant is complete"


def rate_interval(count: int, of: int) -> Interval:
    """The exact 95% interval of a rate, seen `count` times in `of` (Clopper and Pearson 1934, Biometrika 26)."""
    error = LEVEL_OF_ERROR / 2
    low = float(special.betaincinv(count, of - count + 1, error)) if count else 0.0
    high = float(special.betaincinv(count + 1, of - count, 1 - error)) if count < of else 1.0
    return Interval(low, high)


def _percent(nats: float) -> str:
    return f"{significant(100 * perplexity_change(0.0, nats), 2)}%"
