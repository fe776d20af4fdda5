"""Pages written from made-up trials, and what a Markdown reader makes of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from orchestrator.pictures.shown import Picture
from orchestrator.records import Records
from orchestrator.report import write_report
from orchestrator.sweep.designs import Ablation
from orchestrator.trial import Trial
from tests.orchestrator.report.test_tables import Number, Paper

PAPERS = {"full": Paper(Number(60.0, "recalled"), Number(57.3)), "b": Paper(Number(71.1), Number(68.9))}
HOSTILE = "a | b `c` <script>alert(1)</script>\n# _x_ [l](http://e.org) $y$ @z ```"


class NoArtist:
    """Draws nothing, remembers what it was asked for, and says of each picture its kind, or nothing."""

    def __init__(self, *, says: bool = False) -> None:
        self.asked: list[Picture] = []
        self._says = says

    def draw(self, folder: Path, picture: Picture) -> str | None:
        self.asked.append(picture)
        return f"Said of {type(picture).__name__}." if self._says else None


def write(
    tmp: Path, trials: list[Trial], *, pictures: bool = False, artist: NoArtist | None = None, **how: object
) -> str:
    """The page's text. Pictures have their own tests, and take a second each."""
    settings: dict[str, object] = {
        "name": "awd_ablation",
        "question": "Which parts carry the perplexity?",
        "scale": "laptop",
        "published_scale": False,
        "baseline": "full",
        "ablation": Ablation("none", ()),
        "trials": trials,
        "records": Records(tmp / "runs"),
        "published": PAPERS,
        "published_note": "Merity et al. 2017, table 4",
        "folder": tmp / "report",
        "command": "python -m orchestrator report sweeps/awd_ablation.yaml",
        **how,
    }
    if not pictures:
        settings["draw"] = (artist or NoArtist()).draw
    path = write_report(**settings).page  # type: ignore[arg-type]
    assert path == settings["folder"] / "report.md"  # type: ignore[operator]
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bnan\b|\bNone\b|Undefined", text)
    return text


def answer(text: str) -> str:
    """The bold sentence below the question."""
    return text.split("\n\n")[2].strip("*")


@dataclass
class Page:
    """What a Markdown reader makes of a page."""

    tables: list[list[int]]
    text: str
    links: list[str]


def render(text: str) -> Page:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    tables: list[list[int]] = []
    for token in tokens:
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append(0)
        elif token.type in ("td_open", "th_open"):
            tables[-1][-1] += 1
    inline = [child for token in tokens for child in token.children or []]
    blocks = {token.content.strip() for token in tokens if token.type == "html_block"}
    assert all(re.sub(r"</?details>|<summary>[\w ]+</summary>|\s", "", block) == "" for block in blocks)
    assert not [child for child in inline if child.type == "html_inline"]
    links = [str(child.attrs["href"]) for child in inline if child.type == "link_open"]
    return Page(tables, "\n".join(child.content for child in inline), links)
