"""`report.html`: the Markdown's text, nothing from a network, nothing that a name could run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lm.record import curve_table
from orchestrator.analysis.outcomes import Outcome, Outcomes
from orchestrator.report import html
from orchestrator.report.html import HoverCurves, hover_curves
from orchestrator.report.pictures.style import line_styles
from tests.support.factories import CACHE, begin, make_curve, make_trial, settle
from tests.support.pages import HOSTILE, render, write

NAMES = (HOSTILE, "</script><script>alert(1)</script>", '" onmouseover="alert(1)', "<img src=x onerror=alert(1)>")
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "nav", "a", "main", "section", "div", "label", "input", "span"),
    *("button", "p", "script", "h1", "h2", "h3", "blockquote", "strong", "em", "code", "pre", "img", "details"),
    *("summary", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"),
}


@dataclass
class Seen(HTMLParser):
    """What a browser would make of the page."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    _inside: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag in ("script", "td", "th"):
            self._inside = tag
            (self.scripts if tag == "script" else self.cells).append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            (self.scripts if self._inside == "script" else self.cells)[-1] += data


def seen(folder: Path) -> Seen:
    page = Seen()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    return page


@pytest.fixture
def page(tmp_path: Path) -> tuple[str, Seen]:
    """A report with hostile names everywhere, as Markdown and as HTML."""
    trials = []
    for count, name in enumerate(("full", *NAMES)):
        for seed in (1, 2):
            trial = make_trial(name, seed, change=name, batch_size=20 + count)
            trials.append(trial)
            settle(tmp_path / "runs", trial, 60.0 + count + seed / 10)
    failed = make_trial("full", 3)
    settle(tmp_path / "runs", failed, 60.0, status="failed", reason=NAMES[1])
    text = write(
        tmp_path, [*trials, failed], question=NAMES[3], name=NAMES[1], published_note=NAMES[2], command=NAMES[1]
    )
    (tmp_path / "report" / "report.md").unlink()
    return text, seen(tmp_path / "report")


def test_no_name_becomes_a_tag_an_attribute_or_a_script(page: tuple[str, Seen]) -> None:
    _, html = page
    assert {tag for tag, _ in html.tags} <= TAGS
    assert not [name for _, attributes in html.tags for name in attributes if name.startswith("on")]
    assert len(html.scripts) == 3
    assert [attributes.get("type") for tag, attributes in html.tags if tag == "script"] == [
        "application/json",
        None,
        None,
    ]
    assert html.cells.count(" ".join(NAMES[1].split())) >= 2
    named = json.dumps(json.loads(html.scripts[0]))
    assert all(json.dumps(" ".join(name.split()))[1:-1] in named for name in NAMES)


def test_the_policy_lets_the_pages_own_scripts_run_and_nothing_else(page: tuple[str, Seen]) -> None:
    _, html = page
    policy = next(a["content"] for tag, a in html.tags if a.get("http-equiv") == "Content-Security-Policy")
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in html.scripts[1:]]
    assert policy.startswith("default-src 'none'; script-src " + " ".join(f"'sha256-{one}'" for one in hashes) + ";")
    assert "connect-src" not in policy and "http" not in policy
    assert not any("\r" in script for script in html.scripts), "a browser would hash another text"


def test_nothing_is_asked_of_a_network(page: tuple[str, Seen], tmp_path: Path) -> None:
    _, html = page
    for tag, attributes in html.tags:
        assert tag not in ("link", "iframe", "base", "object")
        assert not attributes.get("src") or tag == "img"
        assert re.match(r"#|[\w.]+$|../../how-to-read.md$|$", attributes.get("href", ""))
    styles = re.findall(r"<style>(.*?)</style>", (tmp_path / "report/report.html").read_text(), flags=re.DOTALL)
    assert len(styles) == 1 and not re.search(r"url\(|@import", styles[0])


def test_its_tables_are_those_of_the_markdown(page: tuple[str, Seen]) -> None:
    text, html = page
    assert sum(sum(table) for table in render(text).tables) == len(html.cells)
    assert [tag for tag, a in html.tags if a.get("class") == "scroll"] == ["div"] * len(render(text).tables)
    assert [tag for tag, _ in html.tags].count("details") == text.count("<details>") > 0


def test_the_first_column_stays_and_pictures_of_a_narrow_screen_keep_a_width_to_be_read() -> None:
    css = (Path(html.__file__).parent / "page.css").read_text(encoding="utf-8")
    on_screen, printed = css.split("@media print")
    everywhere, narrow = on_screen.split("@media (max-width: 44rem)")
    first = r"th:first-child, td:first-child \{[^}]*"
    assert re.search(first + r"position: sticky; left: 0;[^}]*background: var\(--page\)", everywhere)
    assert re.search(first + "position: static", printed)
    assert "img { min-width: 640px; }" in narrow and "p:has(> img) { overflow-x: auto; }" in everywhere
    colours = re.findall(r"--(?:page|stripe): (\S+);", css)
    assert len(colours) == 4 and all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours), (
        "opaque, in the dark too"
    )


def test_html_that_is_not_a_bare_fold_is_text(tmp_path: Path) -> None:
    text = (
        "# t\n\n<details onclick=x>\n<summary>s</summary>\n\n<b>b</b> [l](javascript:alert(1)) ![p](//e.org/p.svg)\n\n"
        "</details>\n"
    )
    html.write_html(tmp_path, text, None)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;details onclick=x&gt;\n<summary>s</summary>" in page and "</details>" in page
    assert "&lt;b&gt;b&lt;/b&gt; [l](javascript:alert(1))" in page and "<a" not in page
    assert '<img src="//e.org/p.svg"' in page, "left to the page's policy, which loads nothing"


