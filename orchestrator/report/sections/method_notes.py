"""Notes on the method, in sentences: trials, the noise in the intervals, looks, averaging, conventions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scipy import special

from lm.record import opened
from orchestrator.analysis.comparison import equal_variants, obstacles
from orchestrator.analysis.effects import Comparison, Interval, Noise
from orchestrator.analysis.guessing import untrained
from orchestrator.analysis.looks import LEVEL_OF_ERROR, ONE_LOOK, Looks
from orchestrator.analysis.noise import BLOCKS, LONG_TOPICS
from orchestrator.analysis.outcomes import Outcomes, Status, averaged_seeds, is_adaptive
from orchestrator.analysis.power import WANTED_DEVIATIONS
from orchestrator.analysis.statistics import BASELINE, perplexity_change
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.report.sections.verdicts import level_in_words, why_no_verdict
from orchestrator.words import Markdown, counted, escape, listed, significant

_NAMED = 3
_LOST: tuple[Status, ...] = ("diverged", "failed")


@dataclass(frozen=True)
class MethodNotes:
    """What the page's notes on the method say; sentences are empty if there is nothing to say.

    `deviations` are the least and the most of seeds, in perplexity; `noisiest` widens all intervals. `has_steps`: some
    verdict came at a later step (Holm). `convention`: how far the published one is off exact perplexity, a share.
    """

    trials: Markdown
    noise: Noise | None
    deviations: str
    noisiest: str | None
    why_no_interval: str
    cautions: tuple[Markdown, ...]
    looks: str
    divergence: Markdown
    convention: float | None
    level: str
    intervals: int
    has_steps: bool
    noisy: float = 10.0
    blocks: int = BLOCKS


def method_notes(
    outcomes: Outcomes,
    comparison: Comparison | None,
    rows: Sequence[AblationRow] = (),
    looks: Looks = ONE_LOOK,
    varies: Sequence[str] = (),
    *,
    searched: bool = False,
) -> MethodNotes:
    """The notes on the method; `varies`: what changes with the seed; `searched`: a search found some values."""
    noise = comparison.noise if comparison else None
    deviations = {name: each.own for name, each in noise.deviations.items()} if noise else {}
    ends = (min(deviations.values()), max(deviations.values())) if deviations else ()
    words = dict.fromkeys(map(_percent, ends))
    return MethodNotes(
        trials=_trials(outcomes),
        noise=noise,
        deviations=" to ".join(words),
        noisiest=_noisiest(deviations),
        why_no_interval="" if noise else _why_no_interval(outcomes, comparison),
        cautions=tuple(_cautions(outcomes, comparison, rows, varies, searched=searched)),
        looks=_looks(looks, outcomes.seeds),
        divergence=_divergence(outcomes),
        convention=_convention(outcomes),
        level=level_in_words(comparison),
        intervals=comparison.intervals if comparison else 0,
        has_steps=comparison is not None and any(0.0 in (e.interval or ()) for e in comparison.effects.values()),
    )


def _cautions(
    outcomes: Outcomes,
    comparison: Comparison | None,
    rows: Sequence[AblationRow],
    varies: Sequence[str],
    *,
    searched: bool,
) -> Iterator[Markdown]:
    """What to know before quoting a verdict, a sentence each."""
    if comparison is not None and (smallest := smallest_found(comparison)) is not None:
        sentence = f"An effect of {_percent(smallest)} is found with a chance of 80% here."
        smaller = [
            row.variant
            for row in rows
            if row.published_difference is not None and abs(row.published_difference.nats) < smallest
        ]
        if smaller:
            named = f"{len(smaller)} variants" if len(smaller) > _NAMED else listed([escape(name) for name in smaller])
            sentence += f" **Published differences of {named} are smaller.**"
        yield Markdown(sentence)
    text = comparison.noise.text_correlation if comparison and comparison.noise else None
    if text is not None and text > LONG_TOPICS:
        yield Markdown(
            f"**Neighbouring sixteenths of the test text correlate by {text:.2f} in these differences**: topics are so "
            "long that intervals may miss in up to one table of nine."
        )
    if same := _same_for_all(outcomes, varies, searched=searched):
        yield Markdown(f"All seeds share {listed(same)}: what others would give is in no interval.")
    if averaging := _averaging(outcomes):
        yield averaging
    for variants in equal_variants(outcomes):
        names = listed([escape(name) for name in variants])
        yield Markdown(f"Equal in every seed, so that what tells them apart is not tested: {names}.")


def smallest_found(comparison: Comparison) -> float | None:
    """The effect, nats per token, that the middle one of the comparisons would decide with 80% power; None without."""
    sizes = [
        max(effect.interval.high - effect.nats, effect.nats - effect.interval.low)
        + WANTED_DEVIATIONS * math.hypot(effect.seed_error or 0.0, effect.text_error or 0.0)
        for effect in comparison.effects.values()
        if effect.interval is not None and effect.nats is not None and effect.obstacle is None
    ]
    return median(sizes) if sizes else None


def _same_for_all(outcomes: Outcomes, varies: Sequence[str], *, searched: bool) -> list[str]:
    """What is one sample of many, and the same for all seeds."""
    specs = [group[0].trial.spec for group in outcomes.values()]
    same = []
    if "head.codebook.seed" not in varies and any(
        hasattr(getattr(spec.head, "codebook", None), "seed") for spec in specs
    ):
        same.append("one code for each codebook")
    if "corpus.train_start" not in varies and specs[0].corpus.train_tokens is not None:
        same.append("one stretch of the training text")
    return [*same, *(["what one search found"] if searched else [])]


def _looks(looks: Looks, seeds: int) -> str:
    """How often comparisons were judged, and what that costs; empty after one look."""
    sentences = []
    if len(looks.planned) > 1:
        planned = listed([str(look) for look in looks.planned])
        sentences.append(
            f"More seeds went to what was not decided after {planned} seeds; early looks may err less than the last."
        )
    if looks.earlier:
        pages = listed([str(len(page)) for page in looks.earlier])
        sentences.append(
            f"{counted(len(looks.earlier), 'earlier page')} judged some of these seeds (of {pages} seeds), and each "
            "counts as a look."
        )
    if sentences:
        sentences.append(f"This look may err in {100 * looks.error(seeds):.2g}% of tables.")
    return " ".join(sentences)


def _trials(outcomes: Outcomes) -> Markdown:
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


def _noisiest(deviations: Mapping[str, float]) -> str | None:
    """The variant whose deviation is many times the middle one, if there is one."""
    most = max(deviations, key=lambda name: deviations[name], default=None)
    if most is None or deviations[most] < MethodNotes.noisy * median(deviations.values()):
        return None
    return "the baseline" if most == BASELINE else most


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
        f"**NT-ASGD began to average in {began} of {trials} trials** before fine-tuning; where a variant differs in "
        "this from the baseline, its verdict says so."
    )


def _why_no_interval(outcomes: Outcomes, comparison: Comparison | None) -> str:
    if comparison is None:
        why = obstacles(outcomes, [outcomes.baseline])[0]
        missing = f"the baseline {outcomes.baseline} is not complete"
        return missing if why.reason == "not complete" else why_no_verdict(why)
    reasons = {why_no_verdict(effect.obstacle) for effect in comparison.effects.values() if effect.obstacle}
    reasons |= {
        why_no_verdict(why)
        for variant in outcomes
        for why in obstacles(outcomes, [variant, outcomes.baseline])[:1]
        if why.reason in ("another test text", "did not train")
    }
    return listed(sorted(reasons)) or "no other variant is complete"


def _percent(nats: float) -> str:
    return f"{significant(100 * perplexity_change(0.0, nats), 2)}%"


def rate_interval(count: int, of: int) -> Interval:
    """The exact 95% interval of a rate, seen `count` times in `of` (Clopper and Pearson 1934, Biometrika 26)."""
    error = LEVEL_OF_ERROR / 2
    low = float(special.betaincinv(count, of - count + 1, error)) if count else 0.0
    high = float(special.betaincinv(count + 1, of - count, 1 - error)) if count < of else 1.0
    return Interval(low, high)
