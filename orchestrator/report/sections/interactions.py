"""The contrasts that a design is made for: main effects and interactions, and how to read them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.analysis.comparison import losses_on_test, obstacles, only_waits
from orchestrator.analysis.effects import DECIDED, Comparison, Effect, Obstacle, Verdict
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.outcomes import Outcomes, averaged_seeds
from orchestrator.analysis.statistics import contrasts
from orchestrator.report.sections.verdicts import (
    LISTED,
    NAMED,
    NOT_DECIDED,
    all_within,
    at_most,
    by_percent,
    in_percent,
    level_in_words,
    signed_ends,
    verdict_in_words,
    what_would_decide,
    why_no_verdict,
)
from orchestrator.sweep.designs import Ablation, Factors
from orchestrator.words import Markdown, counted, escape, listed

_TOGETHER: Mapping[Verdict, str] = {"raises": "costs more together", "lowers": "costs less together"}
_MEANS: Mapping[Verdict, str] = {"raises": "each partly replaces the other", "lowers": "each needs the other"}
_CONTEXTS = {"main effect": "averaged over the other components", "alone": "with the other components absent"}


@dataclass(frozen=True)
class Estimand:
    """What a contrast estimates: its name, and the weights of the variants by what they take away.

    A contrast of one `factor` is named after its removal, "no AR/TAR", so that nobody takes its sign for the effect of
    AR/TAR itself.
    `aliases` are the effects of one or two factors that the design cannot tell from it.
    """

    name: str
    kind: Literal["alone", "main effect", "interaction"]
    weights: Mapping[Factors, float]
    aliases: tuple[str, ...] = ()
    factor: str = ""


@dataclass(frozen=True)
class InteractionRow:
    """An estimand with its effect, in nats per token; the numbers are None if variants may not be compared.

    `trigger` says that averaging began in some of its variants more often than in others: the effect is that of
    averaging too.
    """

    estimand: Estimand
    effect: Effect
    trigger: str = ""

    @property
    def verdict(self) -> str:
        """An interaction costs more or less together, where a lone change raises or lowers perplexity."""
        words = _TOGETHER if self.estimand.kind == "interaction" else {}
        return words.get(self.effect.verdict, self.effect.verdict)

    @property
    def reason(self) -> str | None:
        """Why there is no verdict."""
        return None if self.effect.obstacle is None else why_no_verdict(self.effect.obstacle, of_contrast=True)

    @property
    def nats(self) -> float | None:
        """The effect in nats per token; None if a variant is missing."""
        return None if math.isnan(self.effect.nats) else self.effect.nats

    @property
    def percent(self) -> Markdown | None:
        """The effect with its interval, as a change of perplexity in per cent; None without one."""
        return None if self.nats is None else Markdown(in_percent(self.nats, self.effect.interval))

    @property
    def verdict_cell(self) -> Markdown:
        """The verdict as the page shows it, with what would decide, and with what else differs."""
        trigger = f" ({self.trigger})" if self.trigger else ""
        if self.effect.verdict in DECIDED:
            words = self.verdict if self.estimand.kind == "interaction" else verdict_in_words(self.effect, 0.0)
            return Markdown(f"**{words}**" + (" (or an alias does)" if self.estimand.aliases else "") + trigger)
        if self.effect.verdict == "not decided":
            would = what_would_decide(self.effect.further)
            return Markdown(f"not decided: {at_most([self.effect])}" + (f" ({would})" if would else "") + trigger)
        return Markdown(f"no verdict ({escape(self.reason)})")


@dataclass(frozen=True)
class Interactions:
    """The section of a design's contrasts; `defining_relation` is a fraction's, empty for any other design."""

    rows: tuple[InteractionRow, ...]
    comparison: Comparison
    defining_relation: Markdown

    @property
    def level(self) -> str:
        """The probability with which the intervals of this table cover, all at once."""
        return level_in_words(self.comparison)


def estimands(ablation: Ablation) -> list[Estimand]:
    """The contrasts of a design: costs of taking away (main effects: means), or how these grow with others away."""
    factors = ablation.factors if len(ablation.factors) > 1 else ()  # of one, the variant says it all
    every = frozenset(factors)
    two = itertools.combinations(factors, 2)
    pairs = [_interaction(f"{one} × {other}", frozenset([one]), frozenset([other])) for one, other in two]
    match ablation.design:
        case "none" | "leave_one_out":
            return []
        case "pairs":
            return pairs
        case "add_one_in" | "both":
            alone = [Estimand(f"no {f}", "alone", {every: 1.0, every - {f}: -1.0}, factor=f) for f in factors]
            if ablation.design == "add_one_in":
                return alone
            rest = [_interaction(f"{f} × the rest", every - {f}, frozenset([f])) for f in factors]
            return [*alone, *(pairs if len(factors) == 2 else rest)]
        case "factorial" | "half" | "quarter" | "eighth":
            return list(_orthogonal(ablation)) if factors else []


def interaction_section(
    outcomes: Outcomes, ablation: Ablation, error: float = LEVEL_OF_ERROR, left_out: Collection[str] = ()
) -> Interactions:
    """A row for every contrast of the design; one that weighs variants that may not be compared has no verdict.

    There is no row for one that weighs a variant which a search left out, because it will never have a trial.

    It has no numbers either, unless they differ in their budget alone. If the baseline is worse than guessing, there is
    no verdict at all. `error` is how often any verdict of the table may be wrong, as in `compare_variants`.
    """
    asked = {f"{estimand.kind} {estimand.name}": estimand for estimand in estimands(ablation)}
    weights = {
        name: {ablation.variant(away) or outcomes.baseline: weight for away, weight in estimand.weights.items()}
        for name, estimand in asked.items()
    }
    weights = {name: each for name, each in weights.items() if each.keys().isdisjoint(left_out)}
    barred = {name: obstacle for name, each in weights.items() if (obstacle := _obstacle(outcomes, list(each)))}
    sound = {name: each for name, each in weights.items() if name not in barred or not barred[name].bars_interval}
    needed = {variant for weighed in sound.values() for variant in weighed}
    groups = {variant: losses_on_test(group) for variant, group in outcomes.items() if variant in needed}
    waiting = sum(only_waits(outcomes, list(each)) for each in weights.values())
    comparison = contrasts(groups, sound, 1 - error, barred=barred, waiting=waiting)
    words = [escape(_effect_name(word, ablation)) for word in ablation.defining_words]
    return Interactions(
        rows=tuple(
            InteractionRow(
                estimand,
                comparison.effects.get(name, Effect(math.nan, obstacle=barred.get(name))),
                _trigger(outcomes, weights[name]),
            )
            for name, estimand in asked.items()
            if name in weights
        ),
        comparison=comparison,
        defining_relation=Markdown(" = ".join(["I", *words]) if words else ""),
    )


def _trigger(outcomes: Outcomes, variants: Iterable[str]) -> str:
    counts = [averaged_seeds(outcomes.get(variant, ())) for variant in variants]
    shares = {began / of for began, of in filter(None, counts)}
    return "averaging began in some of its variants more often than in others" if len(shares) > 1 else ""


def _obstacle(outcomes: Outcomes, weighed: Sequence[str]) -> Obstacle | None:
    """The gravest reason why a contrast has no verdict."""
    failed = [each for each in obstacles(outcomes, [outcomes.baseline]) if each.reason == "worse than guessing"]
    every = [*obstacles(outcomes, weighed), *failed]
    return min(every, key=lambda obstacle: not obstacle.bars_interval, default=None)


def _effect_name(factors: Factors, ablation: Ablation) -> str:
    return " × ".join(sorted(factors, key=ablation.factors.index))


def _interaction(name: str, one: Factors, other: Factors) -> Estimand:
    return Estimand(name, "interaction", {one | other: 1.0, one: -1.0, other: -1.0, frozenset(): 1.0})


def _orthogonal(ablation: Ablation) -> Iterator[Estimand]:
    """Main effects, then two-way interactions, each once; aliases of one that is there already are left out."""
    cells = (frozenset(), *ablation.removals)
    listed: set[Factors] = set()
    effects = (frozenset(some) for n in (1, 2) for some in itertools.combinations(ablation.factors, n))
    for effect in effects:
        if effect not in listed:
            short = [alias for alias in ablation.aliases(effect) if len(alias) <= 2]
            listed.update(short)
            # +1 where an even number of the effect's factors is away, -1 elsewhere (Montgomery, section 6.4).
            scale = -2 / len(cells) if len(effect) == 1 else 4 / len(cells)
            weights = {away: scale * (-1) ** len(away & effect) for away in cells}
            aliases = tuple(_effect_name(alias, ablation) for alias in short)
            name = _effect_name(effect, ablation)
            if len(effect) == 1:
                yield Estimand(f"no {name}", "main effect", weights, aliases, name)
            else:
                yield Estimand(name, "interaction", weights, aliases)


def contrast_sentences(rows: Sequence[InteractionRow]) -> tuple[list[str], list[str]]:
    """What the design's own contrasts show, a sentence a kind, main effects first; and what they leave open."""
    decided, left_open = list[str](), list[str]()
    for kind, context in _CONTEXTS.items():
        judged = [row for row in rows if row.estimand.kind == kind]
        changed = [row for row in judged if row.effect.verdict in DECIDED]
        changed.sort(key=lambda row: -abs(row.effect.nats))
        said = [
            f"removing {escape(row.estimand.factor)} {row.effect.verdict} test perplexity by {by_percent(row.effect)}"
            + _or_aliases(row, " (or {} does)")
            + (f"; {row.trigger}" if row.trigger else "")
            for row in changed
        ]
        decided += [f"{context}, {listed(said)}"] if said else []
        if undecided := [row for row in judged if row.effect.verdict == "not decided"]:
            factors, effects = [escape(row.estimand.factor) for row in undecided], [row.effect for row in undecided]
            what = listed(factors, "or") if len(factors) <= NAMED else f"any of {len(factors)} components"
            each, ends = (", each", all_within(effects)) if len(factors) > 1 else ("", signed_ends(effects))
            left_open.append(f"{NOT_DECIDED}: removing {what}{each} {context} ({ends})")
    every = [row for row in rows if row.estimand.kind == "interaction"]
    known = [row for row in every if row.effect.verdict in DECIDED]
    named = [
        f"{escape(row.estimand.name)} ({_MEANS[row.effect.verdict]}{_or_aliases(row, '; or it is {}')}"
        f"{f'; {row.trigger}' if row.trigger else ''})"
        for row in known
    ]
    if known:
        of_all = counted(len(every), "interaction")
        decided.append(
            f"{len(known)} of {of_all} {'are' if len(known) > 1 else 'is'} decided: {listed(named[:LISTED])}"
        )
    elif any(row.effect.verdict != "no verdict" for row in every):
        open_one = f"{NOT_DECIDED}: the interaction {escape(every[0].estimand.name)}"
        left_open.append(open_one if len(every) == 1 else f"none of {len(every)} interactions is decided")
    if without := sum(row.effect.verdict == "no verdict" for row in rows):
        left_open.append(f"no verdict on {counted(without, 'contrast')}")
    return decided, left_open


def _or_aliases(row: InteractionRow, words: str) -> str:
    """The effects that a fraction cannot tell from this one, in these words; nothing without any."""
    return words.format(listed([*map(escape, row.estimand.aliases)], "or")) if row.estimand.aliases else ""
