"""How a sweep file describes a search: a space, a sampler, a scheduler, a budget."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from lm.spec.part import Part, Positive, PositiveInt, Seed
from orchestrator.sweep.designs import distinct
from orchestrator.sweep.space import Name, Space

Objective = Literal["validation", "parameters", "decoder_parameters", "seconds"]
MOST_TRIALS = 10_000
"""Of a search, and of a generation: every trial that may come is planned and estimated before the first starts."""


class RandomSampler(Part):
    """Every trial drawn without regard to the others (Bergstra & Bengio 2012)."""

    kind: Literal["random"]


class TpeSampler(Part):
    """Tree-structured Parzen estimators (Bergstra et al. 2011), multivariate."""

    kind: Literal["tpe"]
    startup_trials: PositiveInt = Field(
        default=10, description="Trials drawn at random before the estimators are asked."
    )


class GaussianProcessSampler(Part):
    """Gaussian process with expected improvement; learns only from trials that were not stopped early."""

    kind: Literal["gaussian_process"]
    startup_trials: PositiveInt = Field(default=10, description="Trials drawn at random before the process is asked.")


class CmaEsSampler(Part):
    """Covariance matrix adaptation (Hansen 2001), of the numbers; choices are drawn at random."""

    kind: Literal["cma_es"]
    startup_trials: PositiveInt = Field(
        default=1, description="Trials drawn at random before the covariance is adapted."
    )


class GridSampler(Part):
    """Every combination of all choices, all whole numbers, and `points` values of every other number, ends included."""

    kind: Literal["grid"]
    points: int = Field(
        default=3,
        ge=2,
        le=10_000,
        strict=True,
        description="Values of every number that is not whole, both ends included.",
    )


class QuasiRandomSampler(Part):
    """Scrambled Sobol points, which leave smaller holes than random ones."""

    kind: Literal["quasi_random"]


Sampler = Annotated[
    RandomSampler | TpeSampler | GaussianProcessSampler | CmaEsSampler | GridSampler | QuasiRandomSampler,
    Field(discriminator="kind"),
]


class Asha(Part):
    """Asynchronous successive halving (Li et al. 2020): one in `reduction_factor` goes on at every rung."""

    kind: Literal["asha"]
    grace_epochs: PositiveInt = Field(default=1, description="The first rung, in epochs: no trial is stopped before.")
    reduction_factor: int = Field(
        default=3,
        ge=2,
        strict=True,
        description="One in this many trials goes on at every rung, eta; rungs grow by this factor.",
    )


class Hyperband(Part):
    """Several ASHAs with later and later first rungs (Li et al. 2018), trials spread over them."""

    kind: Literal["hyperband"]
    grace_epochs: PositiveInt = Field(default=1, description="The first rung of the first bracket, in epochs.")
    reduction_factor: int = Field(
        default=3, ge=2, strict=True, description="One in this many trials goes on at every rung, eta."
    )


class MedianStopping(Part):
    """Stops a trial whose best loss is above the median of the complete trials' at the same epoch (Golovin 2017)."""

    kind: Literal["median"]
    grace_epochs: PositiveInt = Field(default=1, description="Epochs before which no trial is stopped.")
    startup_trials: PositiveInt = Field(default=5, description="Trials that must be complete before one is stopped.")


class PopulationBased(Part):
    """Population-based training (Jaderberg et al. 2017): values change in mid-training.

    A generation of `population` trials trains `interval_epochs` each. Then each of the worst `share` goes on from the
    best weights of one of the best `share`. Each of its values is drawn again with `resample_probability`, otherwise
    multiplied by 0.8 or 1.2 (section 4.1). The others go on as they are. A generation waits for its last trial.
    """

    kind: Literal["population"]
    population: int = Field(ge=4, le=MOST_TRIALS, strict=True, description="Trials of a generation.")
    interval_epochs: PositiveInt = Field(description="Epochs of a generation.")
    share: float = Field(
        default=0.2,
        gt=0.0,
        le=0.5,
        strict=True,
        description="The share of trials that are replaced, and that replace them.",
    )
    resample_probability: float = Field(
        default=0.25,
        ge=0.0,
        le=1.0,
        strict=True,
        description="Probability that a value is drawn again, not multiplied; 0: never.",
    )


