"""What the page says of where variants gain or lose: by the words' frequency, and along the test text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from orchestrator.analysis.outcomes import Outcome
from orchestrator.analysis.token_losses import CLASSES
from orchestrator.pictures import Frequency, FrequencyRow, Pictures, Position, PositionRow
from orchestrator.report.where_tables import PIECES, Differences, WhereRow, where_table
from orchestrator.words import NOTHING, Markdown, escape, listed, signed


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
    by_class = [FrequencyRow(row.variant, *_ends(_of(row, there), outcomes[row.variant])) for row in rows]
    by_block = [PositionRow(row.variant, *_ends(row.by_block, outcomes[row.variant])) for row in rows]
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