def test_pictures_of_the_folder_are_inside_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("in/overview.svg", "out.svg", "in/note.txt"):
        (tmp_path / name).write_text("<svg/>")
    pictures = "".join(f"![{name}]({name})\n\n" for name in ("overview.svg", "../out.svg", "note.txt", "gone.svg"))
    curves = hover_curves(Outcomes({"full": (outcome("full", 1),)}, "full"))
    html.write_html(folder, f"# t\n\n{pictures}caption\n\n## h\n\nend\n", curves)
    page = (folder / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'<img src="([^",]*)', page)
    assert sources == ["data:image/svg+xml;base64", "../out.svg", "note.txt", "gone.svg"]
    assert page.index("caption") < page.index('class="curves"') < page.index("<h2"), "the curves end the section"
    ((anchor, heading),) = re.findall(r'<a href="#(.*)">(.*)</a>', page)
    assert "<title>t</title>" in page and heading == "h" and f'<h2 id="{anchor}">' in page


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    trials = [make_trial(name, seed, batch_size=20 + len(name)) for name in ("full", "b") for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0 + trial.seed)
    for folder in ("one", "two"):
        write(tmp_path, trials, folder=tmp_path / folder)
    for name in ("report.html", "curves.parquet", "table.tex", "summary.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_a_page_without_curves_needs_no_library(tmp_path: Path) -> None:
    write(tmp_path, [make_trial("full", 1)])
    assert (tmp_path / "report/report.html").stat().st_size < 100_000
    assert len(seen(tmp_path / "report").scripts) == 1


def outcome(variant: str, seed: int, perplexity: float = 60.0, **how: Any) -> Outcome:
    trial = make_trial(variant, seed, **how)
    return Outcome(trial, "unfinished", "", None, curve_table(make_curve(trial.spec, perplexity, noise=seed)))


def drawn(curves: HoverCurves | None) -> dict[str, Any]:
    """The data of the lines."""
    assert curves is not None
    sources: list[dict[str, Any]] = []

    def look(node: Any) -> None:
        if isinstance(node, dict) and node.get("name") == "ColumnDataSource":
            sources.append(dict(node["attributes"]["data"]["entries"]))
        for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            look(part)

    look(json.loads(curves.json))
    (source,) = sources
    return source


def test_every_seed_and_their_mean_can_be_hovered() -> None:
    outcomes = {
        "full": (outcome("full", 1), outcome("full", 2)),
        "b": (outcome("b", 1),),
        "cache": (outcome("cache", 1, cache=CACHE),),
    }
    curves = hover_curves(Outcomes(outcomes, "full"))
    assert curves is not None
    lines = drawn(curves)
    assert lines["variant"] == ["full"] * 3 + ["b"]
    assert lines["seed"] == ["seed 1", "seed 2", "mean of 2 seeds", "seed 1"]
    assert [key.lines for key in curves.keys] == [[0, 1, 2], [3]]
    one, two, mean, _ = (
        np.frombuffer(gzip.decompress(base64.b64decode(line["array"]["data"])), dtype=line["dtype"])
        if isinstance(line, dict)
        else np.array(line)
        for line in lines["ys"]
    )
    assert mean == pytest.approx(np.sqrt(one * two)), "of losses, as in the pictures"


def test_iterates_can_be_hovered_where_curves_have_them() -> None:
    trial = make_trial("full", 1)
    points = [replace(p, raw_valid_nats_per_token=4.5 if p.averaging else None) for p in make_curve(trial.spec, 60.0)]
    curves = hover_curves(Outcomes({"full": (Outcome(trial, "unfinished", "", None, curve_table(points)),)}, "full"))
    assert curves is not None
    assert drawn(curves)["seed"] == ["seed 1", "seed 1, last iterate"]


def test_a_variant_looks_as_in_the_static_pictures() -> None:
    names = ["b", "full", *(f"v{k}" for k in range(12))]
    curves = hover_curves(Outcomes({name: (outcome(name, 1),) for name in names}, "full"))
    assert curves is not None
    styles = line_styles(names, "full")
    assert {key.name: key.colour for key in curves.keys} == {name: colour for name, (colour, _) in styles.items()}
    assert drawn(curves)["colour"] == [styles[name][0] for name in names]
    assert drawn(curves)["dash"] == [styles[name][1] for name in names]


def test_losses_that_overflow_or_are_no_number_do_not_fail() -> None:
    for perplexity, names in ((1e40, ["full", "b"]), (1e300, ["full", "b"]), (float("nan"), ["b"])):
        curves = hover_curves(Outcomes({"full": (outcome("full", 1, perplexity),), "b": (outcome("b", 1),)}, "full"))
        assert drawn(curves)["variant"] == names
    assert hover_curves(Outcomes({"full": (outcome("full", 1, float("nan")),)}, "full")) is None


def test_an_unfinished_seed_does_not_bend_the_mean(tmp_path: Path) -> None:
    trials = [make_trial("full", seed) for seed in (1, 2)]
    settle(tmp_path / "runs", trials[0], 60.0)
    begin(tmp_path / "runs", trials[1], 60.0, epochs=3)
    write(tmp_path, trials)
    data = json.loads(seen(tmp_path / "report").scripts[0])
    assert "mean of 2" in json.dumps(data)
