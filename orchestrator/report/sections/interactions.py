"""What the page says of a design's contrasts: a table of main effects and interactions, and how to read it."""

from __future__ import annotations

import math

from orchestrator.analysis.statistics import Interval
from orchestrator.report.sections.answer import what_would_decide
from orchestrator.report.sections.interaction_tables import InteractionRow, Interactions, effect_name
from orchestrator.sweep.designs import Ablation
from orchestrator.words import NOTHING, Markdown, escape, number, signed, significant

_TOLD = {
    "add_one_in": "What each component brings to the stripped model, where all of them are away: the cost of taking it "
    "away there again, `stripped` less `only X`.",
    "both": "For each component, what taking it away costs where it stands alone (`stripped` less `only X`), and how "
    "much more that is than what it costs in the full model, where the rest are there too.",
    "pairs": "For each two components, how much more one costs where the other is away than where it is there.",
}
_AVERAGED = (
    "What taking a component away costs on average over the variants, with the others there and away; for each two, "
    "where the design can tell, how much more one costs where the other is away than where it is there."
)
_SIGNS = (
    "An interaction is *positive* where taking both away costs more than the two costs added up, as where one stands "
    "in for the other (redundant), and *negative* where it costs less, as where each needs the other (synergistic)."
)


def interaction_section(table: Interactions, ablation: Ablation) -> dict[str, object]:
    """The values for the page."""
    kinds = {row.estimand.kind for row in table.rows}
    titles = {"interaction": "Interactions", "main effect": "Main effects", "alone": "Each component alone"}
    told = [_TOLD.get(ablation.design, _AVERAGED), *([_SIGNS] if "interaction" in kinds else [])]
    words = [escape(effect_name(word, ablation)) for word in ablation.defining_words]
    return {
        "interaction_rows": [_cells(row, bool(words)) for row in table.rows],
        "interaction_title": next((title for kind, title in titles.items() if kind in kinds), ""),
        "interaction_told": Markdown(" ".join(told)),
        "interaction_noise": _noise(table),
        "defining_relation": Markdown(" = ".join(["I", *words]) if words else ""),
    }


def _cells(row: InteractionRow, is_fraction: bool) -> dict[str, object]:
    contrast, aliases = row.contrast, row.estimand.aliases
    estimate = ratio = NOTHING
    if contrast.nats is not None and row.ratio is not None:
        decimals = _decimals(contrast.interval)
        ends, ratios = contrast.interval, row.interval_in_ratio
        estimate, ratio = signed(contrast.nats, decimals), number(row.ratio, decimals)
        if ends is not None and ratios is not None:
            estimate += f" [{signed(ends.low, decimals)}, {signed(ends.high, decimals)}]"
            ratio += f" [{number(ratios.low, decimals)}, {number(ratios.high, decimals)}]"
    why = contrast.reason or what_would_decide(contrast.further)
    verdict = row.verdict
    if verdict not in ("not decided", "no verdict"):
        verdict = f"**{verdict}**" + (" (or an alias does)" if aliases else "")
    return {
        "name": row.estimand.name,
        "kind": row.estimand.kind,
        "estimate": Markdown(estimate),
        "ratio": Markdown(ratio),
        "verdict": Markdown(f"{verdict} ({escape(why)})" if why else verdict),
        "aliases": (", ".join(aliases) or "none of one or two") if is_fraction else NOTHING,
    }


def _decimals(interval: Interval | None) -> int:
    """Decimals that show two digits of the half width; differences of losses are small, so at least three."""
    half = (interval.high - interval.low) / 2 if interval else 0.0
    return min(6, max(3, 1 - math.floor(math.log10(half)))) if half > 0 else 4


def _noise(table: Interactions) -> Markdown:
    judged = table.judged
    if judged.noise is None:
        return Markdown("No interval is given; the last column says why.")
    level = significant(100 * judged.level, 3).removesuffix(".0")
    covered = "seeds and of the text" if judged.noise.has_text else "seeds alone"
    intervals = f"a {level}% interval,"
    if judged.intervals > 1:
        intervals = f"{level}% intervals (Šidák), simultaneous over {judged.intervals:,} contrasts of this table and"
    return Markdown(
        f"The brackets are {intervals} apart from those of the other tables; they cover the noise of {covered}, as "
        "those of the ablation table do."
    )
