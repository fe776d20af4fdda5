"""`python -m lm codebook`: what it prints, what it refuses, and that it needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from lm.__main__ import app
from lm.spec import TrainSpec

ROOT = Path(__file__).parents[3]


def invoke(folder: Path, spec: Any) -> Result:
    path = folder / "spec.yaml"
    path.write_text(spec if isinstance(spec, str) else yaml.safe_dump(spec), encoding="utf-8")
    return CliRunner().invoke(app, ["codebook", str(path)])


def question(corpus_folder: Path, **codebook: Any) -> dict[str, Any]:
    return {"corpus": {"name": str(corpus_folder)}, "codebook": codebook}


def training(corpus_folder: Path, head: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "corpus": {"name": str(corpus_folder)},
        "model": {"layers": 1, "embedding_size": 6, "hidden_size": 6, "tied": False},
        "head": head,
        "optimizer": {"kind": "sgd", "learning_rate": 1.0},
        "epochs": 1,
    }
    TrainSpec.model_validate(spec)
    return spec


def test_the_statistics_of_a_code(corpus_folder: Path, tmp_path: Path) -> None:
    """Of the corpus of the tests' 24 words; a training spec says the same as the short form."""
    codebook = {"kind": "unigram", "bits": 24}
    short = invoke(tmp_path, question(corpus_folder, **codebook))
    assert short.exit_code == 0, short.output
    rows = dict(line.strip().split("  ", 1) for line in short.output.splitlines()[1:])
    rows = {name: value.strip() for name, value in rows.items()}
    assert short.output.splitlines()[0].startswith(f"unigram code of {corpus_folder}, fingerprint ")
    assert (rows["words"], rows["bits"], rows["duplicates"]) == ("24", "24", "0")
    assert rows["mean distance"].endswith(" bits, of 200,000 random pairs")
    assert list(rows) == [
        "words",
        "bits",
        "duplicates",
        "minimum distance",
        "correctable errors",
        "mean distance",
        "column means",
        "column correlation",
        "neighbours in order",
    ]
    whole = invoke(tmp_path, training(corpus_folder, {"kind": "ecoc", "codebook": codebook}))
    assert whole.exit_code == 0 and whole.output == short.output


@pytest.mark.parametrize("kind", ["simhash", "hybrid", "embedding"])
def test_a_code_of_word_vectors_is_compared_with_them(corpus_folder: Path, tmp_path: Path, kind: str) -> None:
    result = invoke(tmp_path, question(corpus_folder, kind=kind, bits=50))
    assert result.exit_code == 0 and "(Spearman)" in result.output.splitlines()[-1]


def test_any_code_can_be_compared_with_word_vectors(corpus_folder: Path, tmp_path: Path) -> None:
    asked = question(corpus_folder, kind="random", bits=30)
    assert "Spearman" not in invoke(tmp_path, asked).output
    result = invoke(tmp_path, asked | {"embeddings": {"kind": "ppmi_svd", "size": 4}})
    assert result.exit_code == 0 and "(Spearman)" in result.output


def test_what_is_refused_in_one_line(corpus_folder: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("w1 1 2\n", encoding="utf-8")
    file = {"kind": "file", "path": str(vectors), "sha256": "0" * 64}
    for asked, said in (
        (question(corpus_folder, kind="random", bits=4), "bits 4 cannot name 24 words: at least 5 are needed"),
        (question(corpus_folder, kind="random", bit=40), "codebook.bit: unknown key 'bit' (did you mean 'bits'?)"),
        (question(corpus_folder, kind="random"), "codebook: missing key 'bits'"),
        (
            question(corpus_folder, kind="randon", bits=40),
            "codebook.kind: unknown kind 'randon' (did you mean 'random'?)",
        ),
        (question(corpus_folder, kind="simhash", bits=40, embeddings=file), "the spec says 0000"),
        (question(Path("nowhere"), kind="identity"), "nowhere"),
        (training(corpus_folder, {"kind": "softmax"}), "head: kind ecoc has a codebook, got kind softmax"),
        ("codebook", "should be a mapping with corpus, optimizer, epochs, got 'codebook'"),
        ("codebook: 1\ncodebook: 2", "spec.yaml:2: codebook: duplicate key 'codebook' (first at line 1)"),
        ("codebook: {", "while parsing"),
    ):
        result = invoke(tmp_path, asked)
        assert result.exit_code == 2 and said in result.stderr, (asked, result.output)
        assert result.stderr.startswith(f"{tmp_path / 'spec.yaml'}:") and not result.stdout


def test_it_needs_no_torch(corpus_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(question(corpus_folder, kind="hybrid", bits=30)), encoding="utf-8")
    program = "import runpy, sys\ntry:\n    runpy.run_module('lm', run_name='__main__')\nfinally:\n"
    program += "    assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program, "codebook", str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "hybrid code of" in done.stdout, done.stderr
