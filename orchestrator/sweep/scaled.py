"""A sweep at one of its scales: its variants, their seeds, what varies with them, and what a trial may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from lm.names import nearest
from lm.spec import Analysis, Generate, Part, TrainSpec
from lm.spec.part import NonNegative, Positive
from lm.validation import Problem
from lm.yaml_text import Place
from orchestrator.errors import CannotStartError
from orchestrator.sweep.changes import UNCHANGED, Changes
from orchestrator.sweep.designs import Ablation
from orchestrator.sweep.override import ABSENT, override, value_at
from orchestrator.sweep.searches import Search, Tune
from orchestrator.words import listed

TRAIN_START = "corpus.train_start"
_SIZES = ("layers", "embedding_size", "hidden_size")
BEST_FOUND = "best found"
"""The variant that a search makes of the base, if it has no other variants."""
BY_HAND = "by hand"
"""The base as the file has it, beside variants of the one that a search found."""


def _check_share(gpus: float | Literal["auto"]) -> float | Literal["auto"]:
    if gpus != "auto" and gpus > 1 and gpus != int(gpus):
        raise ValueError(f"a share of one GPU or a whole number of them, got {gpus:g}")
    return gpus


class Resources(Part):
    """The CPU cores and GPUs of one trial, fractions allowed, and for how long it may write nothing.

    `gpus: auto` is a quarter of a GPU on a machine that has one, and none elsewhere.
    """

    cpus: Positive = Field(
        default=1.0, description="CPU cores of a trial, fractions allowed; it trains with a thread for each whole core."
    )
    gpus: Annotated[NonNegative | Literal["auto"], AfterValidator(_check_share)] = Field(
        default=0.0,
        description="GPUs of one trial: a share of one, or a whole number; 0: none. auto: 0.25 on a machine that "
        "has a GPU, otherwise none.",
    )
    stall_minutes: Positive | None = Field(
        default=60.0,
        description="A trial that writes neither evaluation nor checkpoint for this many minutes ends as failed; "
        "null: never.",
    )

    @property
    def threads(self) -> int:
        """One torch thread for each whole CPU, at least one."""
        return max(1, int(self.cpus))


SUBSPACE_MEASURES = ("subspace_distance", "mean_cosine")
"""Measured after every epoch, if `epoch_measures` ask for it."""


class Dose(Part):
    """A picture of a number's effect: of variants that differ in this value alone."""

    of: str = Field(min_length=1, description="The number, by dotted path into the base.")
    measure: Literal["test_perplexity", "subspace_distance", "mean_cosine", "gate_variation"] = Field(
        default="test_perplexity",
        description="The effect; subspace_distance and mean_cosine are of the last epoch, by base.epoch_measures; "
        "gate_variation is the coefficient of variation of the weights that a mixture gives its experts, over the test "
        "text: 0 if all are used alike.",
    )


