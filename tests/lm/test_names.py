"""The valid name that a wrong one probably meant."""

from __future__ import annotations

import pytest

from lm.names import closest

NAMES = ["learning_rate", "learning_rate_decay", "weight_decay", "weight_drop", "Clip"]


@pytest.mark.parametrize(
    ("got", "meant"),
    [
        ("learning_rat", "learning_rate"),
        ("clip", "Clip"),
        ("cl", "Clip"),
        ("lr", "learning_rate"),
        ("LRD", "learning_rate_decay"),
        ("wd", None),  # two names have these initials
        ("l", None),
        ("momentum", None),
    ],
)
def test_a_name_is_meant_by_likeness_or_alone_by_its_beginning_or_its_initials(got: str, meant: str | None) -> None:
    assert closest(got, NAMES) == meant
