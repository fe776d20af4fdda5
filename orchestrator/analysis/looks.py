"""Looks: how often the same comparisons are judged while seeds are added, and how they share the error."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from lm.files import read_regular, write_text

LEVEL_OF_ERROR = 0.05
"""How often any of a page's verdicts may be wrong: their family-wise error."""
GROWTH = 6.0
"""A planned look may err in proportion to this power of its number of seeds: early looks nearly never."""
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which comparisons are judged, and the seeds of other pages that judged some of them.

    Every page that was read before seeds were added is a look too: if seeds are added until a verdict comes, more than
    5% of such verdicts are wrong. `earlier` has the seeds of each such page.
    """

    planned: tuple[int, ...] = (0,)
    earlier: tuple[tuple[int, ...], ...] = field(default=())

    def error(self, seeds: int) -> float:
        """How often a page with `seeds` seeds of a variant may have a wrong verdict; at all planned looks together 5%.

        The error is spent unequally, as a sequential trial does (Lan and DeMets 1983, "Discrete sequential boundaries
        for clinical trials", Biometrika 70), and the looks are combined by Bonferroni's inequality. Each earlier page
        has taken as much as this one.
        """
        weights = [math.pow(max(1, look), GROWTH) for look in self.planned]
        index = next((k for k, look in enumerate(self.planned) if look >= seeds), len(self.planned) - 1)
        return LEVEL_OF_ERROR * (weights[index] / sum(weights)) / (1 + len(self.earlier))


def read_looks(path: Path, planned: Sequence[int], seeds: Sequence[int]) -> Looks:
    """The looks of a sweep with these seeds, of which the ledger has the pages; ValueError for a damaged ledger."""
    this = tuple(sorted(seeds))
    others = tuple(page for page in dict.fromkeys(_pages(path)) if page != this and set(page) & set(this))
    return Looks(tuple(planned), others)


def _pages(path: Path) -> list[tuple[int, ...]]:
    """The seeds of each page in a ledger; none if there is no ledger."""
    try:
        lines = read_regular(path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    pages = []
    for number, line in enumerate(lines, start=1):
        try:
            pages.append(tuple(int(seed) for seed in json.loads(line)["seeds"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f'{path}:{number}: expected a line such as {{"seeds": [1, 2, 3]}}, got {line!r}'
            ) from error
    return pages


def add_looks(ledger: Path, runs: Path) -> None:
    """Add the pages of a ledger to that of the same sweep in other runs; errors of `read_looks` and `note_look`."""
    for seeds in _pages(ledger):
        note_look(runs / ledger.parent.name / ledger.name, seeds)


def note_look(path: Path, seeds: Sequence[int]) -> None:
    """Add a page with these seeds to the ledger, once; OSError if it cannot be written."""
    line = json.dumps({"seeds": sorted(seeds)})
    with FileLock(f"{path}.lock", timeout=_PATIENCE_SECONDS):  # commands with other seeds share the ledger
        lines = read_regular(path).decode().splitlines() if path.exists() else []
        if line not in lines:
            write_text(path, "\n".join([*lines, line]) + "\n")
