"""What `plan` says before its table: what a search will train, a text that is too short, a cut beyond the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm.cpus import cpu_count
from tests.orchestrator.commands.test_command_line import invoke
from tests.support.sweep_texts import SWEEPS
from tests.support.sweeps import furnish

BASE = """\
name: tiny
question: Does it matter?
base:
  corpus: {name: corpus}
  model: {layers: 1, embedding_size: 8, hidden_size: 8, tied: false}
  optimizer: {kind: sgd, learning_rate: 5.0, clip: 0.25}
  epochs: 2
variants: {GRU: {model.cell: gru}}
seeds: [1, 2, 3]
scales:
  laptop:
    base:
      corpus: {name: corpus, train_tokens: 500}
"""
TUNE = "tune: {trials: 4, sampler: {kind: random}, space: {dropout.output: {kind: uniform, low: 0.0, high: 0.5}}}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    furnish(tmp_path, BASE, train_lines=60)
    return tmp_path


def test_a_file_that_tunes_says_first_what_it_will_train(place: Path) -> None:
    Path("tiny.yaml").write_text(BASE + TUNE)
    code, out, _ = invoke("plan", "tiny.yaml", "--scale", "paper")
    assert code == 0
    assert out.splitlines()[1:3] == [
        "to train: up to 8 search trials, then 6 for the table of results, with the values that the searches find",
        "no trial is stopped early (scheduler null); in the base gradients are clipped at 0.25, embeddings not tied",
    ]
    code, out, _ = invoke("plan", str(SWEEPS / "tuned_ablation.yaml"), "--scale", "laptop")
    assert out.splitlines()[2] == "scheduler asha; in the base gradients are clipped at 0.25, embeddings tied"


def test_a_scheduler_and_a_sampler_that_never_come_in_are_named(place: Path) -> None:
    tune = TUNE.replace("random}", "tpe}, scheduler: {kind: asha, grace_epochs: 2}")
    Path("tiny.yaml").write_text(BASE + tune)
    assert invoke("plan", "tiny.yaml", "--scale", "paper")[1].splitlines()[2] == (
        "scheduler asha, which stops none because grace_epochs (2) reach the base's epochs (2); "
        "sampler tpe, all at random because startup_trials (10) reach trials (4); "
        "in the base gradients are clipped at 0.25, embeddings not tied"
    )


def test_a_whole_model_without_its_sizes_is_a_warning_of_plan_and_of_sweep(place: Path) -> None:
    Path("tiny.yaml").write_text(BASE.replace("{model.cell: gru}", "{model: {cell: gru}}"))
    for line in (("plan",), ("sweep", "--dry-run")):
        code, _, err = invoke(line[0], "tiny.yaml", "--scale", "paper", *line[1:])
        assert code == 0 and "warning: model of 'GRU' replaces the whole part, so it has the defaults layers 3" in err


def test_the_sum_of_seeds_counts_the_baselines_own(place: Path) -> None:
    Path("tiny.yaml").write_text(BASE.replace("[1, 2, 3]", "{baseline: 6, variants: 3}"))
    assert (
        "9 trials (1 variant x 3 seeds, the baseline x 6): 9 new" in invoke("plan", "tiny.yaml", "--scale", "paper")[1]
    )
    _, _, err = invoke("plan", str(SWEEPS / "adam.yaml"), "--scale", "mimi")
    assert "unknown scale 'mimi' (did you mean 'mini'?)" in err
    Path("bare.yaml").write_text(BASE[: BASE.index("scales:")])
    assert (
        "unknown scale 'mini'; the file has no scales: leave --scale out"
        in invoke("plan", "bare.yaml", "--scale", "mini")[2]
    )


def test_a_short_test_text_is_a_warning_of_plan_and_of_sweep(place: Path) -> None:
    warning = "warning: corpus: the test text has 1,440 tokens: a difference below about"
    code, _, err = invoke("plan", "tiny.yaml", "--scale", "paper")
    assert code == 0 and err.startswith(warning)
    code, _, err = invoke("sweep", "tiny.yaml", "--scale", "paper", "--executor", "inline", "--budget", "0.0000001s")
    assert code == 3 and err.startswith(warning)
    assert "the test text" not in invoke("plan", str(SWEEPS / "adam.yaml"), "--scale", "paper")[2]


def test_what_sweep_would_fetch_or_refuse_is_a_warning(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LM_DATA", str(place / "none"))
    Path("tiny.yaml").write_text(BASE.replace("{name: corpus}\n", "{name: ptb}\n", 1))
    code, out, err = invoke("plan", "tiny.yaml", "--scale", "paper", "--cpus", "4096")
    had = f"a trial asks for 4096, this machine grants {cpu_count()}; --cpus takes fewer"
    fetched = "'ptb' is not on this machine; `sweep` fetches it, as `python -m lm corpus fetch ptb` does"
    assert (
        code == 0
        and "6 to train" in out
        and err.splitlines()
        == [
            f"warning: tiny.yaml:4: base.corpus.name: {fetched}",
            f"warning: `sweep` would not start here: resources.cpus: {had}",
        ]
    )


def test_a_missing_text_is_said_at_its_line(place: Path) -> None:
    for name in ("plan", "sweep"):
        code, _, err = invoke(name, "tiny.yaml", "--scale", "paper", "--set", "base.corpus.name=gone")
        assert code == 2 and err.startswith("--set base.corpus.name: corpus 'gone' is neither a named corpus")
    Path("tiny.yaml").write_text(BASE.replace("{model.cell: gru}", "{corpus: {name: gone}}"))
    code, _, err = invoke("plan", "tiny.yaml", "--scale", "paper")
    assert code == 2 and err.startswith("tiny.yaml:8: variants.GRU.corpus.name: corpus 'gone' is neither")


@pytest.mark.parametrize(
    ("before", "after", "options", "said"),
    [
        ("train_tokens: 500", "train_tokens: 5000", [], "tiny.yaml:13: scales.laptop.base.corpus.train_tokens: "),
        (
            "corpus: {name: corpus, train_tokens: 500}",
            "corpus.train_tokens: 5000",
            [],
            "tiny.yaml:13: scales.laptop.base.corpus.train_tokens: ",
        ),
        (
            "{model.cell: gru}",
            "{corpus.train_tokens: 5000}",
            [],
            "tiny.yaml:8: variants.GRU.corpus.train_tokens: ",
        ),
        ("", "", ["--set", "base.corpus.train_tokens=5000"], "--set base.corpus.train_tokens: "),
    ],
)
@pytest.mark.parametrize("corpus", ["corpus", "ptb"])
def test_a_cut_beyond_the_text_is_said_with_file_and_line(
    place: Path, corpus: str, before: str, after: str, options: list[str], said: str
) -> None:
    text = BASE.replace(before, after) if before else BASE
    options = [option.replace("5000", "5000000") for option in options]
    Path("tiny.yaml").write_text(text.replace("name: corpus", f"name: {corpus}").replace("5000", "5000000"))
    code, out, err = invoke("plan", "tiny.yaml", "--scale", "laptop", *options)
    tokens = {"corpus": "720", "ptb": "929,589"}[corpus]
    scale = "laptop+corpus.train_tokens=5000000" if options else "laptop"
    wrong = f"train_tokens 5,000,000 is more than the {tokens} training tokens of '{corpus}' (at scale {scale})"
    assert (code, out, err) == (2, "", f"{said}{wrong}\n")


def test_a_cut_of_the_base_is_said_once_at_its_line(place: Path) -> None:
    Path("tiny.yaml").write_text(BASE.replace("{name: corpus}", "{name: corpus, train_tokens: 5000}"))
    code, _, err = invoke("plan", "tiny.yaml", "--scale", "paper")
    assert code == 2 and err.splitlines() == [
        "tiny.yaml:4: base.corpus.train_tokens: train_tokens 5,000 is more than the 720 training tokens of 'corpus' "
        "(at scale paper)"
    ]


def test_a_batch_wider_than_its_text_is_refused_at_its_line(place: Path) -> None:
    wide = BASE.replace("epochs: 2\n", "epochs: 2\n  scoring: {valid_columns: 2000}\n").replace(
        "{GRU: {model.cell: gru}}", "{GRU: {model.cell: gru}, wide: {batch_size: 300}}"
    )
    Path("tiny.yaml").write_text(wide)
    code, out, err = invoke("plan", "tiny.yaml", "--scale", "laptop")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "tiny.yaml:8: base.scoring.valid_columns: the 1,440 validation tokens allow at most 480 columns, got 2,000 "
        "(at scale laptop)",
        "tiny.yaml:9: variants.wide.batch_size: the 500 training tokens allow at most 166 columns, got 300 "
        "(at scale laptop)",
    ]
    Path("ptb.yaml").write_text(
        BASE.replace("{name: corpus}", "{name: ptb}").replace("epochs: 2", "epochs: 2\n  batch_size: 400000")
    )
    code, _, err = invoke("plan", "ptb.yaml", "--scale", "paper")
    assert code == 2
    assert "base.batch_size: the 929,589 training tokens allow at most 309,863 columns, got 400,000" in err
