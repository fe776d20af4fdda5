"""What the page says of where variants gain or lose: by the words' frequency, and along the test text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.comparison import obstacles
from orchestrator.analysis.noise import Array
from orchestrator.analysis.outcomes import Group, Outcomes
from orchestrator.analysis.token_losses import CLASSES, TokenLosses
from orchestrator.report.markdown import names
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import DifferenceRow, Frequency, Position
from orchestrator.words import Markdown, signed

PIECES = 16
"""The text is shown in as many pieces, each of `BLOCKS / PIECES` blocks."""


@dataclass(frozen=True)
class Differences:
    """Differences in nats per token, place by place: mean over seeds, lowest and highest seed; nan without tokens."""

    mean: Array
    low: Array
    high: Array

    def at(self, places: Sequence[int]) -> Differences:
        """The differences at these places alone."""
        return Differences(self.mean[list(places)], self.low[list(places)], self.high[list(places)])


@dataclass(frozen=True)
class WhereRow:
    """A variant's differences to the baseline's mean, by how often training has the word, and by block of the text."""

    variant: str
    by_class: Differences
    by_block: Differences

    @property
    def cells(self) -> list[str | None]:
        """The mean differences by class, None without tokens."""
        return [None if math.isnan(value) else signed(value, 3) for value in self.by_class.mean]


@dataclass(frozen=True)
class Where:
    """A row for every compared variant; the classes of words that the test text has, and their shares of its tokens.

    `left_out` are variants whose training text makes other words frequent.
    """

    rows: tuple[WhereRow, ...]
    classes: tuple[str, ...]
    shares: tuple[float, ...]
    left_out: tuple[str, ...]
    pieces: int = PIECES

    @property
    def variants(self) -> Markdown:
        """The variants that the pictures show."""
        return names(row.variant for row in self.rows)


def where_table(outcomes: Outcomes) -> Where | None:
    """The rows in the order of the plan; None if the baseline, or every other variant, lacks losses by token.

    A variant that may not be compared with the baseline (`analysis.comparison`) is left out, unless only its budget
    is another, and so is one whose training text makes other words frequent.
    """
    base = _losses(outcomes.of_baseline)
    if not base:
        return None
    shares = base[0].shares
    present = [k for k, share in enumerate(shares) if share > 0]  # a class without a test token says nothing
    classes = np.mean([losses.classes for losses in base], axis=0)
    blocks = np.mean([_pieces(losses) for losses in base], axis=0)
    rows, left_out = [], []
    for variant, group in outcomes.items():
        seeds = _losses(group)
        barred = any(obstacle.bars_interval for obstacle in obstacles(outcomes, [variant, outcomes.baseline]))
        if variant == outcomes.baseline or barred or not seeds:
            continue
        if not np.array_equal(seeds[0].shares, shares):
            left_out.append(variant)
            continue
        by_class = _differences([losses.classes - classes for losses in seeds]).at(present)
        rows.append(WhereRow(variant, by_class, _differences([_pieces(losses) - blocks for losses in seeds])))
    if not rows:
        return None
    return Where(
        rows=tuple(rows),
        classes=tuple(CLASSES[k] for k in present),
        shares=tuple(float(shares[k]) for k in present),
        left_out=tuple(left_out),
    )


def where_section(outcomes: Outcomes, order: Sequence[str], pictures: Pictures) -> Where | None:
    """The table, variants in this order; draws `frequency` and `position`. None without losses by token."""
    table = where_table(outcomes)
    if table is None:
        return None
    rows = sorted(table.rows, key=lambda row: order.index(row.variant))
    by_class = [DifferenceRow(row.variant, *_ends(row.by_class, outcomes[row.variant])) for row in rows]
    by_block = [DifferenceRow(row.variant, *_ends(row.by_block, outcomes[row.variant])) for row in rows]
    pictures.draw("where_cut", Frequency(by_class, table.classes, table.shares, outcomes.baseline))
    pictures.draw("where_moved", Position(by_block, outcomes.baseline))
    return Where(tuple(rows), table.classes, table.shares, table.left_out)


def _losses(group: Group) -> list[TokenLosses]:
    """The losses of all seeds, or none."""
    losses = [outcome.losses for outcome in group if outcome.losses is not None]
    return losses if len(losses) == len(group) else []


def _pieces(losses: TokenLosses) -> Array:
    """The mean losses of `PIECES` pieces of the text: all its blocks would be a thicket to look at."""
    return np.asarray(losses.blocks.reshape(PIECES, -1).mean(axis=1))


def _differences(seeds: Sequence[Array]) -> Differences:
    table = np.stack(seeds)
    return Differences(table.mean(axis=0), table.min(axis=0), table.max(axis=0))


def _ends(differences: Differences, group: Group) -> tuple[list[float], list[float], list[float]]:
    """Means, and the lowest and highest seeds, which a single seed does not have."""
    nothing = [math.nan] * len(differences.mean)
    low, high = (nothing, nothing) if len(group) == 1 else (differences.low.tolist(), differences.high.tolist())
    return differences.mean.tolist(), low, high
