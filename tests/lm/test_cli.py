"""`python -m lm`: exit codes, what is printed, what is resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from typer.testing import CliRunner, Result

import lm
from lm.__main__ import app
from lm.command_group import grant_threads
from lm.data import fingerprint_of
from lm.record import write_record
from lm.spec import TrainSpec, trial_key
from tests.support.lm_trials import assert_same, run, settled
from tests.support.tiny import AVERAGING, tiny_spec

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line sets it for its own process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def invoke(*arguments: str | Path) -> Result:
    """The command line in this process."""
    return CliRunner().invoke(app, [*map(str, arguments), *(["--threads", "1"] if arguments[0] != "corpus" else [])])


def test_threads_are_those_asked_for_else_those_that_the_environment_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert grant_threads(None) == 3
    assert grant_threads(2) == 2 and os.environ["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    with mock.patch("os.sched_getaffinity", return_value={0, 1, 2, 3}, create=True):
        assert grant_threads(None) == 4


def write_spec(path: Path, spec: TrainSpec) -> Path:
    path.write_text(yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True)), encoding="utf-8")
    return path


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, its output to be read line by line."""
    return subprocess.Popen(
        [sys.executable, "-m", "lm", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )


def end(process: subprocess.Popen[str], signal_number: int) -> tuple[str, str]:
    process.send_signal(signal_number)
    return process.communicate(timeout=60)


def test_train_prints_its_epochs_and_scores_and_is_not_repeated(corpus_folder: Path, tmp_path: Path) -> None:
    spec = tiny_spec(corpus_folder, epochs=2, finetune={"epochs": 1})
    spec_file = write_spec(tmp_path / "spec.yaml", spec)
    first = invoke("train", spec_file, "--out", tmp_path / "run", "--device", "cpu")
    assert first.exit_code == 0, first.output
    lines = first.output.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == ["train epoch 1", "train epoch 2", "finetune-1 epoch 3"]
    assert all(
        re.search(r"valid perplexity \d+\.\d\d  training loss \d\.\d{3}  [\d,]+ tokens/s", line) for line in lines[:3]
    )
    assert "averaging" in lines[2] and lines[3].startswith("complete in")
    names = [line.split(":")[0] for line in lines[4:]]
    assert names == ["train valid", "train test", "finetune-1 valid", "finetune-1 test"]
    test = settled(tmp_path / "run").stages[1].test
    assert f"perplexity {test.perplexity:.3f} (as AWD-LSTM's code counts {test.perplexity_reference:.3f})" in lines[-1]
    assert settled(tmp_path / "run").spec == spec and settled(tmp_path / "run").threads == 1

    again = invoke("train", spec_file, "--out", tmp_path / "run", "--device", "cpu")
    assert again.exit_code == 0 and again.output.splitlines() == lines[3:]


def test_a_reader_that_goes_is_no_wrong_spec(corpus_folder: Path, tmp_path: Path) -> None:
    spec_file = write_spec(tmp_path / "spec.yaml", tiny_spec(corpus_folder, epochs=30))
    arguments = ("train", spec_file, "--out", tmp_path / "run", "--device", "cpu")
    with start(*arguments, "--checkpoint-minutes", "0") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("train epoch 1")
        process.stdout.close()
        assert process.wait(timeout=60) == 1 and "Broken pipe" not in process.stderr.read()
    assert invoke(*arguments).exit_code == 0


def test_the_folder_is_the_key_if_none_is_named(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = tiny_spec(corpus_folder, epochs=1)
    assert invoke("train", write_spec(tmp_path / "spec.yaml", spec)).exit_code == 0
    key = trial_key(spec, fingerprint_of(spec.corpus))
    assert settled(tmp_path / "runs" / key).key == key


def test_a_diverged_trial_exits_with_1_and_its_reason(corpus_folder: Path, tmp_path: Path) -> None:
    spec = tiny_spec(corpus_folder, optimizer={"kind": "sgd", "learning_rate": 1e6, "weight_decay": 1.0})
    result = invoke("train", write_spec(tmp_path / "spec.yaml", spec), "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert re.search(r"diverged in \d+ s: .*/run \(not finite in train, epoch 1, step \d+\)", result.output)
    evaluated = invoke("evaluate", tmp_path / "run")
    assert evaluated.exit_code == 2 and "train.safetensors: not there" in evaluated.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epochs: [", "spec.yaml"),
        ("", "spec.yaml"),
        ("{corpus: {name: pydoc}, epochs: 1, optimizer: {kind: sgd, learning_rate: 1e-3}, epoch: 2}", "epoch"),
        ("{corpus: {name: pydoc}, epochs: none, optimizer: {kind: sgd, learning_rate: 1e-3}}", "epochs"),
        ("{corpus: {name: ptbb}, epochs: 1, optimizer: {kind: sgd, learning_rate: 1e-3}}", "did you mean 'ptb'?"),
        (
            "{corpus: {name: pydoc, train_tokens: 99999999}, epochs: 1, optimizer: {kind: sgd, learning_rate: 1.0}}",
            "99,999,999",
        ),
    ],
    ids=["no yaml", "empty", "unknown key", "no number", "unknown corpus", "too many tokens"],
)
def test_a_wrong_spec_exits_with_2_and_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text(text)
    result = invoke("train", spec_file, "--out", tmp_path / "run")
    assert result.exit_code == 2 and said in result.stderr and "Traceback" not in result.output
    assert not (tmp_path / "run" / "record.json").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{corpus: {name: ptb}, epocs: 1, optimizer: {kind: sgd, learning_rate: 1.0}}",
            ["epocs: unknown key 'epocs' (did you mean 'epochs'?)"],
        ),
        ("{corpus: {name: ptb}, optimizer: {kind: sgd, learning_rate: 1.0}}", ["missing key 'epochs'"]),
        (
            "{corpus: {name: ptb}, epochs: 1, optimizer: {kind: sgd, learning_rat: 1.0}, dropout: {wieght: 0.5}}",
            [
                "dropout.wieght: unknown key 'wieght' (did you mean 'weight'?)",
                "optimizer.learning_rat: unknown key 'learning_rat' (did you mean 'learning_rate'?)",
            ],
        ),
        (
            "{corpus: {name: ptb}, optimizer: {kind: sgd, learning_rate: 1.0, epocs: 1}}",
            [
                "missing key 'epochs'",
                "optimizer.epocs: unknown key 'epocs' (valid here: learning_rate, weight_decay, clip, kind)",
            ],
        ),
        (
            "{corpus: {name: ptb}, epochs: 1, optimizer: {kind: sdg, learning_rate: 1.0}}",
            ["optimizer.kind: unknown kind 'sdg' (did you mean 'sgd'?)"],
        ),
        (
            "{corpus: {name: ptb}, epochs: on, optimizer: {learning_rate: 1.0}}",
            [
                "epochs: should be a whole number, got 'on'",
                "optimizer: missing key 'kind' (one of sgd, sgd_halving, sgd_decay, sgd_plateau, nt_asgd, adam)",
            ],
        ),
        ("", ["should be a mapping with corpus, optimizer, epochs, got null"]),
        ("[1]", ["should be a mapping with corpus, optimizer, epochs, got [1]"]),
    ],
)
def test_a_misspelt_key_is_told_once_and_a_missing_one_in_short(tmp_path: Path, text: str, said: list[str]) -> None:
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text(text)
    result = invoke("train", spec_file, "--out", tmp_path / "run")
    assert result.exit_code == 2 and not (tmp_path / "run").exists()
    assert sorted(result.stderr.splitlines()) == [f"{spec_file}:1: {line}" for line in said]


