"""Candidates ranked again: what the ranking is made of, and that it mends a damaged grammar's choices."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from typer.testing import CliRunner, Result

from lm.__main__ import app
from lm.brackets import brackets, labelled_f1
from lm.rerank import Candidate, Candidates, log_probabilities, rerank, tree_scores
from tests.lm.heads.examples import Example, V
from tests.support.grammar import parsed, write_treebank
from tests.support.lm_trials import run
from tests.support.tiny import tiny_spec
from tests.support.writers import HEADS, small_writer, teacher_forced, vocabulary, writer

THE, TREE = "(S (NP the dog )NP (VP sees )VP )S", "(S (NP the dog )NP (XP sees )XP )S"


def inputs(*texts: tuple[str, ...], score: float | None = None) -> list[Candidates]:
    return [Candidates(candidates=tuple(Candidate(text=text, score=score) for text in of)) for of in texts]


@pytest.mark.parametrize("example", HEADS, ids=lambda example: example.name)
def test_texts_of_many_lengths_together_as_each_alone(example: Example) -> None:
    model = writer(example)
    noise = torch.Generator().manual_seed(2)
    texts = [[*torch.randint(1, V, (length,), generator=noise).tolist(), 0] for length in (3, 0, 9, 3, 1, 14, 6)]
    expected = [float(teacher_forced(model, [0], torch.tensor([text])).sum()) for text in texts]
    assert log_probabilities([model], texts, eos=0) == pytest.approx(expected)
    with mock.patch("lm.rerank._BATCH_TOKENS", 20):
        assert log_probabilities([model], texts, eos=0) == pytest.approx(expected)


def test_an_ensemble_averages_probabilities_word_by_word() -> None:
    """Of copies of one model it is the model; no word is worse than the mean of the models' losses (Jensen)."""
    one, other, texts = small_writer(6), small_writer(6, "gru"), [[2, 3, 5, 0], [4, 0], [3, 3, 0]]
    alone = log_probabilities([one], texts, eos=0)
    assert log_probabilities([one, one, one], texts, eos=0) == pytest.approx(alone)
    mixed = log_probabilities([one, other], texts, eos=0)
    for text, log_p in zip(texts, mixed, strict=True):
        of_models = torch.stack([teacher_forced(model, [0], torch.tensor([text]))[0] for model in (one, other)])
        mean = of_models.exp().mean(dim=0).log()
        assert log_p == pytest.approx(float(mean.sum())) and (mean >= of_models.mean(dim=0)).all()


def test_each_ranking_is_the_arithmetic_that_it_says() -> None:
    model, words = small_writer(6), vocabulary(6)
    texts = ("w2 w3", "w2 w3 w4 w5 w5", "w4", "w3 w3 w3")
    of = Candidates(candidates=tuple(Candidate(text=t, score=-i) for i, t in enumerate(texts)), id="x")
    log_p = [
        float(teacher_forced(model, [0], torch.tensor([[words.index(w) for w in (*text.split(), "<eos>")]])).sum())
        for text in texts
    ]
    (total,), (mean,), (mixed,) = (
        list(rerank([model], words, [of], rule, 2.5)) for rule in ("total", "mean", "interpolated")
    )
    assert total.tokens == (3, 6, 2, 4) and total.scores == total.log_probabilities == pytest.approx(log_p)
    assert mean.scores == pytest.approx([log_p[0] / 3, log_p[1] / 6, log_p[2] / 2, log_p[3] / 4])
    assert mixed.scores == pytest.approx([log_p[0], log_p[1] - 2.5, log_p[2] - 5.0, log_p[3] - 7.5])
    for ranked in (total, mean, mixed):
        assert ranked.best == max(range(4), key=lambda i: ranked.scores[i])
    assert next(rerank([model], words, [of], "interpolated", 0.0)).scores == total.scores
    (tie,) = rerank([model], words, inputs(("w2", "w3 w4", "w2")), "total")
    assert tie.best != 2, "of equal ones the first"


