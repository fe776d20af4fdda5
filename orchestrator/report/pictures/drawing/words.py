"""Words that a variant gains and loses: a bar for each, in nats."""

from __future__ import annotations

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from orchestrator.report.pictures.drawing import style
from orchestrator.report.pictures.figures import GREY, HELPS, HURTS, Words

_PALE = 0.4


def words_figure(words: Words) -> tuple[Figure, str | None]:
    """A panel for each comparison, the largest gain at the top; a sentence on panels that are left out."""
    panels = [*words.panels.items()][: style.MOST_PANELS]
    keys: list[Artist] = [Patch(color=HELPS, label="gained"), Patch(color=HURTS, label="lost")]
    if not all(bar.certain for _, bars in panels for bar in bars):
        keys.append(Patch(facecolor=GREY, alpha=_PALE, linewidth=0, label="pale: seeds disagree on the sign"))
    height = 0.3 + 0.15 * max(len(bars) for _, bars in panels)
    labels = ("nats saved on all occurrences of the word", "")
    figure, grid = style.panel_grid([title for title, _ in panels], keys, height, labels)
    for axes, (_, bars) in zip(grid, panels, strict=True):
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_yticks(range(len(bars)), [style.one_line(bar.text, 24) for bar in bars])
        axes.tick_params(axis="y", length=0, labelleft=True)
        axes.tick_params(axis="x", labelbottom=True)
        axes.spines["left"].set_visible(False)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.grid(axis="x", **style.GRID)
        for y, bar in enumerate(bars):
            colour, alpha = HELPS if bar.nats > 0 else HURTS, 1.0 if bar.certain else _PALE
            axes.barh(y, bar.nats, height=0.72, color=colour, alpha=alpha, linewidth=0)
    return figure, style.note_without_panel(len(words.panels))
