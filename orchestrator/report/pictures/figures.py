"""What each figure of a report shows, as plain values, and the colours that all of them share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.analysis.curve import Curve
from orchestrator.report.pictures.search_figures import Front, Rungs, SearchCourse, Slices

# Paul Tol's "muted" scheme: nine colours that differ with every common kind of colour blindness.
COLOURS = ("#CC6677", "#332288", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#DDCC77")
DASHES = ("solid", "dashed", "dotted", "dashdot")  # names that matplotlib and Bokeh share
GREY = "#8c8c8c"
# Of a change in perplexity: rose and indigo differ in hue for every eye, and in lightness without colour.
HURTS, HELPS = COLOURS[:2]


def line_styles(variants: Iterable[str], baseline: str | None) -> dict[str, tuple[str, str]]:
    """Colour and dash by variant, for the plan's order: the baseline is black and solid, up to 36 others differ."""
    others = [name for name in variants if name != baseline]
    styles = {name: (COLOURS[k % len(COLOURS)], DASHES[k % len(DASHES)]) for k, name in enumerate(others)}
    return styles if baseline is None else {baseline: ("#000000", "solid")} | styles


@dataclass(frozen=True)
class ForestRow:
    """A variant's difference to the baseline, nats per token, with a simultaneous interval if there is one.

    `verdict` is as the page says it; `published_nats` is None if the papers give none, `recalled` if it is from memory.
    """

    name: str
    nats: float
    low: float | None
    high: float | None
    verdict: str
    published_nats: float | None
    recalled: bool


@dataclass(frozen=True)
class Forest:
    """Every variant's difference to the baseline; `level` is the intervals' confidence in words, `95%`."""

    FILE: ClassVar[str] = "forest.svg"
    rows: Sequence[ForestRow]
    margin_nats: float
    baseline: str
    level: str


def in_order(rows: Sequence[ForestRow]) -> list[ForestRow]:
    """From the highest difference to the lowest; rows without a difference last."""
    return sorted(rows, key=lambda row: (math.inf if math.isnan(row.nats) else -row.nats, row.name))


@dataclass(frozen=True)
class VariantCurves:
    """A variant's learning curves, one per seed; `turns` are stages with other values than the stage before.

    Unless `complete`, seeds are missing or ended early, and the figures give no number for the variant.
    """

    name: str
    baseline: bool
    complete: bool
    seeds: tuple[Curve, ...]
    seed_numbers: tuple[int, ...]
    turns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Overview:
    """Learning curves of all variants; `published` and `unigram` are validation perplexities to draw as lines."""

    FILE: ClassVar[str] = "overview.svg"
    variants: Sequence[VariantCurves]
    published: float | None
    unigram: float | None = None


@dataclass(frozen=True)
class Panels:
    """Learning curves with a panel for each variant."""

    FILE: ClassVar[str] = "variants.svg"
    variants: Sequence[VariantCurves]


@dataclass(frozen=True)
class DifferenceRow:
    """A variant's differences to the baseline, nats per token, by part of the text, and its lowest and highest seed."""

    name: str
    nats: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Frequency:
    """Differences by how often training has the word: classes, the rarest first, and their shares of the tokens."""

    FILE: ClassVar[str] = "frequency.svg"
    rows: Sequence[DifferenceRow]
    labels: Sequence[str]
    shares: Sequence[float]
    baseline: str


@dataclass(frozen=True)
class Position:
    """Differences in consecutive pieces of the test text."""

    FILE: ClassVar[str] = "position.svg"
    rows: Sequence[DifferenceRow]
    baseline: str


@dataclass(frozen=True)
class SeedRange:
    """A measure's mean over the complete seeds, its lowest and its highest seed."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class HeadPoint:
    """A variant with the kind of its head; `decoder_parameters` leaves a shared embedding out."""

    name: str
    kind: str
    decoder_parameters: int
    test_perplexity: SeedRange
    train_seconds: SeedRange


@dataclass(frozen=True)
class Heads:
    """Test perplexity against the size of the decoder and the time of training."""

    FILE: ClassVar[str] = "heads.svg"
    points: Sequence[HeadPoint]
    baseline: str


@dataclass(frozen=True)
class WordBar:
    """A word, what is saved on it, nats, summed over its occurrences, and whether all seeds agree on the sign."""

    text: str
    nats: float
    certain: bool


@dataclass(frozen=True)
class Words:
    """Words on which most is saved and lost, a panel for each title, the largest gain first."""

    FILE: ClassVar[str] = "words.svg"
    panels: Mapping[str, Sequence[WordBar]]


@dataclass(frozen=True)
class Line:
    """Values at places along x, in ascending order: the mean over seeds, the lowest and the highest."""

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @classmethod
    def over_seeds(cls, name: str, x: Sequence[float], seeds: Sequence[Sequence[float]]) -> Line:
        """Of the values of each seed, all at the same places."""
        columns = list(zip(*seeds, strict=True))
        return cls(name, x, [sum(c) / len(c) for c in columns], [min(c) for c in columns], [max(c) for c in columns])


@dataclass(frozen=True)
class LinePanel:
    """Lines over a number; `levels` are horizontal lines with their labels, `low` is the lower end of y if fixed.

    `ticks`, if there are any, name the places 0, 1, ... of x.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    low: float | None = None
    levels: Sequence[tuple[float, str]] = ()
    ticks: Sequence[str] = ()


@dataclass(frozen=True)
class Lines:
    """Panels of lines, a colour for each name; `caption` is what the page says below."""

    FILE: str
    panels: Sequence[LinePanel]
    baseline: str
    caption: str


Picture = (
    Words | Forest | Overview | Panels | Frequency | Position | Heads | Lines | SearchCourse | Slices | Rungs | Front
)
