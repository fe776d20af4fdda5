"""Looks: how often the same comparisons are judged while seeds are added, and how they share the error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
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
    5% of such verdicts are wrong. `earlier` has each such page's seeds of a variant.
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


def read_looks(
    path: Path, planned: Sequence[int], seeds: Sequence[int], variant_seeds: Sequence[int] | None = None
) -> Looks:
    """The looks at a baseline with `seeds` and variants with `variant_seeds` (None: the same) that its ledger has.

    ValueError for a damaged ledger.
    """
    this = _Page.of(seeds, variant_seeds)
    others = [page for page in dict.fromkeys(_pages(path)) if page != this and set(page.baseline) & set(this.baseline)]
    return Looks(tuple(planned), tuple(page.variants for page in others))


@dataclass(frozen=True)
class _Page:
    """The seeds of the baseline, and those of each other variant."""

    baseline: tuple[int, ...]
    variants: tuple[int, ...]

    @classmethod
    def of(cls, seeds: Iterable[int], variant_seeds: Iterable[int] | None) -> _Page:
        baseline = tuple(sorted(int(seed) for seed in seeds))
        return cls(baseline, baseline if variant_seeds is None else tuple(sorted(int(seed) for seed in variant_seeds)))

    def line(self) -> str:
        """As the ledger has it: without `variants` if they have the baseline's seeds."""
        others = {} if self.variants == self.baseline else {"variants": self.variants}
        return json.dumps({"seeds": self.baseline, **others})


def _pages(path: Path) -> list[_Page]:
    """The pages in a ledger; none if there is no ledger."""
    try:
        lines = read_regular(path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    pages = []
    for number, line in enumerate(lines, start=1):
        try:
            page = json.loads(line)
            pages.append(_Page.of(page["seeds"], page.get("variants")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f'{path}:{number}: expected a line such as {{"seeds": [1, 2, 3]}}, got {line!r}'
            ) from error
    return pages


def add_looks(ledger: Path, runs: Path) -> None:
    """Add the pages of a ledger to that of the same sweep in other runs; errors of `read_looks` and `note_look`."""
    for page in _pages(ledger):
        note_look(runs / ledger.parent.name / ledger.name, page.baseline, page.variants)


def note_look(path: Path, seeds: Sequence[int], variant_seeds: Sequence[int] | None = None) -> None:
    """Add a page with these seeds to the ledger, once; OSError if it cannot be written."""
    line = _Page.of(seeds, variant_seeds).line()
    with FileLock(f"{path}.lock", timeout=_PATIENCE_SECONDS):  # commands with other seeds share the ledger
        lines = read_regular(path).decode().splitlines() if path.exists() else []
        if line not in lines:
            write_text(path, "\n".join([*lines, line]) + "\n")
