"""The colours and dashes of every picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Paul Tol's "muted" scheme: nine colours told apart with every common kind of colour blindness.
COLOURS = ("#CC6677", "#332288", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#DDCC77")
GREY = "#8c8c8c"
# Of a change in perplexity: rose and indigo differ in hue for every eye, and in lightness without colour.
HURTS, HELPS = COLOURS[0], COLOURS[1]


@dataclass(frozen=True)
class Dash:
    """One dash, as matplotlib takes it and as Bokeh names it."""

    matplotlib: object
    bokeh: str


# Lines that a colour-blind reader, or a page in grey, still tells apart.
DASHES = (
    Dash("-", "solid"),
    Dash((0, (5, 1.5)), "dashed"),
    Dash((0, (1.5, 1.2)), "dotted"),
    Dash((0, (6, 1.5, 1.5, 1.5)), "dotdash"),
)
MOST_APART = 36
"""Of so many variants no two share both colour and dash: nine and four have no common factor."""


def looks(others: Iterable[str]) -> dict[str, tuple[str, Dash]]:
    """Colour and dash of each variant but the baseline, given in the plan's order; the same in every picture."""
    return {name: (COLOURS[k % len(COLOURS)], DASHES[k % len(DASHES)]) for k, name in enumerate(others)}
