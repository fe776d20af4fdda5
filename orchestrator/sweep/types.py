"""A sweep file's types: a base, named changes to it, seeds, scales; and the sweep at one of its scales."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lm.names import nearest
from lm.spec import Part, TrainSpec
from lm.validation import SLUG
from lm.yaml_text import Place
from orchestrator.sweep.designs import Ablation, Design, SomeSeeds, SplitSeeds, UntilDecided, distinct, planned_seeds
from orchestrator.sweep.override import ABSENT, override, value_at
from orchestrator.sweep.searches import Name, Search, Tune

PUBLISHED_SCALE = "paper"


class SweepError(ValueError):
    """Everything that is wrong with a sweep file, a line each, in the file's order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def _check_share(gpus: float | Literal["auto"]) -> float | Literal["auto"]:
    if gpus != "auto" and gpus > 1 and gpus != int(gpus):
        raise ValueError(f"a share of one GPU or a whole number of them, got {gpus:g}")
    return gpus


Slug = Annotated[str, Field(pattern=SLUG, max_length=64)]
_Names = tuple[str, ...]
References = Annotated[
    _Names, BeforeValidator(lambda x: [x] if isinstance(x, str) else x, json_schema_input_type=str | _Names)
]


TRAIN_START = "corpus.train_start"


def _check_varied(path: str) -> str:
    if path != TRAIN_START and not path.endswith(".seed"):
        raise ValueError(f"{TRAIN_START}, or a path that ends in .seed, such as head.codebook.seed, got {path!r}")
    return path


