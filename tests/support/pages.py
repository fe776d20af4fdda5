"""Pages written from made-up trials, and what a Markdown reader makes of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from matplotlib.figure import Figure

from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.analysis.statistics import MARGIN
from orchestrator.report.page import ReportInput, write_report
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.designs import Ablation
from orchestrator.sweep.published import Published
from orchestrator.sweep.scaled import Resources
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import number

PAPERS = {"full": Published(number(60.0, "recalled"), number(57.3)), "b": Published(number(71.1), number(68.9))}
HOSTILE = "a | b `c` <script>alert(1)</script>\n# _x_ [l](http://e.org) $y$ @z ```"


class NoArtist:
    """Draws nothing, and remembers by file what its figure was to show."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[Any, ...]] = {}

    def draw(self, path: Path, figure: Callable[..., Figure], *shown: Any) -> None:
        self.asked[path.name] = shown


def a_sweep(**how: Any) -> ScaledSweep:
    """A sweep of which a page shows the name, the question and what is given here."""
    settings: dict[str, Any] = {
        "name": "awd_ablation",
        "question": "Which parts carry the perplexity?",
        "scale": "laptop",
        "published_scale": False,
        "ablation": Ablation("none", ()),
        "margin": MARGIN,
        "varies": (),
        **how,
    }
    unseen = {"published": (), "published_corpus": "ptb", "variants": (), "seeds": (), "variant_seeds": (), "looks": ()}
    rest = {"most_trials": None, "searching": None, "resources": Resources(), "scales_without_gpu": ()}
    return ScaledSweep(**{**unseen, **rest, **settings})


def write(tmp: Path, trials: list[Trial], *, pictures: bool = False, artist: NoArtist | None = None, **how: Any) -> str:
    """The page's text. Pictures have their own tests, and take a second each."""
    records = Records(tmp / "runs")
    of_sweep, of_report = ({field.name for field in dataclasses.fields(kind)} for kind in (ScaledSweep, ReportInput))
    of_sweep -= of_report
    settings: dict[str, Any] = {
        "sweep": a_sweep(**{name: value for name, value in how.items() if name in of_sweep}),
        "outcomes": read_outcomes(trials, records, how.pop("baseline", "full")),
        "records": records,
        "published": PAPERS,
        "published_note": "Merity et al. 2017, table 4",
        "command": "python -m orchestrator report sweeps/awd_ablation.yaml",
        **{name: value for name, value in how.items() if name not in of_sweep},
    }
    folder = settings.pop("folder", tmp / "report")
    drawing = {} if pictures else {"draw": (artist or NoArtist()).draw}
    keeping = {"if_fuller": settings.pop("if_fuller")} if "if_fuller" in settings else {}
    path = write_report(ReportInput(**settings), folder, **drawing, **keeping).page
    assert path == folder / "report.md"
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bnan\b|\bNone\b|Undefined", text)
    assert misread(text) == []
    return text


def answer(text: str) -> str:
    """The bold sentence below the question."""
    return text.split("\n\n")[2].strip("*")


def misread(text: str) -> list[str]:
    """What a Markdown reader with tables, as GitHub's is, does not see as it is meant, of any page.

    A line below a table that an empty line does not part from it is a row to the reader, with one cell; a table line
    below text is text; a heading with nothing below it is a section that lost its text.
    """
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    wrong, lines = [], text.splitlines()
    for place, token in enumerate(tokens):
        first = lines[token.map[0]] if token.map else ""
        match token.type:
            case "tr_open" if not first.startswith("|"):
                wrong.append(f"a row of a table: {first}")
            case "paragraph_open" if any(line.startswith("|") for line in lines[slice(*token.map or ())]):
                wrong.append(f"a paragraph: {first}")
            case "heading_close" if _is_empty(tokens[place + 1 :], int(token.tag[1:])):
                wrong.append(f"an empty section: {tokens[place - 1].content}")
    return wrong


def _is_empty(following: Sequence[Token], level: int) -> bool:
    """Whether a section ends with its heading; it may begin with a section of a lower level."""
    after = next(iter(following), None)
    return after is None or (after.type == "heading_open" and int(after.tag[1:]) <= level)


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
