"""A sweep file's types: a base, named changes to it, seeds, scales."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lm.names import nearest
from lm.spec import AskedAnalysis, Generate, Part, TrainSpec
from lm.validation import SLUG, VARIED
from lm.yaml_text import Place, dotted
from orchestrator.sweep.designs import Ablation, Design, SomeSeeds, SplitSeeds, UntilDecided, distinct, planned_seeds
from orchestrator.sweep.override import override
from orchestrator.sweep.scaled import (
    BY_HAND,
    Dose,
    Resources,
    ScaledSweep,
    Variant,
    sizes_left_out,
    with_as_many_epochs,
)
from orchestrator.sweep.searches import Search, Tune
from orchestrator.sweep.space import Name

PUBLISHED_SCALE = "paper"


class SweepError(ValueError):
    """Everything that is wrong with a sweep file, a line each, in the file's order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


Slug = Annotated[str, Field(pattern=SLUG, max_length=64)]
_Names = tuple[str, ...]
References = Annotated[
    _Names, BeforeValidator(lambda x: [x] if isinstance(x, str) else x, json_schema_input_type=str | _Names)
]


Analyses = Annotated[tuple[AskedAnalysis, ...], AfterValidator(distinct)]


class Component(Part):
    """Something that can be taken away; `off` says, by dotted paths into the base, what "away" means."""

    off: dict[str, Any] = Field(min_length=1, description="What taking it away changes, by dotted path into the base.")


