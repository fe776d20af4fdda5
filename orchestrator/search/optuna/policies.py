"""Optuna's samplers and pruners as a sweep file names them; all options said that are not deprecated."""

from __future__ import annotations

from typing import assert_never

import numpy as np
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler

from orchestrator.sweep import searches


def sampler_for(
    sampler: searches.TpeSampler | searches.GaussianProcessSampler | searches.CmaEsSampler, seed: int, number: int
) -> BaseSampler:
    """A sampler for one trial."""
    own, independent = (int(x) for x in np.random.SeedSequence([seed, number]).generate_state(2))
    constant = int(np.random.SeedSequence(seed).generate_state(1)[0])
    match sampler:
        case searches.TpeSampler():
            return TPESampler(
                seed=own,
                n_startup_trials=sampler.startup_trials,
                n_ei_candidates=24,
                multivariate=True,
                group=True,  # of a conditional space: what is searched together is estimated together
                constant_liar=True,
            )
        case searches.GaussianProcessSampler():
            return GPSampler(
                seed=own,
                independent_sampler=RandomSampler(seed=independent),
                n_startup_trials=sampler.startup_trials,
                deterministic_objective=False,
                warn_independent_sampling=False,
            )
        case searches.CmaEsSampler():
            return CmaEsSampler(
                seed=constant,  # its own points are drawn by the trial's number too
                independent_sampler=RandomSampler(seed=independent),
                n_startup_trials=sampler.startup_trials,
                consider_pruned_trials=False,
                use_separable_cma=False,
                with_margin=False,
                lr_adapt=False,
                warn_independent_sampling=False,
            )
        case _:
            assert_never(sampler)


def pruner(scheduler: searches.Scheduler | None, most_epochs: int) -> BasePruner | None:
    """A pruner, epochs being its resource; rungs are those of the losses that were reported."""
    match scheduler:
        case None | searches.PopulationBased():
            return None
        case searches.Asha():
            return SuccessiveHalvingPruner(
                min_resource=scheduler.grace_epochs,
                reduction_factor=scheduler.reduction_factor,
                min_early_stopping_rate=0,
                bootstrap_count=0,
            )
        case searches.Hyperband():
            return HyperbandPruner(
                min_resource=scheduler.grace_epochs,
                max_resource=max(most_epochs, scheduler.grace_epochs),
                reduction_factor=scheduler.reduction_factor,
                bootstrap_count=0,
            )
        case searches.MedianStopping():
            return MedianPruner(
                n_startup_trials=scheduler.startup_trials,
                n_warmup_steps=scheduler.grace_epochs,
                interval_steps=1,
                n_min_trials=1,
            )
        case _:
            assert_never(scheduler)
