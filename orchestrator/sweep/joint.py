"""What is wrong with taking components away together: groups, and components that contradict each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from orchestrator.errors import nearest
from orchestrator.sweep.problems import Problem
from orchestrator.sweep.types import Sweep


def group_problems(sweep: Sweep) -> Iterator[Problem]:
    """Groups that are called like a component, or name one that is not there or is in a group already."""
    taken: dict[str, str] = {}
    for group, members in sweep.groups.items():
        if group in sweep.components:
            yield Problem(("groups", group), f"the name {group!r} is taken: it is a component")
        for i, member in enumerate(members):
            place = ("groups", group, i)
            if member not in sweep.components:
                yield Problem(place, f"unknown component {member!r}{nearest(member, sweep.components)}")
            elif member in taken:
                where = "twice in this group" if taken[member] == group else f"in group {taken[member]!r} too"
                yield Problem(place, f"component {member!r} is {where}")
            taken.setdefault(member, group)


def overlaps(sweep: Sweep, scale_name: str) -> Iterator[Problem]:
    """Components taken away together that write different values to one place: both together would mean nothing."""
    alone = {str(c.place[-2]): c for c in sweep.changes(scale_name) if c.is_component and not c.is_joint}
    removals = [set(sweep.together(away)) for away in sweep.ablation.removals]
    for (first, one), (second, other) in itertools.combinations(alone.items(), 2):
        if not any({first, second} <= together for together in removals):
            continue
        for (theirs, value), (key, own) in itertools.product(one.overrides.items(), other.overrides.items()):
            if (within(key, theirs) or within(theirs, key)) and (key, own) != (theirs, value):
                text = f"component {first!r} writes {theirs!r} otherwise, and both are taken away together"
                yield Problem((*other.place, key), text)


def within(key: str, path: str) -> bool:
    """Whether a dotted key is a path or lies inside it."""
    return f"{key}.".startswith(f"{path}.")