class Scale(Part):
    """Named replacements: values of the base by dotted path, and whole components, variants, seeds, resources."""

    published: bool | References = Field(
        default=False, description="Whether, or in which tables, the papers print numbers for this very scale."
    )
    base: dict[str, Any] = Field(default={}, description="Replaced values of the base, by dotted path.")
    components: dict[Name, Component] = Field(default={}, description="Components that are taken away otherwise here.")
    variants: dict[Name, dict[str, Any]] = Field(default={}, description="Variants that change something else here.")
    seeds: SomeSeeds | None = Field(default=None, description="Replace the file's seeds; null: they hold here.")
    search: dict[str, Any] = Field(
        default={},
        description="Replaced values of the search, such as {trials: 12}; of its space single dimensions. A whole "
        "search if the file neither searches nor tunes.",
    )
    tune: dict[str, Any] = Field(
        default={},
        description="Replaced values of the tuning, such as {trials: 12}; of its space single dimensions. A whole "
        "tuning if the file neither searches nor tunes.",
    )
    analyses: Analyses | None = Field(default=None, description="Replace the file's analyses; null: they hold here.")
    resources: Resources | None = Field(default=None, description="Replace the file's resources; null: they hold here.")


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
    variants: dict[Name, dict[str, Any]] = Field(default={}, description="Other changes of the base, by dotted path.")
    search: Search | None = Field(
        default=None, description="Finds values for the base, which components and variants then change; null: none."
    )
    tune: Tune | None = Field(default=None, description="Finds nuisance values for every variant alike; null: none.")
    seeds: SomeSeeds = Field(
        description="The seeds of every variant; {baseline: 6, variants: 3}, as the baseline is in every comparison;"
        " or {min: 2, max: 8, until: decided}, more for what is not decided."
    )
    varies: Annotated[tuple[Annotated[str, Field(pattern=VARIED)], ...], AfterValidator(distinct)] = Field(
        default=(),
        description="What changes with the seed, so that intervals cover it: paths such as head.codebook.seed, and "
        "corpus.train_start, by which each seed trains on a stretch of its own.",
    )
    analyses: Analyses = Field(
        default=(),
        description="What the page also says of the trained weights: kinds such as rank, or with settings "
        "{kind: rank, positions: 5000}; no part of a trial's key.",
    )
    doses: tuple[Dose, ...] = Field(
        default=(), description="Numbers whose effect the page shows in a picture with the number on its axis."
    )
    equal_budget: bool = Field(
        default=False,
        strict=True,
        description="Adds to a variant that trains fewer epochs than the base one that trains as many.",
    )
    margin: float = Field(
        default=0.005,
        gt=0,
        lt=1,
        strict=True,
        description="A share of perplexity: an effect certainly smaller is reported as none.",
    )
    scales: dict[Slug, Scale] = Field(
        default={}, description="Named replacements, such as smaller models; the command line chooses one."
    )
    resources: Resources = Field(default=Resources(), description="What one trial gets; no part of its key.")
    generate: Generate | None = Field(
        default=None,
        description="Text of each variant's first seed on the page, written by its best weights; null: none. No part "
        "of a key.",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_no_trial(cls, data: Any) -> Any:
        if isinstance(data, dict) and "base" not in data and {"corpus", "model"} <= data.keys():
            raise ValueError("this is the spec of one trial, which `python -m lm train FILE` trains, and not a sweep")
        return data

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
            hint = nearest(name, self.scale_names) if self.scales else "; the file has no scales: leave --scale out"
            raise SweepError([f"--scale: unknown scale {name!r}{hint}"])
        return self.scales.get(name, Scale())

    @property
    def ablation(self) -> Ablation:
        """The design over its factors; a group stands where the first of its components does."""
        group_of = {member: group for group, members in self.groups.items() for member in members}
        return Ablation(self.design, tuple(dict.fromkeys(group_of.get(name, name) for name in self.components)))

    def off(self, scale_name: str, component: str) -> tuple[Place, Mapping[str, Any]]:
        """What taking a component away changes at a scale, and where that is written."""
        at_scale = self.scale(scale_name).components
        place: Place = ("scales", scale_name) if component in at_scale else ()
        return (*place, "components", component, "off"), at_scale.get(component, self.components[component]).off

    def variants_at(self, scale_name: str) -> Iterator[Variant]:
        """The baseline, what the design takes away, then the others, each with what is wrong with it."""
        scale = self.scale(scale_name)
        base, wrong = override(self.base, scale.base)
        problems = tuple(problem.under("scales", scale_name, "base") for problem in wrong)
        yield Variant(self.baseline, base, ("base",), problems=problems)
        for away in self.ablation.removals:
            members = {member for factor in away for member in self.groups.get(factor, (factor,))}
            removed = tuple(name for name in self.components if name in members)
            parts = [self.off(scale_name, name) for name in removed]
            place_of = {key: place for place, off in parts for key in off}
            overrides = {key: value for _, off in parts for key, value in off.items()}
            spec, wrong = override(base, overrides)
            problems = tuple(problem.under(*place_of[str(problem.place[0])]) for problem in wrong)
            yield Variant(self.ablation.variant(away), spec, parts[-1][0], overrides, removed, problems)
        for name, written in self.variants.items():
            place = (*(("scales", scale_name) if name in scale.variants else ()), "variants", name)
            overrides = scale.variants.get(name, written)
            spec, wrong = override(base, overrides)
            yield Variant(name, spec, place, overrides, problems=tuple(problem.under(*place) for problem in wrong))

    def searching(self, scale_name: str) -> Search | Tune | None:
        """What is searched at a scale, which replaces values and single dimensions; ValidationError if one misfits.

        If the file itself neither searches nor tunes, the scale has the whole.
        """
        scale, whole = self.scale(scale_name), self.search or self.tune
        if whole is None:
            if scale.search:
                return Search.model_validate(scale.search)
            return Tune.model_validate(scale.tune) if scale.tune else None
        replaced = scale.search if self.search is not None else scale.tune
        merged = dict(whole) | replaced
        if isinstance(replaced.get("space"), dict):
            merged["space"] = whole.space | replaced["space"]
        return type(whole).model_validate(merged)

    def at(self, scale_name: str) -> ScaledSweep:
        """The sweep at a scale; SweepError for an unknown scale or a change that does not fit."""
        scale, variants = self.scale(scale_name), list(self.variants_at(scale_name))
        if problems := [problem for variant in variants for problem in variant.problems]:
            raise SweepError(f"{dotted(problem.place)}: {problem.text}" for problem in problems)
        base = variants[0].spec
        if self.equal_budget:
            variants += [control for variant in variants if (control := with_as_many_epochs(variant, base))]
        searching = self.searching(scale_name)
        base_is_found = isinstance(searching, Search) and len(variants) > 1
        if base_is_found:
            variants.append(Variant(BY_HAND, base, ("base",)))
        seeds = scale.seeds or self.seeds
        resources = {name: self.scale(name).resources or self.resources for name in self.scale_names}
        return ScaledSweep(
            name=self.name,
            question=self.question,
            published=self.published if isinstance(scale.published, bool) else scale.published,
            scale=scale_name,
            published_scale=scale.published is not False or scale_name == PUBLISHED_SCALE,
            published_corpus=self.base.corpus.name,
            variants=tuple(variants),
            ablation=self.ablation,
            seeds=planned_seeds(seeds),
            variant_seeds=seeds.variants if isinstance(seeds, SplitSeeds) else planned_seeds(seeds),
            varies=self.varies,
            looks=seeds.looks if isinstance(seeds, UntilDecided) else (len(planned_seeds(seeds)),),
            most_trials=seeds.total if isinstance(seeds, UntilDecided) else None,
            margin=self.margin,
            analyses=self.analyses if scale.analyses is None else scale.analyses,
            doses=self.doses,
            searching=searching,
            resources=resources[scale_name],
            generate=self.generate,
            scales_without_gpu=tuple(name for name, asked in resources.items() if asked.gpus in (0, "auto")),
            base_is_found=base_is_found,
            has_scales=bool(self.scales),
            warnings=(
                *sizes_left_out(f"scales.{scale_name}.base.model", scale.base, self.base),
                *(w for v in variants[1:] for w in sizes_left_out(f"model of {v.name!r}", v.overrides, base)),
            ),
        )
