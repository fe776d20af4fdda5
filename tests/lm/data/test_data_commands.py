"""`python -m lm corpus`, through its typer app."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lm.data.commands import app
from tests.lm.data.toy_corpus import TOY, write_texts

run = CliRunner()


def test_list_names_every_corpus_with_its_figures_and_place(toy: str, places: Path) -> None:
    write_texts(places / "lm_data" / toy, TOY)
    write_texts(places / "here" / "data" / "ptb", {"train": "a\n"})
    done = run.invoke(app, ["list"])
    assert done.exit_code == 0
    lines = {line.split()[0]: line for line in done.output.splitlines()}
    assert "929,589" in lines["ptb"] and "10,000" in lines["ptb"] and "lacks valid.txt, test.txt" in lines["ptb"]
    assert lines["toy"].endswith(str(places / "lm_data" / toy))
    assert "corpus fetch wikitext-2" in lines["wikitext-2"] and "untested" in lines["wikitext-103"]
    assert "pydoc" in lines


@pytest.mark.parametrize("name", ["toy", "pydoc", "../mine"])
def test_check_says_what_a_corpus_holds(toy: str, places: Path, name: str) -> None:
    write_texts(places / "lm_data" / toy, TOY)
    write_texts(places / "mine", TOY)
    done = run.invoke(app, ["check", name])
    assert done.exit_code == 0
    assert done.output.startswith(f"{name}: ") and "fingerprint" in done.output
    assert "<unk>" in done.output


def test_fetch_says_where_a_corpus_is(toy: str, places: Path) -> None:
    folder = write_texts(places / "lm_data" / toy, TOY)
    assert run.invoke(app, ["fetch", toy]).output == f"toy: {folder}\n"
    assert "needs no files" in run.invoke(app, ["fetch", "pydoc"]).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "ptbb"], "did you mean 'ptb'?"),
        (["check", "ptb"], "python -m lm corpus fetch ptb"),
        (["fetch", "toy"], "By hand: save http://127.0.0.1:9/train.txt as train.txt"),
        (["fetch", "pydocs"], "did you mean 'pydoc'?"),
        (["check", ""], "lacks train.txt, valid.txt, test.txt"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(toy: str, arguments: list[str], said: str) -> None:
    done = run.invoke(app, arguments)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and said in done.stderr