@pytest.mark.parametrize("command", ["train", "measure"])
def test_every_command_reads_a_spec_through_the_same_reader(tmp_path: Path, command: str) -> None:
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text("corpus: {name: ptb}\nepochs: 1\nepochs: 2\n")
    result = invoke(command, spec_file)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [f"{spec_file}:3: epochs: duplicate key 'epochs' (first at line 2)"]


@pytest.mark.parametrize("command", ["train", "measure"])
def test_a_sweep_file_is_no_spec(tmp_path: Path, command: str) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("name: toy\nquestion: Which?\nbase: {epochs: 1}\nseeds: [1]\n")
    (line,) = invoke(command, sweep).stderr.splitlines()
    assert line.startswith(f"{sweep}: expected the specification of one trial, got a sweep file") and "plan" in line


@pytest.mark.parametrize("command", ["train", "measure"])
def test_a_model_that_does_not_fit_into_memory_is_told_in_a_line(
    corpus_folder: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(f"lm.{command}.{command}", fails)
    spec_file = write_spec(tmp_path / "spec.yaml", tiny_spec(corpus_folder))
    message = "[enforce fail] DefaultCPUAllocator: can't allocate memory: 160000000000 bytes\nframe #0"
    result = invoke(command, spec_file)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [f"not enough memory for this model: {message.splitlines()[0]}"]
    message = "shapes do not match"
    assert isinstance(invoke(command, spec_file).exception, RuntimeError), "a mistake of ours stays one"


def test_a_wrong_command_line_exits_with_2(corpus_folder: Path, tmp_path: Path) -> None:
    spec_file = write_spec(tmp_path / "spec.yaml", tiny_spec(corpus_folder))
    assert invoke("train", tmp_path / "none.yaml").exit_code == 2
    assert invoke("train", spec_file, "--thread", "1").exit_code == 2
    steps = invoke("measure", spec_file, "--steps", "-3")
    assert steps.exit_code == 2 and "'--steps': " in steps.stderr and "-3" in steps.stderr
    for device in ("tpu", "cuda:99"):
        refused = invoke("train", spec_file, "--out", tmp_path / "run", "--device", device)
        assert refused.exit_code == 2 and f"device {device}: not auto, cpu or cuda" in refused.stderr
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert invoke("train", tmp_path / "binary.yaml").exit_code == 2


@pytest.mark.parametrize(
    ("corpus", "place", "rule"),
    [
        ("{name: pydoc,\n  train_tokens: 5000000}", "2: corpus.train_tokens", "train_tokens 5,000,000 is more than"),
        ("{train_start: 5000000,\n  name: pydoc}", "1: corpus.train_start", "train_start 5,000,000 is more than"),
        ("{train_tokens: 5,\n  name: pydocs}", "2: corpus.name", "corpus 'pydocs' is neither a named corpus"),
    ],
)
def test_a_corpus_that_is_wrong_is_named_with_its_line(tmp_path: Path, corpus: str, place: str, rule: str) -> None:
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text(f"corpus: {corpus}\nepochs: 1\noptimizer: {{kind: sgd, learning_rate: 1.0}}\n")
    for arguments in (("train", spec_file, "--out", tmp_path / "run"), ("measure", spec_file)):
        done = invoke(*arguments)
        assert done.exit_code == 2 and done.stderr.startswith(f"{spec_file}:{place}: {rule}"), done.output
    assert not (tmp_path / "run").exists()


def test_another_trial_in_the_folder_exits_with_2(corpus_folder: Path, tmp_path: Path) -> None:
    run(tiny_spec(corpus_folder, epochs=1), tmp_path / "run")
    other = write_spec(tmp_path / "spec.yaml", tiny_spec(corpus_folder, epochs=1, seed=2))
    result = invoke("train", other, "--out", tmp_path / "run")
    assert result.exit_code == 2 and "of another spec, text or version" in result.stderr


def test_interrupted_before_a_checkpoint_says_so(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec_file = write_spec(tmp_path / "spec.yaml", tiny_spec(corpus_folder, epochs=1))
    monkeypatch.setattr("lm.epochs.train_step", mock.Mock(side_effect=KeyboardInterrupt))
    result = invoke("train", spec_file, "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert result.stderr == "interrupted; the same command starts again: no checkpoint yet\n"


def test_interrupted_exits_with_130_and_goes_on(corpus_folder: Path, tmp_path: Path) -> None:
    spec = tiny_spec(corpus_folder, optimizer=AVERAGING, epochs=400)
    arguments = ("train", write_spec(tmp_path / "spec.yaml", spec), "--out", tmp_path / "run", "--threads", "1")
    process = start(*arguments)
    assert process.stdout is not None and process.stdout.readline().startswith("train epoch 1 ")
    printed, errors = end(process, signal.SIGINT)
    assert process.returncode == 130
    assert errors == "interrupted; the same command goes on from the last checkpoint\n"
    process = start(*arguments)
    assert process.stdout is not None
    following = process.stdout.readline()
    end(process, signal.SIGKILL)
    last = 1 + len(printed.splitlines())  # the epoch after it may have been kept and not yet printed
    assert following.startswith((f"train epoch {last + 1} ", f"train epoch {last + 2} "))


@pytest.mark.parametrize("checkpoints", [5, 60], ids=["early", "in a later epoch"])
def test_killed_by_a_signal_from_outside_and_resumed(corpus_folder: Path, tmp_path: Path, checkpoints: int) -> None:
    spec = tiny_spec(corpus_folder, epochs=4)
    spec_file = write_spec(tmp_path / "spec.yaml", spec)
    arguments = ("train", spec_file, "--out", tmp_path / "run", "--threads", "1", "--checkpoint-minutes", "0")
    process = start(*arguments)
    while process.poll() is None and not list(tmp_path.glob(f"run/checkpoints/{checkpoints:08d}")):
        time.sleep(0.001)
    end(process, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and not (tmp_path / "run" / "record.json").exists()
    assert invoke(*arguments[:-4]).exit_code == 0
    run(spec, tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_evaluate_repeats_the_scores(corpus_folder: Path, tmp_path: Path) -> None:
    run(tiny_spec(corpus_folder, epochs=2, finetune={"epochs": 1}), tmp_path)
    before = settled(tmp_path)
    result = invoke("evaluate", tmp_path)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split(":")[0] for line in lines] == ["valid", "test"]
    assert f"perplexity {before.stages[1].valid.perplexity:.3f} " in lines[0]
    assert f"perplexity {before.stages[1].test.perplexity:.3f} " in lines[1]
    assert f"{before.stages[1].test.predicted_tokens:,} tokens in 1 column" in lines[1]
    assert settled(tmp_path) == before


def test_evaluate_with_a_cache(corpus_folder: Path, tmp_path: Path) -> None:
    """Values are chosen on validation; the scores are those of a trial whose spec has that cache."""
    cache = {"window": (5, 50), "weight": (0.1, 0.3), "flatness": (0.0, 0.5), "mode": "full"}
    run(tiny_spec(corpus_folder, epochs=2, cache=cache), tmp_path / "with")
    run(tiny_spec(corpus_folder, epochs=2), tmp_path / "without")
    values = ["--window", "5,50", "--weight", "0.1,0.3", "--flatness", "0.0,0.5", "--mode", "full"]
    stage = settled(tmp_path / "with").stages[1]
    assert stage.cache is not None
    chosen = f"cache window {stage.cache.window} weight {stage.cache.weight:g} flatness {stage.cache.flatness:g}"
    for name in ("with", "without"):
        result = invoke("evaluate", tmp_path / name, *values)
        assert result.exit_code == 0, result.output
        lines = dict(line.split(": ", 1) for line in result.output.splitlines())
        assert list(lines) == [
            "valid",
            "test",
            *(f"{s}, {what}" for s in ("valid", "test") for what in ("one column", chosen)),
        ]
        assert lines[f"test, {chosen}"].startswith(f"perplexity {stage.test.perplexity:.3f} ")
        assert lines["valid, one column"].startswith(f"perplexity {stage.cache.plain_valid.perplexity:.3f} ")


def test_train_leaves_the_test_text_closed_until_it_is_asked_for(corpus_folder: Path, tmp_path: Path) -> None:
    command = (
        "train",
        write_spec(tmp_path / "spec.yaml", tiny_spec(corpus_folder, epochs=1)),
        "--out",
        tmp_path / "run",
    )
    closed = invoke(*command, "--no-test")
    assert closed.exit_code == 0 and "train valid" in closed.output and "train test" not in closed.output
    opened = invoke(*command)
    assert opened.exit_code == 0 and "train test: perplexity" in opened.output and "epoch" not in opened.output
    assert invoke(*command, "--no-test").output == opened.output


def test_a_trial_that_only_adds_a_cache_can_be_evaluated(corpus_folder: Path, tmp_path: Path) -> None:
    """Its weights were trained by the trial that it was continued from, which may be gone."""
    run(tiny_spec(corpus_folder, epochs=1), tmp_path / "other")
    cache = {"window": 5, "weight": 0.1, "flatness": 0.5}
    run(tiny_spec(corpus_folder, epochs=1, cache=cache), tmp_path / "cached", resume_from=tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / "gone")
    assert invoke("evaluate", tmp_path / "cached").exit_code == 0


def test_what_evaluate_refuses(corpus_folder: Path, tmp_path: Path) -> None:
    run(tiny_spec(corpus_folder, epochs=1), tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "record.json").write_text("{}")
    other_text = settled(tmp_path / "run")
    facts = other_text.corpus.model_copy(update={"fingerprint": "0" * 64})
    (tmp_path / "elsewhere").mkdir()
    write_record(tmp_path / "elsewhere", other_text.model_copy(update={"corpus": facts}))
    for arguments, said in (
        ((tmp_path / "empty",), "no record.json; expected the folder of a settled trial"),
        ((tmp_path / "damaged",), "not a record of this version"),
        ((tmp_path / "elsewhere",), "the record's is 0000"),
        ((tmp_path / "none",), "does not exist"),
        (
            (tmp_path / "run", "--window", "many"),
            "--window: expected numbers with commas, such as 1 or 1,2, got",
        ),
        ((tmp_path / "run", "--window", "5", "--weight", "1.5"), "--weight: should be less than 1, got 1.5"),
        ((tmp_path / "run", "--window", "5", "--mode", "partial"), "--mode: should be 'reference' or 'full', got"),
        ((tmp_path / "run", "--dynamic", "--learning-rate", "-1"), "--learning-rate: should be greater than or equal"),
        ((tmp_path / "run", "--dynamic", "--segment", "0"), "--segment: should be greater than or equal to 1, got 0"),
        ((tmp_path / "run", "--mode", "full"), "--mode: goes with --window"),
        ((tmp_path / "run", "--window", "5", "--segment", "5"), "--segment: goes with --dynamic"),
        ((tmp_path / "run", "--stage", ""), "no stage '' with weights of its own (valid here: train)"),
        ((tmp_path / "run", "--window", "9", "--weight", ""), "--weight: expected numbers with commas, "),
        ((tmp_path / "run", "--stage", "finetune"), "no stage 'finetune' with weights of its own (valid here: train)"),
    ):
        result = invoke("evaluate", *arguments)
        assert result.exit_code == 2 and said in result.stderr, (arguments, result.output)


def test_corpus_list() -> None:
    result = invoke("corpus", "list")
    assert result.exit_code == 0
    named = [line.split()[0] for line in result.output.splitlines()[1:5]]
    assert named == ["pydoc", "ptb", "wikitext-2", "wikitext-103"]
    assert re.search(r"^ptb +929,589 +73,760 +82,430 +10,000 ", result.output, re.MULTILINE)


def test_the_version_is_that_of_the_package() -> None:
    done = invoke_plain("--version")
    assert (done.exit_code, done.output) == (0, f"lm-ablation {lm.__version__}\n")


def test_help_and_nothing() -> None:
    assert {"train", "evaluate", "corpus"} <= set(invoke_plain("--help").output.split())
    assert invoke_plain("--help").exit_code == 0 and invoke_plain().exit_code == 2


def invoke_plain(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("{kind: mixture, experts: [1, 2]}", "head: head.experts lists 2 counts; the embedding and 3 layers need 4"),
        ("{kind: mixture, expert: [1]}", "head.expert: unknown key 'expert' (did you mean 'experts'?)"),
        (
            "{kind: mixture, experts: [0, 0, 0, 2], gate: uniform, prior_penalty: 0.1}",
            "head.prior_penalty: prior_penalty 0.1 has nothing to act on: the gate is uniform",
        ),
        ("{kind: adaptive}", "head: a head of kind adaptive has no matrix to tie: model.tied must be false"),
        (
            "{kind: ecoc, codebook: {kind: random, bits: 40}, loss: {kind: span_max}}",
            "head.loss: loss span_max needs a codebook with spans, random has none",
        ),
    ],
)
def test_a_head_that_does_not_fit_is_told_in_one_clear_line(tmp_path: Path, head: str, said: str) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"{{corpus: {{name: ptb}}, epochs: 1, optimizer: {{kind: sgd, learning_rate: 1.0}}, head: {head}}}")
    done = invoke("train", spec, "--out", tmp_path / "out")
    assert done.exit_code == 2 and not (tmp_path / "out").exists()
    assert f"{spec}:1: {said}" in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            "{kind: ecoc, codebook: {kind: random, bits: 4}}",
            "head.codebook.bits 4 cannot name 24 words: at least 5 are needed",
        ),
        (
            "{kind: adaptive, cutoffs: [20, 500]}",
            "head.cutoffs must rise strictly between 0 and the 24 words, got [20, 500]",
        ),
    ],
)
def test_a_head_that_does_not_fit_the_vocabulary_leaves_nothing_behind(
    tmp_path: Path, corpus_folder: Path, head: str, said: str
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"{{corpus: {{name: {corpus_folder}}}, model: {{tied: false}}, epochs: 1, "
        f"optimizer: {{kind: sgd, learning_rate: 1.0}}, head: {head}}}"
    )
    for done in (invoke("train", spec, "--out", tmp_path / "out"), invoke("measure", spec)):
        assert done.exit_code == 2 and not (tmp_path / "out").exists()
        assert done.stderr.splitlines() == [said]
