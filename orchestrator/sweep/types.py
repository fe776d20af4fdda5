"""A sweep file's types: a base, named changes to it, seeds, scales; and the sweep at one of its scales."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lm.names import nearest
from lm.spec import Part, TrainSpec
from lm.validation import SLUG
from lm.yaml_text import Place
from orchestrator.sweep.designs import Ablation, Design, SomeSeeds, UntilDecided, planned_seeds
from orchestrator.sweep.override import override
from orchestrator.sweep.searches import Search, Tune
from orchestrator.sweep.space import Name

PUBLISHED_SCALE = "paper"


class SweepError(ValueError):
    """Everything that is wrong with one sweep file, a line each, in the file's order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def _check_share(gpus: float | Literal["auto"]) -> float | Literal["auto"]:
    if gpus != "auto" and gpus > 1 and gpus != int(gpus):
        raise ValueError(f"a share of one GPU or a whole number of them, got {gpus:g}")
    return gpus


Slug = Annotated[str, Field(pattern=SLUG, max_length=64)]
References = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | tuple[str, ...]
    ),
]


class Resources(Part):
    """The CPU cores and GPUs of one trial, fractions allowed, and for how long it may write nothing.

    `gpus: auto` is a quarter of a GPU on a machine that has one, and none elsewhere.
    """

    cpus: float = Field(
        default=1.0,
        gt=0.0,
        allow_inf_nan=False,
        description="CPU cores of one trial, fractions allowed; it trains with as many threads as whole cores.",
    )
    gpus: Annotated[
        Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | Literal["auto"], AfterValidator(_check_share)
    ] = Field(
        default=0.0,
        description="GPUs of one trial: a share of one, or a whole number; 0: none. auto: 0.25 on a machine that "
        "has a GPU, otherwise none.",
    )
    stall_minutes: float | None = Field(
        default=60.0,
        gt=0.0,
        allow_inf_nan=False,
        description="A trial that writes neither evaluation nor checkpoint for this many minutes ends as failed; "
        "null: never.",
    )

    @property
    def threads(self) -> int:
        """One torch thread for each whole CPU, at least one."""
        return max(1, int(self.cpus))


class Component(Part):
    """Something that can be taken away; `off` says, by dotted paths into the base, what "away" means."""

    off: dict[str, Any] = Field(
        min_length=1, description="What taking it away changes: values by dotted path into the base."
    )


class Scale(Part):
    """Named replacements: values of the base by dotted path, and whole components, variants, seeds, resources."""

    published: bool | References = Field(
        default=False, description="Whether, or in which tables, the papers print numbers for this very scale."
    )
    base: dict[str, Any] = Field(default={}, description="Replaced values of the base, by dotted path.")
    components: dict[Name, Component] = Field(
        default={}, description="Components of the file that are taken away otherwise here, by name."
    )
    variants: dict[Name, dict[str, Any]] = Field(
        default={}, description="Variants of the file that change something else here, by name."
    )
    seeds: SomeSeeds | None = Field(default=None, description="Replace the file's seeds; null: they hold here too.")
    search: dict[str, Any] = Field(
        default={}, description="Replaced values of the search, such as {trials: 12}; of its space single dimensions."
    )
    tune: dict[str, Any] = Field(
        default={}, description="Replaced values of the tuning, such as {trials: 12}; of its space single dimensions."
    )
    resources: Resources | None = Field(
        default=None, description="Replace the file's resources, whole; null: they hold here too."
    )


@dataclass(frozen=True)
class VariantOverrides:
    """A variant's dotted changes at one scale, and their place in the file.

    If components are taken away, `removed` has the changes of each, and the place is that of the last.
    """

    variant: str
    overrides: Mapping[str, Any]
    place: Place
    removed: tuple[VariantOverrides, ...] = ()


@dataclass(frozen=True)
class Variant:
    """What is compared: a name, its whole spec with the default seed, and its place in the file."""

    name: str
    spec: TrainSpec
    is_component: bool
    place: Place