Scheduler = Annotated[Asha | Hyperband | MedianStopping | PopulationBased, Field(discriminator="kind")]


class Searching(Part):
    """A space and how it is searched, one trial after another on one training seed, judged by validation alone."""

    space: Space = Field(
        description="What is searched: by dotted path into the base a range or a choice, or a change under a name"
        " of its own; applied in the file's order. A list gives one path several ranges, for "
        "different trials."
    )
    sampler: Sampler = Field(default=TpeSampler(kind="tpe"), description="How the values of a trial are proposed.")
    scheduler: Scheduler | None = Field(
        default=None, description="What stops trials early; null: all train to the end."
    )
    trials: int | None = Field(
        default=None,
        ge=1,
        le=MOST_TRIALS,
        strict=True,
        description="Trials, however they end; null, which `tune` does not take: another limit holds.",
    )
    sampler_seed: Seed = Field(default=0, description="Of what the sampler draws.")
    training_seed: Seed = Field(default=0, description="Of every trial of the search; none of `seeds`.")
    start: tuple[dict[str, Any], ...] = Field(
        default=(),
        description="Values of the first trials, by dotted path. What a variant's own range cannot give is left out "
        "for it.",
    )
    start_rest: Literal["sampled", "base"] = Field(
        default="sampled", description="What a start leaves out: sampled, or as in the base if its range allows that."
    )
    min_trials_per_option: dict[str, PositiveInt] = Field(
        default={},
        description="By choice or change: each option gets at least this many trials, right after the starts.",
    )

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        is_population, sampler = isinstance(self.scheduler, PopulationBased), self.sampler.kind
        if self.min_trials_per_option and sampler == "grid":
            raise ValueError("min_trials_per_option does not go with sampler grid, which tries every combination once")
        if self.min_trials_per_option and is_population:
            raise ValueError("min_trials_per_option does not go with a population, where the best go on")
        if isinstance(self, Tune) and is_population:
            raise ValueError("scheduler population finds schedules, not values: it goes with 'search', not with 'tune'")
        if isinstance(self, Tune) and self.repeats > 1 and sampler == "grid":
            raise ValueError("repeats do not go with sampler grid, which would try the same combinations each time")
        if isinstance(self, Tune) and self.trials is None:
            raise ValueError("trials must be given: every variant gets the same number")
        if not isinstance(self, Search):
            return self
        has_end = self.trials is not None or self.training_hours is not None
        if is_population and has_end:
            raise ValueError("trials and training_hours do not go with a population, which ends with the epochs")
        if is_population and sampler == "grid":
            raise ValueError("sampler grid does not go with a population: it draws a first generation, not all")
        if not (is_population or has_end or sampler == "grid"):
            raise ValueError("trials or training_hours must say when the search ends")
        if len(self.objectives) > 1 and sampler == "cma_es":
            raise ValueError("sampler cma_es searches for one objective alone: several need another, such as tpe")
        if len(self.objectives) > 1 and self.scheduler is not None:
            raise ValueError("scheduler must be null for several objectives: a stopped trial has no place on a front")
        return self


class Search(Searching):
    """Finds values for the base, which are then compared with the base as written, on seeds the search never saw.

    If the file has components or variants, they are changes of what was found.
    """

    objectives: Annotated[tuple[Objective, ...], Field(min_length=1), AfterValidator(distinct)] = Field(
        default=("validation",), description="What is made small; several give a Pareto front, and stop nothing early."
    )
    training_hours: Positive | None = Field(
        default=None,
        description="No trial starts after this many hours of training in all; null: no such limit. What the same "
        "search trained with more hours, for another sweep or before the file was changed, does not count.",
    )


class Tune(Searching):
    """Searches nuisance values for every variant alike; each variant's best are then run on seeds it never saw.

    A value that a variant changes is not searched for this variant, unless `variants` has a range for it.
    """

    variants: dict[Name, Space] = Field(
        default={}, description="Ranges in place of the space's for one variant, such as another optimizer's rate."
    )
    repeats: int = Field(
        default=1,
        ge=1,
        strict=True,
        description="Searches of each variant, which differ in their sampler seed: 1, or as many as `seeds`, each of "
        "which takes the values of one of them, so that intervals cover the search too.",
    )
