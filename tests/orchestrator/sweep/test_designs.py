"""Designs against their definitions, and fractions against a search over all of their size."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.sweep.designs import Ablation, Design, Factors

ABC = ("A", "B", "C")
FRACTIONS = [
    (Ablation(design, tuple("ABCDEFGHIJ"[:count])), removed, count)
    for design, removed, counts in (("half", 1, range(3, 9)), ("quarter", 2, range(5, 10)), ("eighth", 3, range(6, 11)))
    for count in counts
]


def names(design: Design, *factors: str) -> list[str]:
    ablation = Ablation(design, factors)
    assert ablation.problem is None
    assert len(set(ablation.removals)) == len(ablation.removals)
    return [ablation.variant(away) for away in ablation.removals]


@pytest.mark.parametrize(
    ("design", "variants"),
    [
        ("none", []),
        ("leave_one_out", ["no A", "no B", "no C"]),
        ("add_one_in", ["stripped", "only A", "only B", "only C"]),
        ("both", ["no A", "no B", "no C", "stripped", "only A", "only B", "only C"]),
        ("pairs", ["no A", "no B", "no C", "no A + no B", "no A + no C", "no B + no C"]),
        ("factorial", ["no A", "no B", "no C", "no A + no B", "no A + no C", "no B + no C", "no A + no B + no C"]),
        ("half", ["no A + no B", "no A + no C", "no B + no C"]),
    ],
)
def test_the_variants_of_a_design(design: Design, variants: list[str]) -> None:
    assert names(design, *ABC) == variants


def test_of_two_components_the_same_removal_is_one_variant() -> None:
    assert names("both", "A", "B") == ["no A", "no B", "stripped"]
    assert names("add_one_in", "A", "B") == ["stripped", "only A", "only B"]
    assert names("pairs", "A", "B") == ["no A", "no B", "no A + no B"]


@pytest.mark.parametrize(
    ("design", "count", "rule"),
    [
        ("both", 1, "2 or more"),
        ("pairs", 0, "2 or more"),
        ("half", 2, "3 to 8"),
        ("half", 9, "3 to 8"),
        ("quarter", 4, "5 to 9"),
        ("eighth", 11, "6 to 10"),
        ("factorial", 11, "at most 10"),
    ],
)
def test_too_few_or_too_many_components(design: Design, count: int, rule: str) -> None:
    problem = Ablation(design, tuple(map(str, range(count)))).problem
    assert problem == f"design {design} needs {rule} components (a group counts as one), got {count}"


@pytest.mark.parametrize(("ablation", "removed", "count"), FRACTIONS, ids=lambda value: getattr(value, "design", value))
def test_a_fraction_is_regular_and_has_the_base(ablation: Ablation, removed: int, count: int) -> None:
    cells = {Factors(), *ablation.removals}
    assert len(cells) == 2 ** (count - removed)
    assert all(one ^ other in cells for one, other in itertools.combinations(cells, 2))
    present = [{f: -1 if f in away else 1 for f in ablation.factors} for away in cells]
    words = []  # the columns that are constant, found without the generators
    for n in range(1, count + 1):
        for some in itertools.combinations(ablation.factors, n):
            products = {_product(run, some) for run in present}
            words += [frozenset(some)] if products == {1} else []
    assert ablation.defining_words == tuple(words)


def _product(run: dict[str, int], some: tuple[str, ...]) -> int:
    sign = 1
    for factor in some:
        sign *= run[factor]
    return sign


@pytest.mark.parametrize(("ablation", "removed", "count"), FRACTIONS, ids=lambda value: getattr(value, "design", value))
def test_a_fraction_has_the_highest_resolution(ablation: Ablation, removed: int, count: int) -> None:
    # A fraction is, up to the factors' order, the number of factors for each set of generators that they are in.
    memberships = range(2**removed)
    best = 0
    for dividers in itertools.combinations(range(count + len(memberships) - 1), len(memberships) - 1):
        edges = (-1, *dividers, count + len(memberships) - 1)
        sizes = [high - low - 1 for low, high in itertools.pairwise(edges)]
        lengths = (
            sum(sizes[m] for m in memberships if (m & chosen).bit_count() % 2) for chosen in memberships if chosen
        )
        best = max(best, min(lengths))
    assert len(ablation.defining_words[0]) == best


def test_aliases() -> None:
    quarter = Ablation("quarter", tuple("ABCDE"))
    assert ["".join(sorted(word)) for word in quarter.defining_words] == ["ABD", "ACE", "BCDE"]
    assert ["".join(sorted(alias)) for alias in quarter.aliases(Factors("A"))] == ["BD", "CE", "ABCDE"]
    assert Ablation("factorial", ABC).aliases(Factors("A")) == ()
