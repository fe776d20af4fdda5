"""`report --compare A B`: two written reports on one page."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.report.compare import compare_reports
from tests.factories import CACHE, make_trial, settle
from tests.orchestrator.places import command
from tests.orchestrator.report import golden
from tests.orchestrator.report.pages import HOSTILE, misread, render, write

FILES = ("report.md", "summary.json", "table.csv", "trials.csv")
A = {
    "full": 60.0,
    "agrees": 66.0,
    "opposes": 66.0,
    "differs": 66.0,
    "only in A": 63.0,
    "A decides": 57.0,
    "open": 60.5,
    "C": 70.0,
}
B = {
    "only in B": 47.0,
    "full": 50.0,
    "C": 48.0,
    "agrees": 53.0,
    "opposes": 45.0,
    "differs": 50.1,
    "A decides": 50.9,
    "open": 50.8,
}


def report(place: Path, perplexities: dict[str, float], *, batch: int = 20, **how: object) -> Path:
    """Write the report of three seeds, close together; those of `open`, and of `A decides` in B, far apart."""
    trials = []
    for k, (variant, perplexity) in enumerate(perplexities.items()):
        apart = 0.02 if variant == "open" or (variant, batch) == ("A decides", 60) else 0.0005
        for seed, step in enumerate((-1, 0, 1.3), 1):
            trials.append(make_trial(variant, seed, batch_size=batch + k))
            settle(place / "runs", trials[-1], perplexity * (1 + step * apart))
    write(place, trials, **{"margin": 0.03, "published": {}, **how})
    return place / "report"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("two")
    return report(place / "a", A), report(place / "b", B, batch=60, name="other", scale="mini", question="And here?")


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0)])
def test_the_page_is_read_as_it_is_meant(two: tuple[Path, Path], order: tuple[int, int]) -> None:
    assert misread(compare_reports(*(str(two[k]) for k in order))) == []


def table(page: str) -> dict[str, list[str]]:
    """The cells of the table by variant."""
    lines = page[page.index("| Variant |") :].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_a_table_without_references_is_read_as_before(two: tuple[Path, Path]) -> None:
    page = compare_reports(*map(str, two))
    path = two[0] / "table.csv"
    whole = path.read_text(encoding="utf-8")
    lines = [line.rpartition(",")[0] for line in whole.splitlines() if not line.endswith(",True")]
    assert len(lines) == len(whole.splitlines()) - 1 == 1 + len(A), "the uniform model's line is gone"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert compare_reports(*map(str, two)) == page
    path.write_text(whole, encoding="utf-8")


def test_variants_of_both_are_set_side_by_side_with_what_each_report_decides(two: tuple[Path, Path]) -> None:
    page = compare_reports(*map(str, two))
    rows = table(page)
    assert {name: cells[-1] for name, cells in rows.items()} == {
        "full": "–",
        "agrees": "agree",
        "opposes": "opposite",
        "differs": "differ",
        "only in A": "not in both",
        "A decides": "only A decides",
        "open": "neither decides",
        "C": "opposite",
        "only in B": "not in both",
    }
    assert list(rows)[-1] == "only in B" and rows["only in B"][:-1:2] == ["–", "–", "not in this report"]
    assert rows["differs"][4:6] == ["hurts", "no effect larger than 3%"]
    assert rows["full"][4:6] == ["baseline", "baseline"]
    assert (
        "both decide 4 (1 agree, 2 opposite, 1 differ); only A decides 1, only B decides 0, neither decides 1." in page
    )
    assert (
        "| Scale | laptop | mini |" in page and "| Question | Which parts carry the perplexity? | And here? |" in page
    )


def test_a_difference_is_a_ratio_of_perplexities_in_per_cent(two: tuple[Path, Path]) -> None:
    cells = table(compare_reports(*map(str, two)))["agrees"]
    assert cells[0].startswith("66.0") and cells[0].endswith("(3)")
    for cell, ratio in zip(cells[2:4], (66 / 60, 53 / 50), strict=True):
        value, low, high = (float(part.strip("[],+")) for part in cell.split())
        assert value == pytest.approx(100 * (ratio - 1), abs=0.05) and low < value < high


def test_the_order_of_the_differences_is_compared_over_variants_of_both(two: tuple[Path, Path]) -> None:
    """The reference: 1 - 6 sum(d^2) / (n (n^2 - 1)) of ranks, had there been no ties."""
    tied = {**A, "opposes": 66.5, "differs": 65.5}
    del tied["open"]
    names = ["agrees", "opposes", "differs", "A decides", "C"]
    ours, others = ({name: sorted(names, key=side.__getitem__).index(name) for name in names} for side in (tied, B))
    rho = 1 - 6 * sum((ours[name] - others[name]) ** 2 for name in names) / (5 * 24)
    page = compare_reports(str(report(two[0].parent.parent / "tied", tied)), str(two[1]))
    assert f"Spearman's rank correlation of the differences is {f'{rho:+.2f}'.replace('-', '−')} (n = 5," in page


def test_three_variants_and_equal_differences_have_no_rank_correlation(tmp_path: Path) -> None:
    few = str(report(tmp_path, {"full": 60.0, "b": 61.0, "c": 62.0, "d": 63.0}))
    assert "3 variants with all seeds and a difference in both are fewer than 4." in compare_reports(few, few)
    four = report(tmp_path / "four", {"full": 60.0, "b": 61.0, "c": 61.0, "d": 61.0, "e": 61.0})
    assert "in one report all differences are the same" in compare_reports(str(four), str(four))


def test_a_report_beside_itself_is_one_measurement_and_survivors_are_not_ranked(tmp_path: Path) -> None:
    folder = str(golden.make(tmp_path))
    page = compare_reports(folder, folder)
    assert "**18 complete trials are in both (of 18 in A, 18 in B): so far A and B are one measurement" in page
    rows = table(page)
    assert rows["shaky"][0].endswith("(2 of 3)") and rows["shaky"][4] == "no verdict (1 of 3 seeds diverged)"
    assert rows["neural cache"][4:] == ["adaptive, not compared", "adaptive, not compared", "–"]
    assert "is +1.00 (n = 4," in page, "shaky has differences, of the seeds that survived"
    assert "described differently" not in page


def test_other_baselines_are_not_set_against_each_other(two: tuple[Path, Path]) -> None:
    other = report(two[0].parent.parent / "other", A, batch=90, baseline="agrees")
    page = compare_reports(str(two[0]), str(other))
    assert "**A compares with full, B with agrees: differences and verdicts answer different questions" in page
    assert {cells[-1] for cells in table(page).values()} == {"other baseline"}
    assert "No variant is compared with the same baseline in both." in page and "Spearman" not in page


def test_another_margin_is_told_and_an_adaptive_baseline_is_read(two: tuple[Path, Path], tmp_path: Path) -> None:
    stricter = report(tmp_path / "stricter", A, margin=0.01)
    page = compare_reports(str(two[0]), str(stricter))
    assert "**A takes effects below 3% as none, B below 1%" in page
    assert "takes effects below" not in compare_reports(str(two[0]), str(two[1]))
    trials = [make_trial("full", 1, cache=CACHE), make_trial("b", 1)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
    write(tmp_path, trials, published={})
    assert "| full | 60.00 (1) |" in compare_reports(str(tmp_path / "report"), str(two[0]))


def test_a_name_that_means_two_things_is_told_and_no_name_breaks_the_page(tmp_path: Path) -> None:
    folders = []
    for place, change in (("a", "x | y"), ("b", HOSTILE)):
        trials = [make_trial("full", 1), make_trial(HOSTILE, 1, change=change, batch_size=3)]
        trials.append(make_trial("c", 1, **({"cache": CACHE} if place == "a" else {"batch_size": 4})))
        for trial in trials:
            settle(tmp_path / place / "runs", trial, 60.0)
        write(tmp_path / place, trials, name=HOSTILE, question=HOSTILE, scale=HOSTILE)
        folders.append(str(tmp_path / place / "report"))
    text = compare_reports(*folders)
    page = render(text)
    assert page.tables == [[3] * 10, [8] * 4] and page.links == []
    assert table(text)["c"][4:] == [
        "adaptive, not compared",
        "no verdict (equal to the baseline in every seed)",
        "not compared in A",
    ]
    assert "in A x | y; in B a | b" in page.text


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e@e", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_report_is_read_as_it_was_at_a_commit(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "reports/s/mini"
    kept.mkdir(parents=True)
    git(tmp_path, "init", "-q")
    for folder, message in ((two[0], "one"), (two[1], "two")):
        for name in FILES:
            (kept / name).write_bytes((folder / name).read_bytes())
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", message)
    first = git(tmp_path, "rev-parse", "HEAD~1")
    for path in kept.iterdir():
        path.unlink()
    kept.rmdir()
    monkeypatch.chdir(tmp_path)
    code, page, _ = command("report", "--compare", "reports/s/mini@HEAD~1", "reports/s/mini@HEAD@{0}")
    assert code == 0 and f"| Report | reports/s/mini at commit {first[:12]} |" in page
    assert table(page) == table(compare_reports(*map(str, two)))
    monkeypatch.chdir(tmp_path / "reports")
    assert table(compare_reports(f"s/mini@{first[:8]}", f"{kept}@HEAD")) == table(page)
    for wrong, said in (
        ("s/mini@nowhere", f"git in {tmp_path}/reports/s: no commit is called 'nowhere'"),
        ("s/mini@--output=x", "no commit begins with a dash, got '--output=x'"),
        ("s/maxi@HEAD", "no report is there (did you mean 's/mini'?)"),
    ):
        code, out, err = command("report", "--compare", wrong, "s/mini@HEAD")
        assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(f"--compare: {wrong}: {said}")
    assert not list(tmp_path.rglob("x"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / ".git").rename(tmp_path / "gone")
    code, out, err = command("report", "--compare", "s/mini@HEAD", "s/mini@HEAD")
    assert (code, out, err.count("\n")) == (2, "", 1) and "not a git repository" in err


def test_the_page_goes_to_stdout_or_to_a_file(two: tuple[Path, Path], tmp_path: Path) -> None:
    line = ("report", "--compare", *map(str, two))
    code, page, _ = command(*line)
    assert (code, page) == (0, compare_reports(*map(str, two)))
    to = tmp_path / "new/page.md"
    assert command(*line, "--to", str(to))[:2] == (0, f"{to}\n")
    assert to.read_text(encoding="utf-8") == page
    code, out, err = command(*line, "--to", str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ((), "report: a sweep FILE, or --compare A B with two written reports; got neither"),
        (("s.yaml", "--compare", "a", "b"), "goes with --to alone, got FILE too"),
        (("--compare", "a", "b", "--scale", "x", "--watch"), "goes with --to alone, got --scale, --watch too"),
        (("s.yaml", "--to", "x.md"), "report: --to goes with --compare"),
    ],
)
def test_a_line_that_asks_for_both_or_neither_is_refused(line: tuple[str, ...], said: str) -> None:
    code, out, err = command("report", *line)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err


def test_a_folder_that_is_not_there_gets_its_nearest_name(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reports/heads").mkdir(parents=True)
    (tmp_path / "reports/heads/mini").symlink_to(two[0])
    monkeypatch.chdir(tmp_path)
    for wrong in ("reports/haeds/mini", "reports/heads"):
        code, out, err = command("report", "--compare", wrong, "reports/heads/mini")
        assert (code, out) == (2, "")
        assert err == f"--compare: {wrong}: no report is there (did you mean 'reports/heads/mini'?)\n"


def _without_a_column(folder: Path) -> None:
    text = (folder / "table.csv").read_text()
    (folder / "table.csv").write_text(text.replace("difference_nats_per_token_low", "low", 1))


def _without_a_verdict(folder: Path) -> None:
    told = json.loads((folder / "summary.json").read_text())
    del told["verdicts"]["agrees"]
    (folder / "summary.json").write_text(json.dumps(told))


def _with_a_wrong_number(folder: Path) -> None:
    text = (folder / "table.csv").read_text()
    (folder / "table.csv").write_text(text.replace("1234567", "many", 1))


OLDER = "so it is of an older form; write it again: python -m orchestrator report FILE"
HARMS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "summary.json").unlink(), f"the report has no summary.json, {OLDER}"),
    (lambda folder: (folder / "summary.json").write_text("{}"), "summary.json: name: Field required; write it again"),
    (_without_a_column, f"table.csv has no column 'difference_nats_per_token_low', {OLDER}"),
    (_without_a_verdict, "table.csv and summary.json are not of one report; write it again"),
    (_with_a_wrong_number, "table.csv:2: parameters: Input should be a valid integer"),
    (lambda folder: (folder / "trials.csv").write_bytes(b"\xff"), "trials.csv: 'utf-8' codec can't decode"),
]


@pytest.mark.parametrize(("harm", "said"), HARMS)
def test_a_report_of_another_form_is_told_in_a_line(
    two: tuple[Path, Path], tmp_path: Path, harm: Callable[[Path], object], said: str
) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes((two[0] / name).read_bytes())
    harm(tmp_path)
    code, out, err = command("report", "--compare", str(two[1]), str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"{tmp_path}: {said}")
