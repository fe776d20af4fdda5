"""Sampled text: its distribution, its supports, and that nobody's company matters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from typer.testing import CliRunner, Result

from lm.__main__ import app
from lm.generate import Passage, choose, generate
from lm.model import LanguageModel
from lm.samples import distinct
from lm.spec import Dropout, Generate, Model, SoftmaxHead
from tests.lm.heads.examples import Example, V
from tests.lm.heads.examples import words as word_statistics
from tests.support.lm_trials import run
from tests.support.tiny import tiny_spec
from tests.support.writers import HEADS, every_text, one_by_one, small_writer, teacher_forced, vocabulary, writer

each_head = pytest.mark.parametrize("example", HEADS, ids=lambda example: example.name)
LOG_P_1V = torch.tensor([[0.05, 0.5, 0.15, 0.3]], dtype=torch.float64).log()
EVENLY = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000


def ids(passage: Passage, words: tuple[str, ...]) -> list[int]:
    return [words.index(word) for word in passage.words]


def shares(banned: tuple[int, ...] = (), **how: float) -> list[float]:
    """How often each of four words is chosen when the numbers cover [0, 1) evenly."""
    banned_V = torch.zeros(4, dtype=torch.bool)
    banned_V[list(banned)] = True
    chosen = choose(LOG_P_1V.expand(len(EVENLY), -1), EVENLY, Generate.model_validate(how), banned_V)
    return (torch.bincount(chosen, minlength=4) / len(EVENLY)).tolist()


@each_head
def test_log_probabilities_are_those_of_teacher_forcing(example: Example) -> None:
    """Whatever changes the choice: temperature, nucleus and banned words leave the model's own numbers."""
    model, words = writer(example), vocabulary(V)
    how = Generate(words=8, samples=3, temperature=1.3, top_p=0.95, ban=("<unk>",))
    for passage in generate(model, words, how, ["w2 w3\nw4"]):
        context = [0, 2, 3, 0, 4]
        expected = teacher_forced(model, context, torch.tensor([ids(passage, words)]))
        torch.testing.assert_close(torch.tensor([passage.log_probabilities], dtype=torch.float64), expected)


@each_head
def test_together_as_one_by_one(example: Example) -> None:
    """A sample depends on its seed and number alone: not on the other samples and not on the other prompts."""
    model, words = writer(example), vocabulary(V)
    how, prompts = Generate(words=12, samples=5, top_k=20), ["", "w7 w8 w9", "w3"]
    together = generate(model, words, how, prompts)
    with one_by_one():
        alone = [passage for prompt in prompts for passage in generate(model, words, how, [prompt])]
    fewer = generate(model, words, how.model_copy(update={"samples": 2}))
    assert [passage.words for passage in together] == [passage.words for passage in alone]
    assert [passage.words for passage in fewer] == [passage.words for passage in together[:2]]
    for passage, other in zip(together, alone, strict=True):
        assert passage.log_probabilities == pytest.approx(other.log_probabilities)
    assert len({passage.words for passage in together[:5]}) == 5, "samples of a prompt differ"


def test_one_sample_alone_is_the_same_to_the_bit_in_float32_too() -> None:
    model, words = writer(HEADS[0]).float(), vocabulary(V)
    alone, together = (generate(model, words, Generate(words=12, samples=samples)) for samples in (1, 3))
    assert alone == together[:1]


def test_few_samples_of_a_large_vocabulary_are_the_same_to_the_bit_as_the_first_of_many() -> None:
    size = Model(cell="lstm", layers=1, embedding_size=100, hidden_size=100, tied=False)
    model = LanguageModel(size, SoftmaxHead(kind="softmax"), Dropout(), word_statistics(1500), torch.Generator())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    many = generate(model, vocabulary(1500), Generate(words=12, samples=20))
    for samples in (1, 2, 3, 15):
        assert generate(model, vocabulary(1500), Generate(words=12, samples=samples)) == many[:samples]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_samples_have_the_models_distribution(temperature: float) -> None:
    """Chi-square of the texts of two words against the product of the two steps' tempered probabilities."""
    count = 5
    model, words, texts_NT = small_writer(count), vocabulary(count), every_text(count, 2)
    step_NV = torch.stack(
        [
            teacher_forced(model, [0], torch.stack((texts_NT[:, 0], torch.full((count**2,), v)), dim=1))[:, 1]
            for v in range(count)
        ],
        dim=1,
    )
    first_V = teacher_forced(model, [0], torch.arange(count)[:, None])[:, 0]
    log_first_V, log_second_NV = ((x / temperature).log_softmax(-1) for x in (first_V, step_NV))
    log_p_N = log_first_V[texts_NT[:, 0]] + log_second_NV.gather(1, texts_NT[:, 1:])[:, 0]
    drawn = generate(model, words, Generate(words=2, samples=5000, temperature=temperature, seed=3))
    counts_N = np.bincount([i * count + j for i, j in (ids(passage, words) for passage in drawn)], minlength=count**2)
    expected_N = 5000 * log_p_N.exp().numpy()
    enough = expected_N >= 5
    observed = [*counts_N[enough], counts_N[~enough].sum()]
    expected = [*expected_N[enough], expected_N[~enough].sum()]
    kept = -1 if expected[-1] == 0 else None
    assert chisquare(observed[:kept], expected[:kept]).pvalue > 0.01
    uniform = chisquare(counts_N).pvalue
    assert uniform < 1e-9, "the test would see a wrong distribution"