class Resources(Part):
    """The CPU cores and GPUs of one trial, fractions allowed, and for how long it may write nothing.

    `gpus: auto` is a quarter of a GPU on a machine that has one, and none elsewhere.
    """

    cpus: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    gpus: Annotated[
        Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | Literal["auto"], AfterValidator(_check_share)
    ] = Field(default=0.0)
    stall_minutes: float | None = Field(
        default=60.0,
        gt=0.0,
        allow_inf_nan=False,
        description="a trial that writes neither evaluation nor checkpoint for this long ends as failed; null: never",
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
    search: dict[str, Any] = Field(default={}, description="values like {trials: 12}; single dimensions of its space")
    tune: dict[str, Any] = Field(default={}, description="values such as {trials: 12}; single dimensions of its space")
    resources: Resources | None = Field(default=None)


@dataclass(frozen=True)
class VariantOverrides:
    """A variant's dotted changes at one scale and their place in the file: that of the last component `removed`."""

    variant: str
    overrides: Mapping[str, Any]
    place: Place
    removed: tuple[VariantOverrides, ...] = ()


@dataclass(frozen=True)
class Variant:
    """What is compared: a name, its whole spec with the default seed, and its place in the file.

    `by_seed` has the specs of seeds that have values of their own, such as those of a search for each seed.
    """

    name: str
    spec: TrainSpec
    is_component: bool
    place: Place
    by_seed: Mapping[int, TrainSpec] = field(default_factory=dict)


@dataclass(frozen=True)
class ScaledSweep:
    """A sweep at one scale; `variants` starts with the baseline and follows the file's order.

    At scales other than the papers', reports may show their numbers for `published_corpus`, the base's. `looks` are
    the numbers of seeds at which it is decided which variants get more of `seeds`, up to `most_trials` in all. The
    baseline has all `seeds`, a variant `variant_seeds`. `varies` are paths whose values change with the seed.
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
    variant_seeds: tuple[int, ...]
    varies: tuple[str, ...]
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

    def seeds_of(self, variant: Variant) -> tuple[int, ...]:
        """Every seed that a variant may get."""
        return self.seeds if variant is self.baseline or variant.name == self.baseline.name else self.variant_seeds

    def spec(self, variant: Variant, seed: int) -> TrainSpec:
        """What a variant trains with a seed. What varies has the seed's number; each seed has a stretch of its own.

        The first seed's stretch of the training text is the file's, each next one follows on it.
        """
        spec = variant.by_seed.get(seed, variant.spec)
        changes: dict[str, Any] = {
            path: seed for path in self.varies if path != TRAIN_START and value_at(spec, path) is not ABSENT
        }
        if TRAIN_START in self.varies:
            begin, length = spec.corpus.train_start, spec.corpus.train_tokens or 0
            changes[TRAIN_START] = begin + self.seeds.index(seed) * length
        varied, problems = override(spec, changes) if changes else (spec, [])
        assert not problems, problems
        return varied.model_copy(update={"seed": seed})


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
    seeds: SomeSeeds = Field(
        description="a list; {baseline: 6, variants: 3}; or {min: 2, max: 8, until: decided}, more where undecided"
    )
    varies: Annotated[tuple[Annotated[str, AfterValidator(_check_varied)], ...], AfterValidator(distinct)] = Field(
        default=(),
        description="what changes with the seed, so that intervals cover it: paths such as head.codebook.seed, and "
        "corpus.train_start, by which each seed trains on a stretch of its own",
    )
    equal_budget: bool = Field(
        default=False,
        description="adds to each variant that trains fewer epochs than the base one that trains as many",
    )
    margin: float = Field(
        default=0.005,
        gt=0,
        lt=1,
        description="a share of perplexity: an effect that is certainly smaller is reported as none",
    )
    scales: dict[Slug, Scale] = Field(default={})
    resources: Resources = Field(default=Resources())

    @model_validator(mode="after")
    def _check_design(self) -> Self:
        if (problem := self.ablation.problem) is not None:
            raise ValueError(problem)
        return self

    @property
    def scale_names(self) -> tuple[str, ...]:
        """Every scale, the published one first, which is the base as written if the file does not give it."""
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
        """What every variant but the baseline changes: what the design takes away, then the others."""
        scale = self.scale(scale_name)

        def place(section: str, *keys: str) -> Place:
            return (*(("scales", scale_name) if keys[0] in getattr(scale, section) else ()), section, *keys)

        alone = {
            name: VariantOverrides(name, scale.components.get(name, component).off, place("components", name, "off"))
            for name, component in self.components.items()
        }
        for away in self.ablation.removals:
            members = {member for factor in away for member in self.groups.get(factor, (factor,))}
            removed = tuple(alone[name] for name in self.components if name in members)
            overrides = {key: value for component in removed for key, value in component.overrides.items()}
            yield VariantOverrides(self.ablation.variant(away), overrides, removed[-1].place, removed)
        for name, overrides in self.variants.items():
            yield VariantOverrides(name, scale.variants.get(name, overrides), place("variants", name))

    def searching(self, scale_name: str) -> Search | Tune | None:
        """What is searched at a scale, which replaces values and single dimensions; ValidationError if one misfits."""
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
        if self.equal_budget:
            variants += [control for variant in variants if (control := _with_as_many_epochs(variant, base))]
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
            variant_seeds=seeds.variants if isinstance(seeds, SplitSeeds) else planned_seeds(seeds),
            varies=self.varies,
            looks=seeds.looks if isinstance(seeds, UntilDecided) else (len(planned_seeds(seeds)),),
            most_trials=seeds.total if isinstance(seeds, UntilDecided) else None,
            margin=self.margin,
            searching=self.searching(scale_name),
            resources=resources[scale_name],
            scales_without_gpu=tuple(name for name, asked in resources.items() if asked.gpus in (0, "auto")),
        )


def _with_as_many_epochs(variant: Variant, base: TrainSpec) -> Variant | None:
    """The variant whose first stage is as much longer as its budget is smaller than the base's; None if it is not."""
    missing = base.most_epochs - variant.spec.most_epochs
    if missing <= 0 or variant.spec.cache is not None:
        return None
    spec = variant.spec.model_copy(update={"epochs": variant.spec.epochs + missing})
    return Variant(f"{variant.name}, as many epochs", spec, False, variant.place)


def schema_text() -> str:
    """The JSON Schema of sweep files, by which editors complete and check them: what `sweeps/schema.json` holds."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Sweep.model_json_schema()}
    del schema["$defs"]["TrainSpec"]["properties"]["seed"]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
