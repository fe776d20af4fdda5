"""The design of an experiment: which components, or groups of them, are taken away together; and on which seeds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from lm.spec import Part
from lm.validation import shown

Design = Literal["leave_one_out", "add_one_in", "both", "pairs", "factorial", "half", "quarter", "eighth", "none"]
MOST_SEEDS = 1_000
"""Of a variant: far more than a comparison needs, and few enough to plan."""
Factors = frozenset[str]
"""Factors that are taken away together, or the factors of an effect or of a word of the defining relation."""

# Generators by number of factors: "ABCD" means that D is away if an odd number of A, B, C are.
_FRACTIONS: dict[str, dict[int, tuple[str, ...]]] = {
    "half": {3: ("ABC",), 4: ("ABCD",), 5: ("ABCDE",), 6: ("ABCDEF",), 7: ("ABCDEFG",), 8: ("ABCDEFGH",)},
    "quarter": {
        5: ("ABD", "ACE"),
        6: ("ABCE", "BCDF"),
        7: ("ABCDF", "ABDEG"),
        8: ("ABCDG", "ABEFH"),
        9: ("ACDFGH", "BCEFGI"),
    },
    "eighth": {
        6: ("ABD", "ACE", "BCF"),
        7: ("ABCE", "BCDF", "ACDG"),
        8: ("ABCF", "ABDG", "BCDEH"),
        9: ("ABCDG", "ACEFH", "CDEFI"),
        10: ("ABCGH", "BCDEI", "ACDFJ"),
    },
}


@dataclass(frozen=True)
class Ablation:
    """A design over factors, in the order in which the file names them."""

    design: Design
    factors: tuple[str, ...]

    @property
    def problem(self) -> str | None:
        """Why the design does not fit this number of factors; None if it does."""
        count, fractions = len(self.factors), _FRACTIONS.get(self.design, {})
        fewest = {"add_one_in": 2, "both": 2, "pairs": 2, "factorial": 1}
        low = min(fractions, default=fewest.get(self.design, 0))
        high = max(fractions, default=10 if self.design == "factorial" else count)
        if low <= count <= high:
            return None
        bounds = f"{low} to {high}" if fractions else f"{low} or more" if count < low else f"at most {high}"
        return f"design {self.design} needs {bounds} components (a group counts as one), got {count}"

    @property
    def removals(self) -> tuple[Factors, ...]:
        """What each variant takes away, each set once; without the base, which takes nothing away.

        The fractions are regular two-level fractions of the highest resolution that their size allows, with the base
        among them; generators of Montgomery, "Design and Analysis of Experiments", 8th edition, table 8.14 (after Box,
        Hunter & Hunter, "Statistics for Experimenters", 2nd edition, table 6.22).
        """
        alone, every = self._subsets([1]), frozenset(self.factors)
        put_back = [every, *(every - factor for factor in alone)]
        whole = {"none": [], "leave_one_out": alone, "add_one_in": put_back, "both": alone + put_back}
        if (removals := whole.get(self.design)) is None:
            words = self.defining_words  # none of a full factorial
            subsets = self._subsets([1, 2] if self.design == "pairs" else range(1, len(self.factors) + 1))
            removals = [away for away in subsets if all(len(away & word) % 2 == 0 for word in words)]
        return tuple(dict.fromkeys(removals))

    def _subsets(self, sizes: Iterable[int]) -> list[Factors]:
        return [frozenset(some) for size in sizes for some in itertools.combinations(self.factors, size)]

    @property
    def defining_words(self) -> tuple[Factors, ...]:
        """A fraction's defining relation, shortest word first: its factors, +1 there and -1 away, multiply to +1."""
        letters = dict(zip("ABCDEFGHIJ", self.factors, strict=False))
        words: list[Factors] = []
        for generator in _FRACTIONS.get(self.design, {}).get(len(self.factors), ()):
            word = frozenset(letters[letter] for letter in generator)
            words += [word, *(word ^ other for other in words)]
        return tuple(sorted(words, key=self.rank))

    def aliases(self, effect: Factors) -> tuple[Factors, ...]:
        """The effects that the design cannot tell from this one, whose estimate holds them, shortest first."""
        return tuple(sorted((effect ^ word for word in self.defining_words), key=self.rank))

    def rank(self, factors: Factors) -> tuple[int, list[int]]:
        """Sorts sets of factors by size, then by the file's order."""
        return len(factors), sorted(map(self.factors.index, factors))

    def variant(self, away: Factors) -> str:
        """The name of the variant that takes these factors away."""
        left = [factor for factor in self.factors if factor not in away]
        if self.design in ("add_one_in", "both") and not left:
            return "stripped"
        if len(left) == 1 and (self.design == "add_one_in" or (self.design == "both" and len(away) > 1)):
            return f"only {left[0]}"
        return " + ".join(f"no {factor}" for factor in self.factors if factor in away)


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """ValueError if one of the values, or of parts a kind, is there twice."""
    counts = Counter(getattr(value, "kind", value) for value in values)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"should be distinct, got {twice[0]} twice")
    return values


