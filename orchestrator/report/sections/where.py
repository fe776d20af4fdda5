"""What the page says of where variants gain or lose: by the words' frequency, and along the test text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.comparable import obstacles
from orchestrator.analysis.noise import Array
from orchestrator.analysis.outcomes import Outcome
from orchestrator.analysis.token_losses import CLASSES, TokenLosses
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import DifferenceRow, Frequency, Position
from orchestrator.words import NOTHING, Markdown, escape, listed, signed

PIECES = 16
"""The text is shown in so many pieces, each of `BLOCKS / PIECES` blocks."""


@dataclass(frozen=True)
class Differences:
    """Differences in nats per token, place by place: mean over seeds, lowest and highest seed; nan without tokens."""

    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class WhereRow:
    """A variant's differences to the baseline's mean, by how often training has the word, and by block of the text."""

    variant: str
    by_class: Differences
    by_block: Differences


@dataclass(frozen=True)
class Where:
    """A row for every compared variant, and what share of the test tokens each class of words has.

    `left_out` are variants whose training text makes other words frequent.
    """

    rows: tuple[WhereRow, ...]
    shares: Array
    left_out: tuple[str, ...]


def where_table(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> Where | None:
    """The rows in the order of the plan; None where the baseline, or every other variant, lacks losses by token.

    A variant that may not be compared with the baseline (`analysis.comparable`) is left out, but for one of another
    budget, and so is one whose training text makes other words frequent.
    """
    base = _losses(outcomes[baseline])
    if not base:
        return None
    classes, blocks = (
        np.mean([one.classes for one in base], axis=0),
        np.mean([_pieces(one) for one in base], axis=0),
    )
    rows, left_out = [], []
    for variant, group in outcomes.items():
        own = _losses(group)
        barred = any(obstacle.bars_interval for obstacle in obstacles(outcomes, [variant, baseline]))
        if variant == baseline or barred or not own:
            continue
        if not np.array_equal(own[0].shares, base[0].shares):
            left_out.append(variant)
            continue
        by_class = _differences([one.classes - classes for one in own])
        rows.append(WhereRow(variant, by_class, _differences([_pieces(one) - blocks for one in own])))
    return Where(tuple(rows), base[0].shares, tuple(left_out)) if rows else None


def _losses(group: Sequence[Outcome]) -> list[TokenLosses]:
    """Those of all seeds, or none."""
    found = [outcome.losses for outcome in group if outcome.losses is not None]
    return found if len(found) == len(group) else []


def _pieces(losses: TokenLosses) -> Array:
    """The mean losses of `PIECES` pieces of the text: all its blocks would be a thicket to look at."""
    return np.asarray(losses.blocks.reshape(PIECES, -1).mean(axis=1))


def _differences(seeds: Sequence[Array]) -> Differences:
    table = np.stack(seeds)
    return Differences(table.mean(axis=0), table.min(axis=0), table.max(axis=0))


def where_section(
    outcomes: Mapping[str, tuple[Outcome, ...]], order: Sequence[str], baseline: str, pictures: Pictures
) -> dict[str, object]:
    """The values for the page; draws `frequency` and `position`, variants in this order."""
    table = where_table(outcomes, baseline)
    if table is None:
        return {"where_rows": []}
    rows = sorted(table.rows, key=lambda row: order.index(row.variant))
    there = [k for k, share in enumerate(table.shares) if share > 0]  # a class without a test token says nothing
    classes, shares = [CLASSES[k] for k in there], [float(table.shares[k]) for k in there]
    by_class = [DifferenceRow(row.variant, *_ends(_of(row, there), outcomes[row.variant])) for row in rows]
    by_block = [DifferenceRow(row.variant, *_ends(row.by_block, outcomes[row.variant])) for row in rows]
    pictures.draw("where_cut", Frequency(by_class, classes, shares, baseline))
    pictures.draw("where_moved", Position(by_block, baseline))
    names = listed([escape(row.variant) for row in rows])
    return {
        "where_rows": [_cells(row.variant, _of(row, there)) for row in rows],
        "where_classes": classes,
        "where_shares": [f"{100 * share:.1f}%" for share in shares],
        "where_pieces": PIECES,
        "where_left_out": Markdown(listed([escape(variant) for variant in table.left_out])),
        "frequency_alt": Markdown(f"Difference in loss by how often the training text has the word, of {names}"),
        "position_alt": Markdown(f"Difference in loss along the test text, of {names}"),
    }


def _of(row: WhereRow, classes: Sequence[int]) -> Differences:
    """A variant's differences in these classes of words alone."""
    found, places = row.by_class, list(classes)
    return Differences(found.mean[places], found.low[places], found.high[places])


def _ends(found: Differences, group: Sequence[Outcome]) -> tuple[list[float], list[float], list[float]]:
    """Means, and the lowest and highest seeds, which a single seed does not have."""
    nothing = [math.nan] * len(found.mean)
    low, high = (nothing, nothing) if len(group) == 1 else (found.low.tolist(), found.high.tolist())
    return found.mean.tolist(), low, high


def _cells(variant: str, by_class: Differences) -> tuple[str, list[str]]:
    return variant, [NOTHING if math.isnan(value) else signed(value, 3) for value in by_class.mean]
