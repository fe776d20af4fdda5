"""Designs: which factors (components, or groups of them) are taken away together, and what each variant is called."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Design = Literal[
    "leave_one_out", "add_one_in", "both", "pairs", "factorial", "half", "quarter", "eighth", "none"
]  # fmt: skip
Factors = frozenset[str]
"""Factors taken away together, or those of an effect or of a word of the defining relation."""

_NEEDS_TWO = ("add_one_in", "both", "pairs")
_LARGEST_FACTORIAL = 10

# Words of the defining relation by number of factors: "ABCD" says that D is away where an odd number of A, B, C are.
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
        """Why the design does not fit so many factors; None where it does."""
        count = len(self.factors)
        low, high = 0, count
        if self.design in _FRACTIONS:
            low, high = min(_FRACTIONS[self.design]), max(_FRACTIONS[self.design])
        elif self.design == "factorial":
            high = _LARGEST_FACTORIAL
        elif self.design in _NEEDS_TWO:
            low = 2
        if low <= count <= high or self.design == "none":
            return None
        bounds = f"{low} to {high}" if self.design in _FRACTIONS else f"{low} or more" if low else f"at most {high}"
        return f"design {self.design} needs {bounds} components (a group counts as one), got {count}"

    @property
    def removals(self) -> tuple[Factors, ...]:
        """What each variant takes away, each set once; the base, which takes nothing away, is none of them.

        The fractions are regular two-level fractions of the highest resolution that their size allows, with the base
        among them; generators of Montgomery, "Design and Analysis of Experiments", 8th edition, table 8.14 (after Box,
        Hunter & Hunter, "Statistics for Experimenters", 2nd edition, table 6.22).
        """
        every = frozenset(self.factors)
        alone = [frozenset([factor]) for factor in self.factors]
        put_back = [every, *(every - one for one in alone)]
        match self.design:
            case "none":
                chosen: Iterable[Factors] = ()
            case "leave_one_out":
                chosen = alone
            case "add_one_in":
                chosen = put_back
            case "both":
                chosen = [*alone, *put_back]
            case "pairs":
                chosen = [*alone, *map(frozenset, itertools.combinations(self.factors, 2))]
            case "factorial" | "half" | "quarter" | "eighth":
                subsets = (itertools.combinations(self.factors, n) for n in range(1, len(self.factors) + 1))
                words = self.defining_words
                chosen = [
                    away
                    for away in map(frozenset, itertools.chain.from_iterable(subsets))
                    if all(len(away & word) % 2 == 0 for word in words)
                ]
        return tuple(dict.fromkeys(chosen))

    @property
    def defining_words(self) -> tuple[Factors, ...]:
        """The defining relation of a fraction, shortest word first; empty for any other design.

        With +1 where a factor is there and -1 where it is away, the product of a word's factors is +1 in every variant.
        """
        by_letter = dict(zip("ABCDEFGHIJ", self.factors, strict=False))
        generators = [
            frozenset(by_letter[letter] for letter in word)
            for word in _FRACTIONS.get(self.design, {}).get(len(self.factors), ())
        ]
        chosen = (itertools.combinations(generators, n) for n in range(1, len(generators) + 1))
        words = [functools.reduce(Factors.symmetric_difference, some) for some in itertools.chain.from_iterable(chosen)]
        return tuple(sorted(words, key=self.rank))

    def aliases(self, effect: Factors) -> tuple[Factors, ...]:
        """The effects whose sum with this one is all that the design can tell, shortest first."""
        return tuple(sorted((effect ^ word for word in self.defining_words), key=self.rank))

    def rank(self, factors: Factors) -> tuple[int, list[int]]:
        """Sorts sets of factors by size, then by the file's order."""
        return len(factors), sorted(map(self.factors.index, factors))

    def variant(self, away: Factors) -> str:
        """The name of the variant that takes these factors away."""
        left = [factor for factor in self.factors if factor not in away]
        if self.design in ("add_one_in", "both"):
            if not left:
                return "stripped"
            if len(left) == 1 and (self.design == "add_one_in" or len(away) > 1):
                return f"only {left[0]}"
        return " + ".join(f"no {factor}" for factor in self.factors if factor in away)
