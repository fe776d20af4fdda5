"""A sweep file's types: a base, named changes to it, seeds, scales; and the sweep at one of its scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lm.spec import Part, TrainSpec
from orchestrator.errors import nearest
from orchestrator.sweep.designs import Ablation, Design, Factors
from orchestrator.sweep.override import override
from orchestrator.sweep.problems import SLUG, Path, SweepError
from orchestrator.sweep.searches import Search, Tune
from orchestrator.sweep.seeds import SomeSeeds, UntilDecided
from orchestrator.sweep.space import Name

PUBLISHED_SCALE = "paper"


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _whole_or_share(gpus: float | Literal["auto"]) -> float | Literal["auto"]:
    if gpus != "auto" and gpus > 1 and gpus != int(gpus):
        raise ValueError(f"a share of one GPU or a whole number of them, got {gpus:g}")
    return gpus


Slug = Annotated[str, Field(pattern=SLUG, max_length=64)]
References = Annotated[tuple[str, ...], BeforeValidator(_one_or_many, json_schema_input_type=str | tuple[str, ...])]


class Resources(Part):
    """What one trial is granted: CPU cores and GPUs, fractions allowed; and for how long it may write nothing.

    `gpus: auto` is a quarter of a GPU where there is one, and none elsewhere.
    """

    cpus: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    gpus: Annotated[
        Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | Literal["auto"], AfterValidator(_whole_or_share)
    ] = Field(default=0.0)
    stall_minutes: float | None = Field(
        default=60.0,
        gt=0.0,
        allow_inf_nan=False,
        description="a trial that writes neither evaluation nor checkpoint for so long is ended as failed; null: never",
    )

    @property
    def threads(self) -> int:
        """One torch thread for each whole CPU, at least one."""
        return max(1, int(self.cpus))


class Component(Part):
    """Something that can be taken away; `off` says, by dotted paths into the base, what "away" means."""

    off: dict[str, Any] = Field(min_length=1)


class Scale(Part):
    """Named replacements: values of the base by dotted path, and whole components, variants, seeds, resources."""

    published: bool | References = Field(
        default=False, description="whether, or in which tables, the papers print numbers for this very scale"
    )
    base: dict[str, Any] = Field(default={})
    components: dict[Name, Component] = Field(default={})
    variants: dict[Name, dict[str, Any]] = Field(default={})
    seeds: SomeSeeds | None = Field(default=None)
    search: dict[str, Any] = Field(
        default={}, description="what the search has otherwise: {trials: 12}; single dimensions of its space"
    )
    tune: dict[str, Any] = Field(
        default={}, description="what tuning has otherwise: {trials: 12}; single dimensions of its space"
    )
    resources: Resources | None = Field(default=None)


@dataclass(frozen=True)
class Change:
    """A variant's dotted changes at one scale, and the place in the file where they stand.

    One that is not `compared` is a component that the design never takes away alone; it is checked all the same.
    """

    variant: str
    overrides: Mapping[str, Any]
    place: Path
    is_component: bool
    is_joint: bool = False
    compared: bool = True


@dataclass(frozen=True)
class Variant:
    """What is compared: a name and the whole spec, its seed left at the default; and where the file says it."""

    name: str
    spec: TrainSpec
    is_component: bool
    place: Path


@dataclass(frozen=True)
class ScaledSweep:
    """A sweep at one scale; `variants` starts with the baseline and follows the file's order.

    At a scale that is not the papers' own, their numbers for `published_corpus`, the base's, may stand in. `looks`
    are the numbers of seeds at which it is decided who gets more of `seeds`, never for more than `most_trials`.
    `scales_without_gpu` are the file's scales whose trials can do without one.
    """

    name: str
    question: str
    published: tuple[str, ...]
    scale: str
    published_scale: bool
    published_corpus: str
    variants: tuple[Variant, ...]
    ablation: Ablation
    seeds: tuple[int, ...]
    looks: tuple[int, ...]
    most_trials: int | None
    margin: float
    searching: Search | Tune | None
    resources: Resources
    scales_without_gpu: tuple[str, ...]

    @property
    def baseline(self) -> Variant:
        """The base itself."""
        return self.variants[0]


class Sweep(Part):
    """One sweep file, one question. Read it with `read_sweep`, which checks it whole."""

    name: Slug
    question: str = Field(min_length=1)
    published: References = Field(default=(), description="tables of sweeps/published/, such as awd_lstm.table4")
    baseline: Name = Field(default="full", description="the base's name among the variants")
    base: TrainSpec = Field(description="one training spec, whole; seeds are listed below it")
    components: dict[Name, Component] = Field(default={})
    groups: dict[Name, Annotated[tuple[Name, ...], Field(min_length=1)]] = Field(
        default={}, description="components that the design takes away as one"
    )
    design: Design = Field(
        default="leave_one_out",
        description="which components are taken away: each alone (leave_one_out); all, and all but each (add_one_in); "
        "both of these; each and each two (pairs); every subset (factorial) or a regular fraction of them; none",
    )
    variants: dict[Name, dict[str, Any]] = Field(default={})
    search: Search | None = Field(default=None, description="finds values for the base")
    tune: Tune | None = Field(default=None, description="finds nuisance values for every variant alike")
    seeds: SomeSeeds
    margin: float = Field(
        default=0.005, gt=0, lt=1, description="a share of perplexity: an effect that is surely smaller is told as none"
    )
    scales: dict[Slug, Scale] = Field(default={})
    resources: Resources = Field(default=Resources())

    @property
    def scale_names(self) -> tuple[str, ...]:
        """Every scale, the published one first; where the file does not give that one, it is the base as written."""
        return (PUBLISHED_SCALE, *(name for name in self.scales if name != PUBLISHED_SCALE))

    def scale(self, name: str) -> Scale:
        """A scale's replacements; SweepError for one that the file does not have."""
        if name not in self.scale_names:
            raise SweepError([f"--scale: unknown scale {name!r}{nearest(name, self.scale_names)}"])
        return self.scales.get(name, Scale())

    def _resources(self, scale_name: str) -> Resources:
        return self.scale(scale_name).resources or self.resources

    @property
    def ablation(self) -> Ablation:
        """The design over its factors; a group stands where the first of its components does."""
        group_of = {member: group for group, members in self.groups.items() for member in members}
        return Ablation(self.design, tuple(dict.fromkeys(group_of.get(name, name) for name in self.components)))

    @model_validator(mode="after")
    def _check_design(self) -> Self:
        if (problem := self.ablation.problem) is not None:
            raise ValueError(problem)
        return self

    def together(self, away: Factors) -> list[str]:
        """The components of these factors, in the file's order."""
        members = {member for factor in away for member in self.groups.get(factor, (factor,))}
        return [name for name in self.components if name in members]

    def changes(self, scale_name: str) -> Iterator[Change]:
        """Every component's and variant's change at a scale: single components, then what is taken away together.

        A joint removal is told at the last of its components.
        """
        scale, ablation = self.scale(scale_name), self.ablation
        alone = {}
        for name, component in self.components.items():
            own = scale.components.get(name)
            above: Path = ("scales", scale_name) if own is not None else ()
            place = (*above, "components", name, "off")
            alone[name] = Change(f"no {name}", (own or component).off, place, True, compared=False)
        removals = []
        for away in ablation.removals:
            parts = [alone[name] for name in self.together(away)]
            overrides = {key: value for part in parts for key, value in part.overrides.items()}
            removals.append(Change(ablation.variant(away), overrides, parts[-1].place, True, len(parts) > 1))
        single = {removal.place for removal in removals if not removal.is_joint}
        yield from (change for change in alone.values() if change.place not in single)
        yield from removals
        for name, overrides in self.variants.items():
            replaced = scale.variants.get(name)
            above = ("scales", scale_name) if replaced is not None else ()
            yield Change(name, overrides if replaced is None else replaced, (*above, "variants", name), False)

    def searching(self, scale_name: str) -> Search | Tune | None:
        """What is searched at a scale, None where nothing is; pydantic's ValidationError for what does not fit.

        A scale replaces whole values of the search, but of its space single dimensions.
        """
        scale = self.scale(scale_name)
        searching, own = (self.search, scale.search) if self.search is not None else (self.tune, scale.tune)
        if searching is None:
            return None
        merged = dict(searching) | own
        if isinstance(own.get("space"), dict):
            merged["space"] = searching.space | own["space"]
        return type(searching).model_validate(merged)

    def at(self, scale_name: str) -> ScaledSweep:
        """The sweep at a scale; SweepError for an unknown scale or a change that does not fit."""
        scale = self.scale(scale_name)
        base = _changed(self.base, scale.base)
        variants = [Variant(self.baseline, base, False, ("base",))]
        for change in self.changes(scale_name):
            if change.compared:
                spec = _changed(base, change.overrides)
                variants.append(Variant(change.variant, spec, change.is_component, change.place))
        seeds = scale.seeds or self.seeds
        return ScaledSweep(
            name=self.name,
            question=self.question,
            published=self.published if isinstance(scale.published, bool) else scale.published,
            scale=scale_name,
            published_scale=scale.published is not False or scale_name == PUBLISHED_SCALE,
            published_corpus=self.base.corpus.name,
            variants=tuple(variants),
            ablation=self.ablation,
            seeds=tuple(range(1, seeds.max + 1)) if isinstance(seeds, UntilDecided) else seeds,
            looks=seeds.looks if isinstance(seeds, UntilDecided) else (len(seeds),),
            most_trials=seeds.total if isinstance(seeds, UntilDecided) else None,
            margin=self.margin,
            searching=self.searching(scale_name),
            resources=self._resources(scale_name),
            scales_without_gpu=tuple(name for name in self.scale_names if self._resources(name).gpus in (0, "auto")),
        )


def _changed(spec: TrainSpec, changes: Mapping[str, Any]) -> TrainSpec:
    changed, problems = override(spec, changes)
    if problems:
        raise SweepError(f"{problem.path[0]}: {problem.text}" for problem in problems)
    return changed