def test_supports_and_what_remains_within_them() -> None:
    assert shares() == pytest.approx([0.05, 0.5, 0.15, 0.3])
    assert shares(top_k=2) == pytest.approx([0.0, 5 / 8, 0.0, 3 / 8], abs=0.001)
    assert shares(top_k=9) == shares()
    assert shares(top_p=0.49) == [0.0, 1.0, 0.0, 0.0]
    assert shares(top_p=0.75) == shares(top_k=2), "the fewest words that have the probability together"
    assert shares(top_p=0.81) == pytest.approx([0.0, 0.5 / 0.95, 0.15 / 0.95, 0.3 / 0.95], abs=0.001)
    assert shares(top_p=1.0) == shares()
    assert shares(banned=(1,)) == pytest.approx([0.1, 0.0, 0.3, 0.6], abs=0.001)
    assert shares(banned=(1,), top_k=1) == [0.0, 0.0, 0.0, 1.0], "a banned word takes no place among the k"
    squares = np.array([0.05, 0.5, 0.15, 0.3]) ** 2
    assert shares(temperature=0.5) == pytest.approx(list(squares / squares.sum()), abs=0.001)


def test_a_temperature_towards_0_is_greedy() -> None:
    model, words = small_writer(6), vocabulary(6)
    (greedy,) = generate(model, words, Generate(words=10, samples=1, temperature=0.0))
    context = [0]
    for word in ids(greedy, words):
        next_V = teacher_forced(model, context, torch.arange(6)[:, None])[:, 0]
        assert word == next_V.argmax()
        context.append(word)
    for temperature in (1e-5, 1e-300):
        drawn = generate(model, words, Generate(words=10, samples=4, temperature=temperature))
        assert {passage.words for passage in drawn} == {greedy.words}


def test_the_largest_number_below_1_never_reaches_a_word_without_probability() -> None:
    last = torch.tensor([np.nextafter(1.0, 0.0)])
    log_p = torch.tensor([[0.1] * 10 + [0.0]]).log()
    assert choose(log_p, last, Generate(), torch.zeros(11, dtype=torch.bool)) == 9
    assert choose(log_p, torch.zeros(1), Generate(ban=()), torch.arange(11) < 3) == 3


def test_banned_words_never_appear_and_a_sentence_ends() -> None:
    model, words = small_writer(5), vocabulary(5)
    free = generate(model, words, Generate(words=20, samples=50))
    assert {word for passage in free for word in passage.words} == set(words)
    kept = generate(model, words, Generate(words=20, samples=50, ban=("<unk>", "w3")))
    assert {word for passage in kept for word in passage.words} == {"<eos>", "w2", "w4"}
    ended = generate(model, words, Generate(words=20, samples=50), sentence=True)
    for passage, whole in zip(ended, free, strict=True):
        end = whole.words.index("<eos>") + 1 if "<eos>" in whole.words else 20
        assert passage.words == whole.words[:end] and len(passage.log_probabilities) == end
    assert min(len(passage.words) for passage in ended) < 20


