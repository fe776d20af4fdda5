"""The picture of words: a bar each, sorted as given, odd names, the same bytes."""

from __future__ import annotations

from pathlib import Path

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from orchestrator.report.pictures import save
from orchestrator.report.pictures.differences import WordBar, words
from orchestrator.report.pictures.style import HELPS, HURTS
from tests.orchestrator.report.pictures.test_differences import HOSTILE

BARS = [WordBar("<unk> (11,540)", 5047.3, True), WordBar("Sonic (75)", 40.0, False), WordBar(". (7,632)", -696.5, True)]


def test_every_word_is_a_bar_in_the_colour_of_its_sign() -> None:
    figure = words({"cache": BARS})
    (axes,) = figure.axes
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [bar.get_width() for bar in bars] == [5047.3, 40.0, -696.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == [bar.text for bar in BARS]
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [HELPS, HELPS, HURTS]
    assert [bar.get_alpha() for bar in bars] == [1.0, 0.4, 1.0]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["gained", "lost", "pale: seeds disagree on the sign"]


def test_odd_words_are_drawn_and_the_same_words_give_the_same_bytes(tmp_path: Path) -> None:
    odd = {"a": [WordBar(name, 1.0 - k, True) for k, name in enumerate(HOSTILE)], "_b": BARS}
    for name in ("one", "two"):
        save(tmp_path / name, words, odd)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
