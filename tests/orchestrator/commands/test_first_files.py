"""`init`, and the sweeps that ship: what they write plans and runs, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.api import load_sweep
from orchestrator.commands.files import SHIPPED
from orchestrator.sweep import read_sweep
from tests.orchestrator.commands.test_command_line import invoke
from tests.support.tiny import write_corpus

pytestmark = pytest.mark.usefixtures("without_pictures")

SHIPPED_SWEEPS = sorted(path.stem for path in SHIPPED.glob("*.yaml"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_a_new_file_plans_and_runs_to_a_page_with_verdicts(place: Path) -> None:
    (place / "corpus").mkdir()
    for split, lines in (("train", 300), ("valid", 20), ("test", 20)):  # each word says which one follows
        text = "\n".join(" ".join(f"w{(7 * i + j) % 30}" for j in range(11)) for i in range(lines))
        (place / f"corpus/{split}.txt").write_text(text + "\n")
    code, out, err = invoke("init", "mine", "--corpus", "corpus")
    assert code == 0 and "mine.yaml written" in out
    assert err.startswith("warning: the test text has 240 tokens")
    text = Path("mine.yaml").read_text()
    assert 20 <= len(text.splitlines()) <= 30 and "train_tokens: null" in text
    code, out, _ = invoke("plan", "mine.yaml", "--scale", "laptop")
    assert code == 0 and "12 trials (4 variants x 3 seeds): 12 new" in out
    code, out, _ = invoke("sweep", "mine.yaml", "--scale", "laptop", "--executor", "inline")
    *before, heading, no_dropout, no_tying, gru, link, path = out.splitlines()
    assert code == 0 and path == "reports/mine/laptop/report.md"
    assert heading.split() == ["variant", "change", "of", "test", "perplexity", "verdict"]
    assert before[-1].startswith("At laptop scale, ") and link.startswith("MLflow: mlflow ui")
    assert no_dropout.startswith("no dropout") and no_tying.startswith("no tying") and gru.startswith("GRU")
    assert all("% [" in row for row in (no_dropout, no_tying, gru))
    page = Path("reports/mine/laptop/report.md").read_text()
    assert all(f"| {variant} |" in page for variant in ("full", "no dropout", "no tying", "GRU"))
    assert invoke("init", "mine", "--corpus", "corpus")[0] == 2
    assert Path("mine.yaml").read_text() == text


def test_a_published_corpus_is_cut_at_the_quick_scale_and_not_fetched(place: Path) -> None:
    assert invoke("init", "words", "--corpus", "ptb")[0] == 0
    sweep = read_sweep(Path("words.yaml"))
    assert sweep.at("laptop").baseline.spec.corpus.train_tokens == 50_000
    assert sweep.at("paper").baseline.spec.corpus.train_tokens is None


@pytest.mark.parametrize("name", ["1e3", "2018", "true"])
def test_a_name_that_yaml_takes_for_something_else_stays_a_name(place: Path, name: str) -> None:
    write_corpus(place / name)
    assert invoke("init", name, "--corpus", name)[0] == 0
    sweep = read_sweep(Path(f"{name}.yaml"))
    assert (sweep.name, sweep.at("paper").baseline.spec.corpus.name) == (name, name)


def test_raw_text_gets_the_two_lines_that_make_it_a_sweep(place: Path) -> None:
    Path("raw.txt").write_text("a b c\n")
    Path("my texts").mkdir()
    Path("my texts/one.txt").write_text("a b c\n")
    code, _, err = invoke("init", "mine", "--corpus", "raw.txt")
    assert code == 2
    assert err.splitlines() == [
        "--corpus: raw.txt is raw text; make a corpus of it first:",
        "  python -m lm corpus make raw.txt --out mine-corpus --tokenize --min-count 2",
        "  python -m orchestrator init mine --corpus mine-corpus",
    ]
    code, _, err = invoke("init", "mine", "--corpus", "my texts")
    assert code == 2 and "make 'my texts' --out" in err
    assert not Path("mine.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["../mine", "--corpus", "pydoc"], "NAME: should be at most 64 letters, digits, '-' and '_'"),
        (["mine", "--corpus", "pydok"], "(did you mean 'pydoc'?)"),
        (["mine", "--corpus", ""], "--corpus: should be ptb, wikitext-2, "),
        (["mine", "--corpus", "empty"], "corpus folder empty lacks train.txt, valid.txt, test.txt"),
    ],
)
def test_what_init_refuses(place: Path, arguments: list[str], said: str) -> None:
    Path("empty").mkdir()
    code, out, err = invoke("init", *arguments)
    assert (code, out) == (2, "") and said in err
    assert not list(place.glob("*.yaml"))


def test_the_list_names_every_sweep_that_ships(place: Path) -> None:
    code, out, _ = invoke("sweeps", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == SHIPPED_SWEEPS


@pytest.mark.parametrize("name", SHIPPED_SWEEPS)
def test_a_copy_is_the_same_sweep(place: Path, name: str) -> None:
    code, out, _ = invoke("sweeps", "copy", name)
    assert code == 0 and out.startswith(f"{name}.yaml")
    assert load_sweep(f"{name}.yaml", "paper") == load_sweep(SHIPPED / f"{name}.yaml", "paper")
    assert "schema=schema.json" not in Path(f"{name}.yaml").read_text()


def test_a_copy_overwrites_nothing(place: Path) -> None:
    assert invoke("sweeps", "copy", "adam")[0] == 0
    assert invoke("sweeps", "copy", "zaremba")[0] == 0
    code, _, err = invoke("sweeps", "copy", "adam")
    assert (code, err) == (
        2,
        "adam.yaml: is there already, and nothing is overwritten; give another name, or remove it\n",
    )
    Path("published/awd_lstm.yaml").write_text("mine\n")
    code, _, err = invoke("sweeps", "copy", "regularizers")
    assert (code, err) == (
        2,
        "published/awd_lstm.yaml: is there already, and nothing is overwritten; give another name, or remove it\n",
    )
    assert not Path("regularizers.yaml").exists()
    assert "did you mean 'adam'?" in invoke("sweeps", "copy", "adma")[2]