@pytest.mark.parametrize(
    ("how", "prompt", "said"),
    [
        ({}, "w2 w22", r"^prompt: 'w22' is not among the 5 words of the corpus \(did you mean 'w2'\?\)$"),
        ({}, "W2", r"^prompt: 'W2' is not among .* \(did you mean 'w2'\?\)$"),
        ({"ban": ("<unknown>",)}, "", r"^ban: '<unknown>' is not .* \(did you mean '<unk>'\?\)$"),
        ({"ban": vocabulary(5)}, "", r"^ban: leaves none of 5 words$"),
    ],
)
def test_what_is_refused(how: dict[str, tuple[str, ...]], prompt: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        generate(small_writer(5), vocabulary(5), Generate.model_validate(how), [prompt])


def test_text_has_a_line_for_each_end_of_line() -> None:
    assert Passage("", ("a", "<eos>", "b", "c", "<eos>", "<eos>"), (0.0,) * 6).text == "a\nb c\n\n"


def test_distinct_n_grams() -> None:
    assert distinct([["a", "b", "a"], ["a", "b"]], 1) == 2 / 5
    assert distinct([["a", "b", "a"], ["a", "b"]], 2) == 2 / 3
    assert distinct([["a"]], 2) == 0.0


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, corpus_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("trial") / "run"
    run(tiny_spec(corpus_folder, epochs=2, finetune={"epochs": 1}), folder)
    return folder


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["generate", *map(str, arguments), "--device", "cpu", "--threads", "1"])


def test_the_command_prints_text_or_json(trial: Path) -> None:
    plain = invoke(trial, "--samples", "2", "--words", "30", "--prompt", "w1 w8", "--ban", "<eos>")
    assert plain.exit_code == 0, plain.output
    first, gap, second = plain.stdout.splitlines()
    assert gap == "" and first != second and first.startswith("w1 w8 ") and len(first.split()) == 32
    rich = invoke(trial, "--samples", "2", "--words", "30", "--prompt", "w1 w8", "--ban", "<eos>", "--json")
    lines = [json.loads(line) for line in rich.stdout.splitlines()]
    assert [f"w1 w8 {line['text']}" for line in lines] == [first, second]
    assert [line["prompt"] for line in lines] == ["w1 w8"] * 2 and len(lines[0]["words"]) == 30
    assert lines[0]["log_probability"] == pytest.approx(sum(lines[0]["log_probabilities"]))
    assert invoke(trial, "--seed", "2").stdout != invoke(trial).stdout == invoke(trial, "--seed", "1").stdout
    assert (
        invoke(trial, "--stage", "train").stdout != invoke(trial, "--stage", "finetune-1", "--temperature", "0").stdout
    )


def test_the_command_searches_with_a_beam(trial: Path) -> None:
    found = invoke(trial, "--beam", "--samples", "3", "--words", "6", "--json", "--prompt", "w1", "--prompt", "w2")
    totals = [json.loads(line)["log_probability"] for line in found.stdout.splitlines()]
    assert len(totals) == 6 and totals[:3] == sorted(totals[:3], reverse=True)
    narrow = invoke(trial, "--beam", "--width", "1", "--words", "6")
    assert narrow.stdout == invoke(trial, "--temperature", "0", "--words", "6").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--top-p", "1.5"], "--top-p: should be less than or equal to 1, got 1.5"),
        (["--temperature", "-1"], "--temperature: should be greater than or equal to 0, got -1.0"),
        (["--temperature", "nan"], "--temperature: should be "),
        (["--samples", "0", "--words", "0"], "--words: should be greater than or equal to 1, got 0\n--samples: "),
        (["--beam", "--top-k", "3"], "--top-k: a beam draws nothing"),
        (["--width", "3"], "--width: is of a beam; add --beam"),
        (["--beam", "--width", "3", "--samples", "4"], "--samples: a beam has as many texts as its width, 3, got 4"),
        (["--temperature", "0", "--top-k", "3"], "--top-k: at temperature 0 nothing is drawn"),
        (["--temperature", "0", "--samples", "2"], "--samples: at temperature 0 nothing is drawn"),
        (["--prompt", "w1 w99"], "prompt: 'w99' is not among the 24 words of the corpus (did you mean 'w9'?)"),
        (["--stage", "finetune-2"], "no stage 'finetune-2' with weights of its own (did you mean 'finetune-1'?)"),
    ],
)
def test_what_the_command_refuses(trial: Path, arguments: list[str], said: str) -> None:
    refused = invoke(trial, *arguments)
    assert refused.exit_code == 2 and said in refused.stderr and refused.stdout == ""


def test_the_command_needs_a_settled_trial(tmp_path: Path) -> None:
    refused = invoke(tmp_path)
    assert refused.exit_code == 2 and "no record.json; expected the folder of a settled trial" in refused.stderr
