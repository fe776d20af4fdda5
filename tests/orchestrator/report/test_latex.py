"""`table.tex`: the page's rows as a tabular that LaTeX takes, whatever a name holds."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.report.files.tables import escaped
from orchestrator.sweep.published import Published
from tests.support.factories import CACHE, make_trial, number, settle
from tests.support.pages import HOSTILE, write


def table(tmp_path: Path) -> str:
    names = ("full", r"50% \of_a & {b} #1 $x$ ~^", HOSTILE)
    trials = [make_trial(name, seed, batch_size=20 + k) for k, name in enumerate(names) for seed in (1, 2)]
    trials += [make_trial("neural cache", seed, cache=CACHE) for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0 + len(trial.variant) + trial.seed / 10)
    papers = {"full": Published(number(61.2, std=0.2), number(58.8, "recalled"))}
    write(tmp_path, trials, published=papers, name="ablation\nof parts")
    return (tmp_path / "report" / "table.tex").read_text(encoding="utf-8")


def test_every_row_has_every_column(tmp_path: Path) -> None:
    text = table(tmp_path)
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert columns is not None and len(rows) == 6
    assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(columns.group(1))} == {8}
    rules = [r"\toprule", r"\midrule", r"\midrule", r"\bottomrule"]
    assert [line for line in text.splitlines() if line.endswith("rule")] == rules
    assert rows[-1].startswith("uniform model & ") and "$6000.00$ & $6000.00$" in rows[-1]
    assert (
        text.splitlines()[0]
        == "% ablation of parts, scale laptop, changes of test perplexity with 95% intervals (all at once), "
        "corpus pydoc, seeds 1, 2"
    )


def test_braces_and_mathematics_are_balanced(tmp_path: Path) -> None:
    for line in table(tmp_path).splitlines():
        bare = re.sub(r"\\[{}$]", "", line)
        assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
        assert line.isascii(), "no package is needed for its characters"


def test_numbers_are_those_of_the_page(tmp_path: Path) -> None:
    text = table(tmp_path)
    assert (
        r"full & changes full & $1{,}234{,}567$ & $67.36 \pm 0.07$ & $64.15 \pm 0.07$ & \textendash{} & baseline & "
        in text
    )
    assert r"$61.2 \pm 0.2$ / $58.8$\textdagger{} \\" in text and "from memory" in text
    assert re.search(r"& \+[\d.]+\\% \{\[\}\+[\d.]+\\%, \+[\d.]+\\%\{\]\} & raises & ", text)
    assert "adaptive, not compared" in text


def test_a_published_difference_has_a_column_where_there_is_one(tmp_path: Path) -> None:
    trials = [make_trial(name, seed, batch_size=20 + k) for k, name in enumerate("abc") for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0 + trial.seed / 10)
    papers = {"a": Published(None, number(58.8, "recalled")), "b": Published(None, number(57.3))}
    write(tmp_path, trials, published=papers, baseline="a")
    lines = (tmp_path / "report" / "table.tex").read_text(encoding="utf-8").splitlines()
    assert r"\begin{tabular}{llrrrrlrr}" in lines
    assert [line.rpartition(" & ")[2] for line in lines if " & " in line] == [
        *(
            r"Published change \\",
            r"\textendash{} \\",
            r"\ensuremath{-}2.6\%\textdagger{} \\",
            *[r"\textendash{} \\"] * 2,
        )
    ]


def test_any_text_is_printed_as_it_is() -> None:
    assert escaped(r"\a_b{c}") == r"\textbackslash{}a\_b\{c\}"
    assert escaped("[x]\n% --- 'y' −1") == (r"{[}x{]} \% {-}{-}- \textquotesingle{}y\textquotesingle{} \ensuremath{-}1")
    assert escaped("a -> b\x00\u202e") == r"a \ensuremath{\to} b"
