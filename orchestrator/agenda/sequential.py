"""Which seeds a variant gets: more of them only where its comparison with the baseline is still undecided."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.analysis.comparison import compare_variants
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial


def trials_by_look(sweep: ScaledSweep, records: Records) -> list[Trial]:
    """The trials up to the first look that is not over, or the last one; a pure function of sweep and records.

    Every look is judged at its own share of the error (see `compare_variants`). A variant of which nothing more can
    be learnt gets no more seeds: it is decided, equal to the baseline in every seed, or may not be compared
    (`analysis.comparison`). The baseline has as many as the variant with the most.
    """
    counts = dict.fromkeys((variant.name for variant in sweep.variants), sweep.looks[0])
    trials = _plan(sweep, counts)
    for look in sweep.looks[1:]:
        outcomes = read_outcomes(trials, records, sweep.baseline.name)
        if any(outcome.record is None for group in outcomes.values() for outcome in group):
            break
        comparison = compare_variants(outcomes, len(sweep.looks), sweep.margin)
        effects = comparison.effects if comparison else {}
        undecided = [name for name, effect in effects.items() if effect.verdict == "not decided"]
        more = _plan(sweep, counts | dict.fromkeys([sweep.baseline.name, *undecided], look))
        if not undecided or (sweep.most_trials is not None and len(more) > sweep.most_trials):
            break
        counts |= dict.fromkeys([sweep.baseline.name, *undecided], look)
        trials = more
    return trials


def _plan(sweep: ScaledSweep, counts: Mapping[str, int]) -> list[Trial]:
    return plan(sweep, {name: sweep.seeds[:count] for name, count in counts.items()})