def _check_list(value: object) -> object:
    if not isinstance(value, list | tuple):
        forms = "{min, max, until: decided}, or {baseline: 6, variants: 3}"
        raise ValueError(f"should be a list such as [1, 2, 3], {forms}, got {shown(value)}")
    return value


Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63, strict=True)], ...],
    Field(min_length=1, max_length=MOST_SEEDS),
    AfterValidator(distinct),
    BeforeValidator(_check_list),
]


class UntilDecided(Part):
    """Seeds from 1 on, in rounds: `min` for every variant, then more for what is undecided; `max` for the baseline."""

    min: int = Field(default=2, ge=2, strict=True, description="Seeds of every variant before the first look.")
    max: int = Field(ge=2, le=MOST_SEEDS, strict=True, description="The most seeds of a variant.")
    until: Literal["decided"] = Field(description="Until every comparison is decided, or `max` is reached.")
    total: int | None = Field(
        default=None, ge=1, strict=True, description="The most trials in all, of whole rounds; null: no limit."
    )

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max must be at least min, got {self.max} and {self.min}")
        return self

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds at which comparisons are looked at, each half as many again: 2 3 4 6 9."""
        looks = [self.min]
        while looks[-1] < self.max:
            looks.append(min(self.max, looks[-1] + max(1, looks[-1] // 2)))
        return tuple(looks)


def _up_to(value: object) -> object:
    if isinstance(value, list | tuple):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SEEDS:
        rule = f"should be a number from 1 to {MOST_SEEDS:,}, or a list such as [1, 2, 3]"
        raise ValueError(f"{rule}, got {shown(value)}")
    return list(range(1, value + 1))


SeedsOrNumber = Annotated[Seeds, BeforeValidator(_up_to, json_schema_input_type=int | tuple[int, ...])]


class SplitSeeds(Part):
    """More seeds for the baseline, which is in every comparison, than for each variant; a number n means 1 to n."""

    baseline: SeedsOrNumber = Field(description="The baseline's seeds: a list, or a number n for 1 to n.")
    variants: SeedsOrNumber = Field(description="The seeds of each variant, all of them also the baseline's.")

    @model_validator(mode="after")
    def _check_baseline(self) -> Self:
        if missing := [seed for seed in self.variants if seed not in self.baseline]:
            raise ValueError(f"the baseline must have every seed that the variants have, and lacks {missing[0]}")
        return self


def _form_of(value: object) -> str:
    if not isinstance(value, dict | Part):
        return "list"
    return "split" if dict(value).keys() & {"baseline", "variants"} else "rounds"


SomeSeeds = Annotated[
    Annotated[Seeds, Tag("list")] | Annotated[UntilDecided, Tag("rounds")] | Annotated[SplitSeeds, Tag("split")],
    Discriminator(_form_of),
]


def planned_seeds(seeds: tuple[int, ...] | UntilDecided | SplitSeeds) -> tuple[int, ...]:
    """Every seed that the baseline may get; no variant has others."""
    match seeds:
        case UntilDecided():
            return tuple(range(1, seeds.max + 1))
        case SplitSeeds():
            return seeds.baseline
        case _:
            return seeds
