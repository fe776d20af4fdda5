"""`report --compare A B`: two written reports on one page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.report.compare import compare_reports
from tests.support import golden
from tests.support.factories import CACHE, make_trial, settle
from tests.support.pages import HOSTILE, misread, render, write
from tests.support.places import command

A = {"full": 60.0, "agrees": 66.0, "differs": 66.0, "only in A": 63.0}
B = {"only in B": 47.0, "full": 50.0, "agrees": 53.0, "differs": 50.1}


def report(place: Path, perplexities: dict[str, float], *, batch: int = 20, **how: object) -> Path:
    """Write the report of three seeds, close together."""
    trials = []
    for k, (variant, perplexity) in enumerate(perplexities.items()):
        for seed, step in enumerate((-1, 0, 1.3), 1):
            trials.append(make_trial(variant, seed, batch_size=batch + k))
            settle(place / "runs", trials[-1], perplexity * (1 + step * 0.0005))
    write(place, trials, **{"margin": 0.03, "published": {}, **how})
    return place / "report"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("two")
    other = report(place / "b", B, batch=60, name="other", scale="mini", question="And here?", margin=0.02)
    return report(place / "a", A), other


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0)])
def test_the_page_is_read_as_it_is_meant(two: tuple[Path, Path], order: tuple[int, int]) -> None:
    assert misread(compare_reports(*(two[k] for k in order))) == []


def table(page: str) -> dict[str, list[str]]:
    """The cells of the table by variant."""
    lines = page[page.index("| Variant |") :].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip().replace("\\", "") for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_variants_of_both_are_set_side_by_side_with_what_each_report_decides(two: tuple[Path, Path]) -> None:
    page = compare_reports(*two)
    rows = table(page)
    assert list(rows) == [*A, "only in B"]
    assert rows["only in B"][::2] == ["–", "–", "not in this report"]
    assert rows["differs"][4:] == ["raises", "no effect larger than 2%"]
    assert rows["full"][2:] == ["–", "–", "baseline", "baseline"]
    assert "| Question | Which parts carry the perplexity? | And here? |" in page
    assert "| Margin below which an effect counts as none | 3% | 2% |" in page
    assert "| Trials complete | 12 of 12 | 12 of 12 |" in page


def test_a_difference_is_a_ratio_of_perplexities_in_per_cent(two: tuple[Path, Path]) -> None:
    cells = table(compare_reports(*two))["agrees"]
    assert cells[0].startswith("66.0") and cells[0].endswith("(3 of 3)")
    for cell, ratio in zip(cells[2:4], (66 / 60, 53 / 50), strict=True):
        value, low, high = (float(part.strip("[],+")) for part in cell.split())
        assert value == pytest.approx(100 * (ratio - 1), abs=0.05) and low < value < high


def test_survivors_and_adaptive_variants_have_no_verdict(tmp_path: Path) -> None:
    folder = golden.make(tmp_path)
    rows = table(compare_reports(folder, folder))
    assert rows["shaky"][0].endswith("(2 of 3)") and rows["shaky"][4] == "no verdict"
    assert rows["neural cache"][4:] == ["adaptive, not compared"] * 2
    assert "uniform model" not in rows


def test_no_name_breaks_the_page(tmp_path: Path) -> None:
    trials = [make_trial("full", 1), make_trial(HOSTILE, 1, batch_size=3), make_trial("c", 1, cache=CACHE)]
    write(tmp_path, trials, name=HOSTILE, question=HOSTILE, scale=HOSTILE)
    page = render(compare_reports(tmp_path / "report", tmp_path / "report"))
    assert page.tables == [[3] * 7, [7] * 4] and page.links == []


def test_the_page_goes_to_stdout(two: tuple[Path, Path]) -> None:
    code, page, _ = command("report", "--compare", *map(str, two))
    assert (code, page) == (0, compare_reports(*two))


@pytest.mark.parametrize("line", [(), ("s.yaml", "--compare", "a", "b")])
def test_a_line_that_asks_for_both_or_neither_is_refused(line: tuple[str, ...]) -> None:
    expected = "report: expected either a sweep FILE or --compare A B\n"
    assert command("report", *line) == (2, "", expected)


def _without_a_column(folder: Path) -> None:
    text = (folder / "table.csv").read_text()
    (folder / "table.csv").write_text(text.replace("difference_nats_per_token_low", "low", 1))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "summary.json").unlink(), "--compare: {} has no summary.json"),
        (lambda folder: (folder / "summary.json").write_text("{}"), "{}/summary.json: name: Field required"),
        (lambda folder: (folder / "table.csv").unlink(), "{}/table.csv: No such file"),
        (_without_a_column, "{}/table.csv has no column 'difference_nats_per_token_low'"),
    ],
)
def test_a_folder_without_a_whole_report_is_refused_in_a_line(
    two: tuple[Path, Path], tmp_path: Path, harm: Callable[[Path], object], said: str
) -> None:
    for name in ("report.md", "summary.json", "table.csv"):
        (tmp_path / name).write_bytes((two[0] / name).read_bytes())
    harm(tmp_path)
    code, out, err = command("report", "--compare", str(two[1]), str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(said.format(tmp_path))