def test_results_come_while_the_input_is_still_read() -> None:
    read = 0

    def endless() -> Iterator[Candidates]:
        nonlocal read
        while True:
            read += 1
            yield inputs(("w2 w3", "w4"))[0]

    with mock.patch("lm.rerank._CHUNK_TEXTS", 6):
        results = rerank([small_writer(6)], vocabulary(6), endless())
        assert [next(results).best for _ in range(7)].count(0) in (0, 7) and read == 9


def test_words_that_the_corpus_lacks_are_unknown_ones() -> None:
    model, words = small_writer(6), vocabulary(6)
    known, unknown = rerank([model], words, inputs(("w2 <unk>",), ("w2 w77",)))
    assert known.scores == unknown.scores
    with pytest.raises(ValueError, match=r"^'w77' is not among the 6 words of the corpus, which has no <unk>$"):
        list(rerank([model], ("<eos>", "w1", *words[2:]), inputs(("w2 w77",))))


def test_labelled_f1() -> None:
    found, words = brackets("(S (NP the dog )NP (VP (VP sees )VP )VP )S")
    assert words == ["the", "dog", "sees"]
    assert found == {("S", 0, 3): 1, ("NP", 0, 2): 1, ("VP", 2, 3): 2}
    assert labelled_f1([(THE, THE)]) == 1.0
    assert labelled_f1([(TREE, THE)]) == pytest.approx(2 / 3)
    assert labelled_f1([("(S the dog sees )S", THE)]) == pytest.approx(2 * 1 / (1 + 3))
    assert labelled_f1([(TREE, THE), (THE, THE)]) == pytest.approx(5 / 6), "over all brackets, not a mean over trees"
    doubled = "(S (NP the dog )NP (VP (VP sees )VP )VP )S"
    assert labelled_f1([(doubled, THE)]) == pytest.approx(6 / 7), "a bracket that occurs twice needs two"
    assert labelled_f1([("( the", "( the")]) == 0.0, "a bracket without a label is a word"


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ("(S a )NP", r"^'\)NP' closes '\(S'$"),
        ("a )NP", r"^'\)NP' closes 'nothing'$"),
        ("(S (NP a )NP", r"^'\(S' is never closed$"),
        ("(S b )S", "has other words than the true tree"),
    ],
)
def test_trees_that_are_none(tree: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        labelled_f1([(tree, "(S a )S")])


@pytest.fixture(scope="module")
def treebank_trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the grammar's trees."""
    place = tmp_path_factory.mktemp("treebank")
    spec = tiny_spec(
        write_treebank(place / "corpus"),
        model={"layers": 1, "embedding_size": 24, "hidden_size": 24},
        dropout={},
        penalties=None,
        bptt={"kind": "fixed", "length": 24},
        optimizer={"kind": "adam", "learning_rate": 0.01},
        batch_size=16,
        epochs=6,
    )
    run(spec, place / "run")
    return place / "run"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["rerank", *map(str, arguments), "--device", "cpu", "--threads", "1"])


def written(folder: Path, lines: list[str]) -> Path:
    path = folder / "candidates.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("score", ["total", "interpolated"])
def test_the_model_mends_the_choices_of_a_damaged_grammar(treebank_trial: Path, tmp_path: Path, score: str) -> None:
    """The true tree is always among the candidates; the damaged grammar prefers another."""
    given = parsed(80, seed=9)
    done = invoke(
        treebank_trial, written(tmp_path, [of.model_dump_json(exclude_none=True) for of in given]), "--score", score
    )
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["id"] for line in lines] == list(range(80))
    assert all(line["text"] == of.candidates[line["best"]].text for line, of in zip(lines, given, strict=True))
    count, scores = tree_scores([(of, line["best"]) for line, of in zip(lines, given, strict=True)])
    assert count == 80 and scores["each input's best"] == 1.0
    assert 0.8 < scores["the first model's best"] < 0.9 and scores["the best"] > 0.99
    said = ", ".join(f"{f1:.4f} of {name}" for name, f1 in scores.items())
    assert done.stderr == f"labelled F1 over 80 trees: {said}\n"