@dataclass(frozen=True)
class Variant:
    """What is compared: a name, its whole spec with the default seed, and its place in the file.

    `overrides` is what it changes of the base, by dotted path, and `removed` the components that it takes away; its
    place is that of the last one. `problems` are why it cannot: then its spec is the base's. `by_seed` has the specs of
    seeds that have values of their own, such as those of a search for each seed. `control_of` is the variant that this
    one trains for as many epochs as the baseline, and with which it is tuned alike.
    """

    name: str
    spec: TrainSpec
    place: Place
    overrides: Mapping[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    by_seed: Mapping[int, TrainSpec] = field(default_factory=dict)
    control_of: str | None = None


@dataclass(frozen=True)
class ScaledSweep:
    """A sweep at one scale; `variants` starts with the baseline and follows the file's order.

    At scales other than the papers', reports may show their numbers for `published_corpus`, the base's. `looks` are
    the numbers of seeds at which it is decided which variants get more of `seeds`, up to `most_trials` in all. The
    baseline has all `seeds`, a variant `variant_seeds`. `varies` are paths whose values change with the seed.
    `changes` are what the command line changed at the scale; its name then has them after a plus.
    If `base_is_found`, the baseline has the values that the search finds, the others are changes of it, and the last
    variant is the base by hand. A file without scales (`has_scales`) has one all the same, which no sentence names.
    `alternatives` are the file's scales if nobody asked for this one, None if somebody did. `file` is where
    it was read, `warnings` what in it is easily meant otherwise.
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
    changes: Changes = UNCHANGED
    generate: Generate | None = None
    analyses: tuple[Analysis, ...] = ()
    doses: tuple[Dose, ...] = ()
    base_is_found: bool = False
    has_scales: bool = True
    alternatives: tuple[str, ...] | None = field(default=None, repr=False, compare=False)
    file: Path | None = field(default=None, repr=False, compare=False)
    warnings: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def adds_best_found(self) -> bool:
        """Whether the table gets a row for what a search finds, beside the base as the file has it."""
        return isinstance(self.searching, Search) and not self.base_is_found

    @property
    def baseline(self) -> Variant:
        """The base itself."""
        return self.variants[0]

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the command line that ask for this scale."""
        return *(("--scale", self.scale_in_file) if self.has_scales else ()), *self.changes.words

    @property
    def scale_in_file(self) -> str:
        """The scale's name in the file, without what the command line changed."""
        return self.scale.partition("+")[0]

    @property
    def named_scale(self) -> str:
        """The scale as sentences name it: of a file without scales only what the command line changed, or nothing."""
        return self.scale if self.has_scales else self.scale.partition("+")[2]

    @property
    def at_scale(self) -> str:
        """` at scale laptop`, or nothing."""
        return f" at scale {self.named_scale}" if self.named_scale else ""

    def seeds_of(self, variant: Variant) -> tuple[int, ...]:
        """Every seed that a variant may get."""
        return self.seeds if variant.name == self.baseline.name else self.variant_seeds

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


def select(sweep: ScaledSweep, only: Sequence[str]) -> ScaledSweep:
    """The sweep with the baseline and these variants alone, the whole if none is named; CannotStartError for others."""
    if not only:
        return sweep
    searches_base = isinstance(sweep.searching, Search) and not sweep.base_is_found
    names = [variant.name for variant in sweep.variants] + [BEST_FOUND] * searches_base  # to which the search belongs
    for name in only:
        if name not in names:
            raise CannotStartError(f"--only: unknown variant {name!r}{nearest(name, names)}")
    kept = {sweep.baseline.name, *only}
    return replace(
        sweep,
        variants=tuple(v for v in sweep.variants if v.name in kept),
        searching=None if searches_base and BEST_FOUND not in only else sweep.searching,
    )


def sizes_left_out(name: str, changes: Mapping[str, Any], base: TrainSpec) -> Iterator[str]:
    """A warning if a change replaces the whole model without its sizes, which then are those of AWD-LSTM."""
    model = changes.get("model")
    left_out = [size for size in _SIZES if isinstance(model, Mapping) and size not in model]
    defaults = {size: type(base.model).model_fields[size].default for size in left_out}
    if any(getattr(base.model, size) != default for size, default in defaults.items()):
        sizes = listed([f"{size} {default}" for size, default in defaults.items()])
        keys = ", ".join(f"model.{key}" for key in model or ())
        yield f"{name} replaces the whole part, so it has the defaults {sizes}; write {keys} to change nothing else"


def text_warnings(sweep: ScaledSweep) -> Iterator[str]:
    """What keeps the test text of a corpus that is no published one from telling models apart."""
    from lm.data import PUBLISHED, corpus_warnings, load

    for corpus in dict.fromkeys(variant.spec.corpus for variant in sweep.variants):
        if corpus.name not in PUBLISHED:
            yield from (f"{corpus.name}: {warning}" for warning in corpus_warnings(load(corpus)))


def with_as_many_epochs(variant: Variant, base: TrainSpec) -> Variant | None:
    """The variant whose first stage is as much longer as its budget is smaller than the base's; None if it is not."""
    missing = base.most_epochs - variant.spec.most_epochs
    if missing <= 0 or variant.spec.cache is not None:
        return None
    epochs = variant.spec.epochs + missing
    spec = variant.spec.model_copy(update={"epochs": epochs})
    name, overrides = f"{variant.name} (as many epochs)", {**variant.overrides, "epochs": epochs}
    return Variant(name, spec, variant.place, overrides, control_of=variant.name)