@dataclass(frozen=True)
class ScaledSweep:
    """A sweep at one scale; `variants` starts with the baseline and follows the file's order.

    At scales other than the papers', reports may show their numbers for `published_corpus`, the base's. `looks` are
    the numbers of seeds at which it is decided which variants get more of `seeds`, up to `most_trials` in all.
    `scales_without_gpu` are the file's scales whose trials need no GPU.
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

    name: Slug = Field(description="The name of the folder of its reports, and of its experiment in MLflow.")
    question: str = Field(min_length=1, description="What the sweep asks; it stands above every page.")
    published: References = Field(
        default=(), description="Tables of `sweeps/published/` whose numbers are shown beside, such as awd_lstm.table4."
    )
    baseline: Name = Field(default="full", description="What the base is called among the variants.")
    base: TrainSpec = Field(description="The specification of one trial, whole, without its seed.")
    components: dict[Name, Component] = Field(
        default={}, description="What can be taken away, by name; the design says which are taken away together."
    )
    groups: dict[Name, Annotated[tuple[Name, ...], Field(min_length=1)]] = Field(
        default={}, description="Components that the design takes away as one, by the group's name."
    )
    design: Design = Field(
        default="leave_one_out",
        description="Which components are taken away: each alone (leave_one_out); all, and all but each "
        "(add_one_in); both of these; each and each two (pairs); every subset (factorial) or a "
        "regular fraction of them; none.",
    )
    variants: dict[Name, dict[str, Any]] = Field(
        default={}, description="Other changes of the base, by name: values by dotted path."
    )
    search: Search | None = Field(default=None, description="Finds values for the base; null: none.")
    tune: Tune | None = Field(default=None, description="Finds nuisance values for every variant alike; null: none.")
    seeds: SomeSeeds = Field(
        description="The seeds of every variant, or how many are spent until every comparison is decided."
    )
    margin: float = Field(
        default=0.005,
        gt=0,
        lt=1,
        description="A share of perplexity: an effect that is certainly smaller is reported as none.",
    )
    scales: dict[Slug, Scale] = Field(
        default={},
        description="Named replacements, such as smaller models, one of which is chosen on the command line.",
    )
    resources: Resources = Field(default=Resources(), description="What one trial gets; no part of its key.")

    @model_validator(mode="after")
    def _check_design(self) -> Self:
        if (problem := self.ablation.problem) is not None:
            raise ValueError(problem)
        return self

    @property
    def scale_names(self) -> tuple[str, ...]:
        """Every scale, the published one first; if the file does not give that one, it is the base as written."""
        return (PUBLISHED_SCALE, *(name for name in self.scales if name != PUBLISHED_SCALE))

    def scale(self, name: str) -> Scale:
        """A scale's replacements; SweepError for one that the file does not have."""
        if name not in self.scale_names:
            raise SweepError([f"--scale: unknown scale {name!r}{nearest(name, self.scale_names)}"])
        return self.scales.get(name, Scale())

    @property
    def ablation(self) -> Ablation:
        """The design over its factors; a group stands where the first of its components does."""
        group_of = {member: group for group, members in self.groups.items() for member in members}
        return Ablation(self.design, tuple(dict.fromkeys(group_of.get(name, name) for name in self.components)))

    def changes(self, scale_name: str) -> Iterator[VariantOverrides]:
        """What every variant but the baseline changes at a scale: what the design takes away, then the others."""
        scale = self.scale(scale_name)
        above: Place = ("scales", scale_name)
        alone = {}
        for name, component in self.components.items():
            place = (*(above if name in scale.components else ()), "components", name, "off")
            off = scale.components.get(name, component).off
            alone[name] = VariantOverrides(name, off, place)
        for away in self.ablation.removals:
            members = {member for factor in away for member in self.groups.get(factor, (factor,))}
            removed = tuple(alone[name] for name in self.components if name in members)
            overrides = {key: value for component in removed for key, value in component.overrides.items()}
            yield VariantOverrides(self.ablation.variant(away), overrides, removed[-1].place, removed)
        for name, overrides in self.variants.items():
            place = (*(above if name in scale.variants else ()), "variants", name)
            yield VariantOverrides(name, scale.variants.get(name, overrides), place)

    def searching(self, scale_name: str) -> Search | Tune | None:
        """What is searched at a scale, None if nothing is; pydantic's ValidationError for what does not fit.

        A scale replaces whole values of the search, but of its space single dimensions.
        """
        scale = self.scale(scale_name)
        searching, replaced = (self.search, scale.search) if self.search is not None else (self.tune, scale.tune)
        if searching is None:
            return None
        merged = dict(searching) | replaced
        if isinstance(replaced.get("space"), dict):
            merged["space"] = searching.space | replaced["space"]
        return type(searching).model_validate(merged)

    def at(self, scale_name: str) -> ScaledSweep:
        """The sweep at a scale; SweepError for an unknown scale or a change that does not fit."""

        def changed(spec: TrainSpec, overrides: Mapping[str, Any]) -> TrainSpec:
            changed, problems = override(spec, overrides)
            if problems:
                raise SweepError(f"{problem.place[0]}: {problem.text}" for problem in problems)
            return changed

        scale = self.scale(scale_name)
        base = changed(self.base, scale.base)
        variants = [
            Variant(change.variant, changed(base, change.overrides), bool(change.removed), change.place)
            for change in self.changes(scale_name)
        ]
        seeds = scale.seeds or self.seeds
        resources = {name: self.scale(name).resources or self.resources for name in self.scale_names}
        return ScaledSweep(
            name=self.name,
            question=self.question,
            published=self.published if isinstance(scale.published, bool) else scale.published,
            scale=scale_name,
            published_scale=scale.published is not False or scale_name == PUBLISHED_SCALE,
            published_corpus=self.base.corpus.name,
            variants=(Variant(self.baseline, base, False, ("base",)), *variants),
            ablation=self.ablation,
            seeds=planned_seeds(seeds),
            looks=seeds.looks if isinstance(seeds, UntilDecided) else (len(seeds),),
            most_trials=seeds.total if isinstance(seeds, UntilDecided) else None,
            margin=self.margin,
            searching=self.searching(scale_name),
            resources=resources[scale_name],
            scales_without_gpu=tuple(name for name, asked in resources.items() if asked.gpus in (0, "auto")),
        )


def schema_text() -> str:
    """The JSON Schema of sweep files, by which editors complete and check them: what `sweeps/schema.json` holds."""
    schema = Sweep.model_json_schema()
    del schema["$defs"]["TrainSpec"]["properties"]["seed"]
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
