"""How a sweep file describes a search: a space, a sampler, a scheduler, a budget."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from lm.spec import Part
from lm.validation import NAME
from orchestrator.sweep.designs import distinct

Name = Annotated[str, Field(pattern=NAME, max_length=80)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Scalar = bool | int | float | str | None


class _Dimension(Part):
    """`when` names values by their dotted paths, or options of choices and changes that come earlier in the space."""

    when: dict[str, _Scalar] = Field(
        default={}, description="such as {head.kind: mixture} or {output layer: codes}; all of them must hold"
    )


class _Range(_Dimension):
    kind: str
    low: _Finite
    high: _Finite

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low:g} and {self.high:g}")
        return self


class Uniform(_Range):
    """A number between two ends, uniformly distributed."""

    kind: Literal["uniform"]


class LogUniform(_Range):
    """A positive number between two ends, its logarithm uniformly distributed."""

    kind: Literal["log_uniform"]
    low: Annotated[_Finite, Field(gt=0.0)]


class Integer(_Range):
    """A whole number between two ends, both included; with `log` its logarithm is uniformly distributed."""

    kind: Literal["integer"]
    low: int
    high: int
    log: bool = Field(default=False)

    @model_validator(mode="after")
    def _check_log(self) -> Self:
        if self.log and self.low < 1:
            raise ValueError(f"low must be at least 1 on a log scale, got {self.low}")
        return self


class OneOf(_Dimension):
    """One of several options; the value of a trial is an option's name."""

    kind: str
    among: Any

    @property
    def options(self) -> dict[str, Any]:
        """Every option by its name."""
        return self.among if isinstance(self.among, dict) else {"null" if v is None else str(v): v for v in self.among}


class Choice(OneOf):
    """One of several values: a list of plain ones, or named ones, which may be whole parts."""

    kind: Literal["choice"]
    among: Annotated[tuple[_Scalar, ...], Field(min_length=2)] | Annotated[dict[Name, Any], Field(min_length=2)]

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        if len(self.options) < len(self.among):
            raise ValueError(f"among must hold distinct values, got {list(self.among)}")
        return self


class Change(OneOf):
    """One of several named changes, each written as a variant's; it stands in the space under a name of its own."""

    kind: Literal["change"]
    among: Annotated[dict[Name, dict[str, Any]], Field(min_length=2)]


Range = Uniform | LogUniform | Integer
Dimension = Range | Choice | Change