def test_the_command_takes_an_ensemble_of_one_vocabulary(
    treebank_trial: Path, tmp_path: Path, corpus_folder: Path
) -> None:
    path = written(tmp_path, [of.model_dump_json(exclude_none=True) for of in parsed(3, seed=9)])
    alone, twice = invoke(treebank_trial, path), invoke(treebank_trial, path, "--also", treebank_trial)
    for line, other in zip(alone.stdout.splitlines(), twice.stdout.splitlines(), strict=True):
        assert json.loads(line)["scores"] == pytest.approx(json.loads(other)["scores"])
    run(tiny_spec(corpus_folder, epochs=1), tmp_path / "other")
    refused = invoke(treebank_trial, path, "--also", tmp_path / "other")
    assert refused.exit_code == 2 and refused.stdout == ""
    assert refused.stderr == f"--also {tmp_path / 'other'}: its corpus has other words than that of {treebank_trial}\n"


@pytest.mark.parametrize(
    ("line", "options", "said"),
    [
        ("{", [], ":2: invalid JSON"),
        ('{"candidates": []}', [], ":2: candidates: should not be empty, got []"),
        ('{"candidates": [{"txt": "the"}]}', [], ":2: candidates.0.txt: unknown key 'txt' (did you mean 'text'?)"),
        ('{"candidates": [{"text": "the"}, {"text": "a"}]}', [], ":2: candidates.1: 'a' is not among the "),
        ('{"candidates": [{"text": "the"}]}', ["--score", "interpolated"], ":2: candidates.0: no score of 'the'"),
        ('{"candidates": [{"text": "the"}], "gold": "(S the"}', [], ":2: candidates.0: '(S' is never closed"),
        ('{"candidates": [{"text": "the"}], "gold": "dog"}', [], "has other words than the true tree"),
        ('{"candidates": [{"text": " "}]}', [], ":2: candidates.0.text: "),
        ('{"id": true, "candidates": [{"text": "the"}]}', [], ":2: id: should be text"),
        ('{"candidates": [{"text": "the", "score": "1"}]}', [], ":2: candidates.0.score: should be a number"),
        (
            '{"candidates": [{"text": "the", "score": -1e300}]}',
            ["--score", "interpolated", "--weight", "1e300"],
            ":2: candidates.0: the score -1e+300 times the weight 1e+300 is infinite",
        ),
        ('{"candidates": [{"text": "the"}]}', ["--weight", "2"], "--weight: is of the candidate's own score; add"),
        ("", ["--score", "interpolated", "--weight", "nan"], "--weight: should be a finite number, got nan"),
    ],
)
def test_what_is_refused_before_anything_is_scored(
    treebank_trial: Path, tmp_path: Path, line: str, options: list[str], said: str
) -> None:
    path = written(tmp_path, ['{"candidates": [{"text": "(S the dog )S", "score": -1}]}', line])
    refused = invoke(treebank_trial, path, *options)
    assert refused.exit_code == 2 and refused.stdout == "" and said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_pipe_which_cannot_be_read_twice_is_refused(treebank_trial: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused = invoke(treebank_trial, tmp_path / "pipe")
    assert refused.exit_code == 2
    assert refused.stderr == f"{tmp_path / 'pipe'}: should be a regular file, because it is read twice\n"


def test_an_empty_file_is_refused(treebank_trial: Path, tmp_path: Path) -> None:
    refused = invoke(treebank_trial, written(tmp_path, []))
    assert refused.exit_code == 2 and refused.stderr.endswith("candidates.jsonl: has no line of JSON\n")
