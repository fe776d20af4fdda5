"""In which order trials are trained: the first comparison early, and no core idle at the end."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.trials.trial import Trial, budget_of, epochs_to_train


def in_order(missing: Sequence[Trial], trials: Sequence[Trial]) -> list[Trial]:
    """The missing ones of these trials as they are to be trained.

    First the baseline and the first variant that can be compared with it, seed by seed, so that the first comparison
    stands early. Then those first that take longest, together with what waits for their stages, so that no worker
    idles at the end while another begins a long one.
    """
    first = {trials[0].variant, first_compared(trials)} if trials else set()  # the plan begins with the baseline
    specs = {trial.key: trial.spec for trial in trials}
    cost = {trial.key: trial.parameters * epochs_to_train(trial, specs) for trial in missing}
    waiting = dict.fromkeys(cost, 0)
    for trial in reversed(missing):  # a trial is planned after the one whose stages it continues
        if trial.starts_from in waiting:
            waiting[trial.starts_from] = max(waiting[trial.starts_from], cost[trial.key] + waiting[trial.key])
    early = [trial for trial in missing if trial.variant in first]
    others = [trial for trial in missing if trial.variant not in first]
    return early + sorted(others, key=lambda trial: cost[trial.key] + waiting[trial.key], reverse=True)


def first_compared(trials: Sequence[Trial]) -> str | None:
    """The first variant that has the baseline's budget and no cache, which would adapt to the text it is scored on.

    Where all have another budget, the first of them; None where nothing is compared. `trials` are a plan's, not none.
    """
    baseline, *others = {trial.variant: trial.spec for trial in trials}.items()
    compared = {variant: spec for variant, spec in others if spec.cache is None}
    fair = [variant for variant, spec in compared.items() if budget_of(spec) == budget_of(baseline[1])]
    return next(iter([*fair, *compared]), None)
