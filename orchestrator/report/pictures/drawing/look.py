"""How every picture looks, and how it is written: the same input gives the same bytes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap

import matplotlib as mpl
import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from lm.files import atomic
from orchestrator.words import number, significant

MOST_TOLD = 100
"""So many letters of a name stand in a sentence."""


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib's own defaults, whatever the user's file says, with ours on top."""
    with style.context("default", after_reset=True), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; the page beside the picture holds the name as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        mpl.rcParams["svg.hashsalt"] = "report"
        mpl.rcParams["text.parse_math"] = False
        mpl.rcParams["legend.frameon"] = False
        mpl.rcParams["font.size"] = 9
        yield


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write the figure as SVG."""
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
        figure.set_layout_engine(None)  # with an engine of any kind, even "none", it is drawn twice
    with atomic(folder / f"{name}.svg") as path:
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def place(figure: Figure, left: float, right: float, above: float, below: float) -> None:
    """Leave so many inches around all panels. By hand: to find them itself, matplotlib measures every letter twice."""
    width, height = figure.get_size_inches()
    least = min(1.0, 0.8 * width / (left + right))  # names of strange letters may be wider than the picture
    figure.subplots_adjust(least * left / width, below / height, 1 - least * right / width, 1 - above / height)


def width_of(texts: Iterable[str], size: float) -> float:
    """The inches that the longest line of some texts takes, in letters of so many points."""
    letters = FontProperties(size=size)
    lines = [line for text in texts for line in text.splitlines()]
    widths = (text_to_path.get_text_width_height_descent(line, letters, ismath=False)[0] for line in lines)
    return max(widths, default=0.0) / 72


def legend_height(entries: Sequence[Artist], columns: int, title: bool = False) -> float:
    """The inches that a legend of small letters takes; it is filled column by column."""
    heights = [0.165 + 0.13 * str(entry.get_label()).count("\n") for entry in entries]
    tallest = max(float(column.sum()) for column in np.array_split(heights, columns))
    return tallest + 0.165 * title + 0.12 if entries else 0.0


def ticks(low: float, high: float) -> list[float]:
    """Round numbers, about evenly spaced on a log scale; a plain log axis may show none within a factor of ten."""
    steps: tuple[tuple[float, ...], ...] = (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
        tuple(np.arange(1, 10, 0.5)),
    )
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in steps:
        rounds = [factor * 10.0**decade for decade in decades for factor in factors]
        inside = sorted(value for value in rounds if low <= value <= high)
        if len(inside) >= 4:
            return inside[:: 1 + len(inside) // 9]
    return [float(tick) for tick in MaxNLocator(nbins=6).tick_values(low, high) if low <= tick <= high]


def figure_of(value: float) -> str:
    """A perplexity in a sentence or a legend: four digits, from a million on with an exponent."""
    return number(value) if value >= 1e6 else significant(value)


def plain(name: str, limit: int) -> str:
    """A name as one short line of literal text; matplotlib would hide a legend entry with a leading `_`."""
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(name.split()))
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    return "\u200b" + line if line.startswith("_") else line


def wrapped(name: str, width: int, most: int) -> str:
    """A name in so many lines of literal text at most, cut with an ellipsis where it is longer."""
    lines = wrap(plain(name, most * width), width, break_on_hyphens=False)
    if len(lines) > most:
        lines[most - 1 :] = [plain(" ".join(lines[most - 1 :]), width)]
    return "\n".join(lines)
