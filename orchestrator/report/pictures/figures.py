"""What each picture shows, as plain values: whoever makes them needs no matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.analysis.curve import Curve


@dataclass(frozen=True)
class ForestRow:
    """A variant's difference to the baseline, nats per token, with a simultaneous interval where there is one.

    `verdict` as the page says it: hurts, helps, no effect ..., not decided ...; anything else is drawn as no verdict.
    `published_nats` is the difference in the papers, None where they give none.
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
    """`level` is the intervals' confidence in words, `95%`."""

    FILE: ClassVar[str] = "forest.svg"
    rows: Sequence[ForestRow]
    margin_nats: float
    baseline: str
    level: str


def in_order(rows: Sequence[ForestRow]) -> list[ForestRow]:
    """From the highest difference to the lowest; rows without a figure last."""
    figures = sorted((row for row in rows if not math.isnan(row.nats)), key=lambda row: (-row.nats, row.name))
    return figures + sorted((row for row in rows if math.isnan(row.nats)), key=lambda row: row.name)


@dataclass(frozen=True)
class VariantCurves:
    """A variant's curves, one a seed; `baseline` marks the one that the others are seen against.

    Unless `complete`, seeds are missing or ended early, and the picture gives no figure for the variant.
    `seed_numbers` are the seeds of `seeds`, in the same order; without them the seeds are not told apart by name.
    `turns` are the stages that train with other values than the one before.
    """

    name: str
    baseline: bool
    complete: bool
    seeds: tuple[Curve, ...]
    seed_numbers: tuple[int, ...] = ()
    turns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Overview:
    """`overview.svg`. `published` is a validation perplexity to draw as a line.

    So is `unigram`, the unigram model's, if it lies in the range of the curves.
    """

    FILE: ClassVar[str] = "overview.svg"
    variants: Sequence[VariantCurves]
    published: float | None
    unigram: float | None = None


@dataclass(frozen=True)
class Panels:
    """`variants.svg`."""

    FILE: ClassVar[str] = "variants.svg"
    variants: Sequence[VariantCurves]


@dataclass(frozen=True)
class FrequencyRow:
    """A variant's difference to the baseline, nats per token, by how often the training text has the word.

    `low` and `high` are the variant's lowest and highest seed; nan where there is one seed, or no token.
    """

    name: str
    nats: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Frequency:
    """`labels` name the classes, the rarest first, and `shares` are theirs of the test tokens."""

    FILE: ClassVar[str] = "frequency.svg"
    rows: Sequence[FrequencyRow]
    labels: Sequence[str]
    shares: Sequence[float]
    baseline: str


@dataclass(frozen=True)
class PositionRow:
    """A variant's difference to the baseline, nats per token, in consecutive pieces of the test text.

    `low` and `high` are the variant's lowest and highest seed, nan where there is one seed.
    """

    name: str
    nats: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Position:
    """`position.svg`."""

    FILE: ClassVar[str] = "position.svg"
    rows: Sequence[PositionRow]
    baseline: str


@dataclass(frozen=True)
class Reach:
    """The mean over the complete seeds, the lowest and the highest of them."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class HeadPoint:
    """A variant with its head's kind; `decoder_parameters` leaves a shared embedding out."""

    name: str
    kind: str
    decoder_parameters: int
    test_perplexity: Reach
    train_seconds: Reach


@dataclass(frozen=True)
class Heads:
    """`heads.svg`."""

    FILE: ClassVar[str] = "heads.svg"
    points: Sequence[HeadPoint]
    baseline: str


Picture = Forest | Overview | Panels | Frequency | Position | Heads
