"""The commands, links and numbers of README and docs/ are true."""

from __future__ import annotations

import csv
import math
import re
import shutil
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lm.__main__ import app as lm
from orchestrator.__main__ import app as orchestrator
from orchestrator.report.files.folder import write_index

ROOT = Path(__file__).parent.parent
APPS = {"lm": lm, "orchestrator": orchestrator}
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
README = TEXTS[ROOT / "README.md"]
BLOCKS = [block for text in TEXTS.values() for block in re.findall(r"```sh\n(.*?)```", text, flags=re.S)]
LINES = [part.split("#")[0].strip() for block in BLOCKS for line in block.splitlines() for part in line.split("&&")]
COMMANDS = sorted({line for line in LINES if line.startswith(("python -m orchestrator", "python -m lm"))})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXTS[page])
    missing = [link for link in links if not link.startswith("https://") and not (page.parent / link).exists()]
    assert not missing


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    assert len(README.splitlines()) <= 150
    assert all(f"docs/{page.name}" in README for page in PAGES if page.parent.name == "docs")


def test_the_value_that_architecture_md_follows_can_be_followed() -> None:
    section = TEXTS[ROOT / "docs/architecture.md"].partition("## Follow one value")[2].partition("\n## ")[0]
    steps = re.findall(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", section, flags=re.M)
    assert len(steps) == section.count("\n| `") == 20
    for file, name in steps:
        assert re.search(rf"^\s*(def|class) {name}\b", (ROOT / file).read_text(encoding="utf-8"), flags=re.M), file


def test_the_first_sweep_file_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.S)
    (tmp_path / "first.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(orchestrator, ["plan", "first.yaml"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists_with_its_options(line: str) -> None:
    package, *words = line.split()[2:]
    subcommands = [word for word in words if re.fullmatch(r"[a-z_]+", word)][:2]
    while (done := CliRunner().invoke(APPS[package], [*subcommands, "--help"])).exit_code == 2 and len(subcommands) > 1:
        subcommands.pop()
    assert done.exit_code == 0, done.output
    assert all(option in done.output for option in words if option.startswith("--"))


def test_both_commands_install_the_tested_set() -> None:
    assert sum("pip install -c constraints.txt -e" in line for line in LINES) >= 2
    assert any(line.startswith("pytest") for line in LINES)


def test_the_removals_are_what_their_pages_say() -> None:
    scales = ("mini-wide", "laptop", "mini")
    reports = [(ROOT / f"reports/awd_ablation/{scale}/report.md").read_text(encoding="utf-8") for scale in scales]
    of_paper = r"\| ([+−][\d.]+%) \| [\d.–]+ \| [\d.]+ \| [+−][\d.]+ \|$"
    table = README.partition("| Removed |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert len(rows) == 8
    for part, *changes, paper, sign in rows:
        variant, equal = part.removesuffix(", at equal epochs"), " (as many epochs)" if "equal" in part else ""
        for report, change in zip(reports, changes, strict=True):
            lines = report.splitlines()
            row = next(line for line in lines if line.startswith(f"| no {variant}{equal} |"))
            decided = change.strip("*") != change
            assert f"| {change.strip('*')} | " in row and decided == ("| **" in row), f"{part}: {change}"
        published = [line for line in reports[0].splitlines() if line.startswith(f"| no {variant} |")]
        assert paper in [match[1] for line in published if (match := re.search(of_paper, line))], part
        raised, lowered = (sum(change.startswith(f"**{mark}") for change in changes) for mark in "+−")
        held = [f"holds in {('one', 'two', 'all three')[raised - 1]}"] * bool(raised)
        assert sign == ", ".join([*held, *["reversed in one"] * lowered] or ["not decided"]), part


def test_the_results_quote_the_page_at_a_published_size() -> None:
    report = (ROOT / "reports/zaremba/paper/report.md").read_text(encoding="utf-8")
    quoted = [line for line in TEXTS[ROOT / "docs/results.md"].splitlines() if line.startswith("| LSTM")]
    assert len(quoted) == 4
    for line in quoted:
        variant, *numbers, published = [cell.strip() for cell in line.strip("|").split("|")]
        (row,) = [row for row in report.splitlines() if row.startswith(f"| {variant} | ") and row.count("|") == 9]
        assert all(number in row for number in numbers), line
        on_test = [row for row in report.splitlines() if row.startswith(f"| {variant} | test |")]
        assert (published == "–" and not on_test) or f"| {published}† |" in on_test[0]


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/results.md"], ids=lambda page: page.name)
def test_every_interval_is_on_a_page_that_its_section_links(page: Path) -> None:
    seen = 0
    for section in re.split(r"^## ", TEXTS[page], flags=re.M):
        links = {page.parent / link for link in re.findall(r"\]\(([^)]*reports/[^)]*/report\.md)\)", section)}
        reports = "\n".join(link.read_text(encoding="utf-8") for link in links)
        for interval in re.findall(r"[+−]?[\d.]+%\s\[[^\]]*\]", section) if links else ():
            assert " ".join(interval.split()) in reports, interval
            seen += 1
    assert seen > 5


def test_the_pages_where_learning_had_not_stopped_are_named() -> None:
    """Recomputed from the committed curves, of trials that train by themselves and whose best epoch is their last."""
    expected = []
    for page in sorted((ROOT / "reports").glob("*/*/trials.csv")):
        with page.open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["best_epoch"]]
        rows = [row for row in rows if not row["reads_from"] and not row["valid_perplexity_without_cache"]]
        last = {(row["variant"], row["key"]) for row in rows if row["best_epoch"] == row["epochs"]}
        if 10 * len(last) <= len(rows):
            continue
        losses: dict[tuple[str, str], list[float]] = {}
        for point in pq.read_table(page.with_name("curves.parquet")).to_pylist():
            losses.setdefault((point["variant"], point["key"]), []).append(point["valid_nats_per_token"])
        curves = [losses[each] for each in sorted(last)]
        before = [min(curve[: min(len(curve) - 1, round(0.9 * len(curve)))]) for curve in curves]
        falls = [-100 * math.expm1(curve[-1] - low) for curve, low in zip(curves, before, strict=True)]
        if median(falls) >= 0.5:
            name = "/".join(page.parts[-3:-1])
            link = f"[{name}](../reports/{name}/report.md)"
            expected.append(f"| {link} | {len(last)} of {len(rows)} | {median(falls):.1f}% | {max(falls):.1f}% |")
    section = TEXTS[ROOT / "docs/results.md"].partition("## Where learning had not stopped")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| [")] == expected


def test_the_list_of_pages_says_what_the_pages_say(tmp_path: Path) -> None:
    for path in (ROOT / "reports").rglob("*"):
        if path.name in ("summary.json", "report.md", "README.md", "how-to-read.md"):
            copy = tmp_path / path.relative_to(ROOT / "reports")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    committed = (tmp_path / "README.md").read_text(encoding="utf-8")
    write_index(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == committed
