"""Which value a coordinate stands for: both ends are drawn, and each value has its share of the unit interval."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from orchestrator.sweep.draws import value_of
from orchestrator.sweep.space import Choice, Dimension, Integer, LogUniform, Uniform

POINTS = [(i + 0.5) / 12_000 for i in range(12_000)]


@pytest.mark.parametrize(
    ("dimension", "values"),
    [
        (Integer(kind="integer", low=4, high=6), [4, 5, 6]),
        (Choice(kind="choice", among=(1, 2, 3)), ["1", "2", "3"]),
    ],
    ids=["integer", "choice"],
)
def test_every_value_has_the_same_share(dimension: Dimension, values: list[object]) -> None:
    assert Counter(value_of(dimension, x) for x in POINTS) == dict.fromkeys(values, 4_000)


def test_a_whole_number_on_a_log_scale_has_the_share_of_its_unit() -> None:
    shares = Counter(value_of(Integer(kind="integer", low=1, high=4, log=True), x) for x in POINTS)
    for value in (1, 2, 3, 4):
        share = math.log((value + 0.5) / (value - 0.5)) / math.log(4.5 / 0.5)
        assert shares[value] / len(POINTS) == pytest.approx(share, abs=1e-3)


def test_numbers_reach_from_end_to_end() -> None:
    plain, log = Uniform(kind="uniform", low=-1.0, high=3.0), LogUniform(kind="log_uniform", low=0.1, high=10.0)
    assert [value_of(plain, x) for x in (0.0, 0.5, 1.0)] == [-1.0, 1.0, 3.0]
    assert [value_of(log, x) for x in (0.0, 0.5, 1.0)] == pytest.approx([0.1, 1.0, 10.0])
