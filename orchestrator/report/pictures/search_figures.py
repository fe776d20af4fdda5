"""What each figure of a search shows, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True)
class SearchPoint:
    """A trial of a search with its best validation perplexity; `values` by path, of choices the option's name.

    `curve` has the epochs with the best perplexity until each. Unless `complete`, it was stopped or is under way.
    """

    search: str
    group: str
    number: int
    perplexity: float
    complete: bool
    stopped: bool
    values: Mapping[str, float | str]
    curve: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class SearchPoints:
    """Trials of searches; a group has a colour, and with `heads` it is the kind of a trial's head."""

    points: Sequence[SearchPoint]
    heads: bool

    @property
    def groups(self) -> list[str]:
        """What colours stand for, in the order of the trials."""
        return list(dict.fromkeys(point.group for point in self.points))


@dataclass(frozen=True)
class SearchCourse:
    """Validation perplexity of every trial, and the best complete one so far in each search."""

    FILE: ClassVar[str] = "search.svg"
    trials: SearchPoints


@dataclass(frozen=True)
class SearchAxis:
    """A searched value: the `options` of a choice, or the `ends` of a number's range."""

    path: str
    scale: Literal["linear", "log"] = "linear"
    options: Sequence[str] = ()
    ends: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Slices:
    """Validation perplexity against each searched value, a panel each."""

    FILE: ClassVar[str] = "slices.svg"
    trials: SearchPoints
    axes: Sequence[SearchAxis]


@dataclass(frozen=True)
class Rungs:
    """The best validation perplexity until each epoch, and where trials were stopped: at these epochs."""

    FILE: ClassVar[str] = "rungs.svg"
    trials: SearchPoints
    epochs: Sequence[int]


@dataclass(frozen=True)
class FrontPoint:
    """A complete trial with its two objectives, `y` the first; `name` says what it is if it is on the front."""

    number: int
    x: float
    y: float
    name: str | None


@dataclass(frozen=True)
class Front:
    """Two objectives against each other, and the Pareto front; both are small at their best."""

    FILE: ClassVar[str] = "front.svg"
    points: Sequence[FrontPoint]
    x_label: str
    y_label: str