def _check_apart(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Of these ranges of one path no two may hold in the same trial, by their conditions alone."""
    for (first, a), (second, b) in itertools.combinations(enumerate(ranges, 1), 2):
        if not any(a.when[path] != b.when[path] for path in a.when.keys() & b.when.keys()):
            problem = f"ranges {first} and {second} may hold for the same trial"
            raise ValueError(f"{problem}: their 'when' must give one path two values")
    if len({isinstance(dimension, Integer) for dimension in ranges}) > 1:
        raise ValueError("ranges of one path must be all of whole numbers (kind integer), or none of them")
    return ranges


_Ranges = tuple[Annotated[Range, Field(discriminator="kind")], ...]
Dimensions = Annotated[
    Annotated[Annotated[Dimension, Field(discriminator="kind")], Tag("one value")]
    | Annotated[_Ranges, Field(min_length=2), AfterValidator(_check_apart), Tag("ranges")],
    Discriminator(lambda value: "ranges" if isinstance(value, list | tuple) else "one value"),
]
Space = Annotated[dict[str, Dimensions], Field(min_length=1)]
"""By dotted path into the base a dimension, or ranges for different trials; applied in the file's order."""


def dimensions_of(place: Dimension | Sequence[Range]) -> Sequence[Dimension]:
    """What may be searched at one place of a space: a single dimension, or each of its ranges."""
    return place if isinstance(place, Sequence) else (place,)


def fits(dimension: Dimension, value: object) -> bool:
    """Whether a dimension can give a value; the value of a choice or change is the name of an option."""
    if isinstance(dimension, Choice | Change):
        return isinstance(value, str) and value in dimension.options
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return dimension.low <= value <= dimension.high and (not isinstance(dimension, Integer) or value == int(value))


Objective = Literal["validation", "parameters", "decoder_parameters", "seconds"]


class RandomSampler(Part):
    """Every trial drawn without regard to the others (Bergstra & Bengio 2012)."""

    kind: Literal["random"]


class TpeSampler(Part):
    """Tree-structured Parzen estimators (Bergstra et al. 2011), multivariate."""

    kind: Literal["tpe"]
    startup_trials: int = Field(default=10, ge=1, description="drawn at random before the estimators are asked")


class GaussianProcessSampler(Part):
    """Gaussian process with expected improvement; learns only from trials that were not stopped early."""

    kind: Literal["gaussian_process"]
    startup_trials: int = Field(default=10, ge=1)


class CmaEsSampler(Part):
    """Covariance matrix adaptation (Hansen 2001), of the numbers; choices are drawn at random."""

    kind: Literal["cma_es"]
    startup_trials: int = Field(default=1, ge=1)


class GridSampler(Part):
    """Every combination of all choices, all whole numbers, and `points` values of every other number, ends included."""

    kind: Literal["grid"]
    points: int = Field(default=3, ge=2)


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
    grace_epochs: int = Field(default=1, ge=1, description="the first rung: no trial is stopped before")
    reduction_factor: int = Field(default=3, ge=2)


class Hyperband(Part):
    """Several ASHAs with later and later first rungs (Li et al. 2018), trials spread over them."""

    kind: Literal["hyperband"]
    grace_epochs: int = Field(default=1, ge=1)
    reduction_factor: int = Field(default=3, ge=2)


class MedianStopping(Part):
    """Stops a trial whose best loss is above the median of the other trials' at the same epoch (Golovin 2017)."""

    kind: Literal["median"]
    grace_epochs: int = Field(default=1, ge=1)
    startup_trials: int = Field(default=5, ge=1)


class PopulationBased(Part):
    """Population-based training (Jaderberg et al. 2017): values change in mid-training.

    A generation of `population` trials trains `interval_epochs` each. Then each of the worst `share` goes on from the
    best weights of one of the best `share`. Each of its values is drawn again with `resample_probability`, otherwise
    multiplied by 0.8 or 1.2 (section 4.1). The others go on as they are. A generation waits for its last trial.
    """

    kind: Literal["population"]
    population: int = Field(ge=4)
    interval_epochs: int = Field(ge=1)
    share: float = Field(default=0.2, gt=0.0, le=0.5)
    resample_probability: float = Field(default=0.25, ge=0.0, le=1.0)


Scheduler = Annotated[Asha | Hyperband | MedianStopping | PopulationBased, Field(discriminator="kind")]


class Searching(Part):
    """A space and how it is searched, one trial after another on one training seed, judged by validation alone."""

    space: Space
    sampler: Sampler = Field(default=TpeSampler(kind="tpe"))
    scheduler: Scheduler | None = Field(default=None, description="stops trials early; null trains each to its end")
    trials: int | None = Field(default=None, ge=1, description="the number of trials, however they end")
    sampler_seed: int = Field(default=0, ge=0)
    training_seed: int = Field(default=0, ge=0, lt=2**63, description="of every trial; none of `seeds`")
    start: tuple[dict[str, Any], ...] = Field(default=(), description="values by dotted path that are tried first")
    start_rest: Literal["sampled", "base"] = Field(
        default="sampled", description="what a start leaves out: sampled, or as in the base if its range allows that"
    )
    min_trials_per_option: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default={},
        description="of a choice or change: each option gets at least this many trials, right after the starts",
    )

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.min_trials_per_option and self.sampler.kind == "grid":
            raise ValueError("min_trials_per_option does not go with sampler grid, which tries every combination once")
        if self.min_trials_per_option and isinstance(self.scheduler, PopulationBased):
            raise ValueError("min_trials_per_option does not go with a population, where the best go on")
        return self


class Search(Searching):
    """Finds values for the base, which are then compared with the base as written, on seeds the search never saw."""

    objectives: Annotated[tuple[Objective, ...], Field(min_length=1), AfterValidator(distinct)] = Field(
        default=("validation",), description="all made small; several give a Pareto front, and stop nothing early"
    )
    training_hours: float | None = Field(
        default=None, gt=0.0, allow_inf_nan=False, description="no trial starts after this much training in all"
    )

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if isinstance(self.scheduler, PopulationBased):
            if self.trials is not None or self.training_hours is not None:
                raise ValueError("trials and training_hours do not go with a population, which ends with the epochs")
            if self.sampler.kind == "grid":
                raise ValueError("sampler grid does not go with a population: it draws a first generation, not all")
        elif self.trials is None and self.training_hours is None and self.sampler.kind != "grid":
            raise ValueError("trials or training_hours must say when the search ends")
        if len(self.objectives) > 1 and self.sampler.kind == "cma_es":
            raise ValueError("sampler cma_es searches for one objective alone: several need another, such as tpe")
        if len(self.objectives) > 1 and self.scheduler is not None:
            raise ValueError("scheduler must be null for several objectives: a stopped trial has no place on a front")
        return self


class Tune(Searching):
    """Searches nuisance values for every variant alike; each variant's best are then run on seeds it never saw.

    A value that a variant sets is not searched for this variant, unless `variants` has a range for it.
    """

    variants: dict[Name, Space] = Field(
        default={},
        description="ranges that replace the space's for one variant: another optimizer's rate, by dotted path",
    )
    repeats: int = Field(
        default=1,
        ge=1,
        description="searches of each variant, which differ in their sampler seed; as many as `seeds`, each of which "
        "takes the values of one of them, so that intervals cover the search too",
    )

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if isinstance(self.scheduler, PopulationBased):
            raise ValueError("scheduler population finds schedules, not values: it goes with 'search', not with 'tune'")
        if self.trials is None:
            raise ValueError("trials must be given: every variant gets the same number")
        return self
