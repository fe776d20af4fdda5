"""Words that one model gains and loses over another, and those of the neural cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner, Result

from lm.__main__ import app
from lm.by_token.losses import read_cache, read_cache_run, read_run
from lm.by_token.words import Word, vocabulary_of, word_savings
from lm.cache import active_positions
from lm.data import EncodedCorpus
from lm.record import opened, read_record, token_nats_path
from lm.train import train
from lm.yaml_text import read_yaml_file
from tests.support.tiny import tiny_spec, write_corpus

ROOT = Path(__file__).parents[3]
TOKENS = np.array([2, 0, 2, 1, 2], dtype=np.int32)


def test_savings_are_summed_by_word_and_averaged_over_pairs() -> None:
    one, two = np.array([1.0, -3.0, 0.5, 0.25, 2.0]), np.array([-2.0, -1.0, 0.5, 0.25, 0.5])
    found = word_savings([(TOKENS, one), (TOKENS, two)], ("a", "b", "c", "never"))
    assert found.most(9, helped=True) == [Word("c", 3, 1.25, 1), Word("b", 1, 0.25, 2)]
    assert found.most(9, helped=False) == [Word("a", 1, -2.0, 2)]
    assert found.most(1, helped=True) == [Word("c", 3, 1.25, 1)]
    assert found.of("b") == Word("b", 1, 0.25, 2) and found.of("d") is None
    assert found.total == pytest.approx((one.sum() + two.sum()) / 2)


def test_all_forty_words_of_table_3_are_counted_where_the_cache_is_used(wikitext2: EncodedCorpus) -> None:
    """Merity et al. (2017), table 3: WikiText-2's validation text, window 3785, chunks of 5000."""
    rows = read_yaml_file(ROOT / "sweeps/published/awd_lstm.yaml")
    printed = {str(row["word"]): row["count"] for row in rows if row["metric"] == "delta_loss_sum_nats"}
    assert len(printed) == 40
    targets = wikitext2.valid[1:]
    used_N = active_positions(len(targets), 3785, "reference", 5000, torch.device("cpu")).numpy()
    found = word_savings([(targets[used_N], np.ones(used_N.sum()))], wikitext2.vocabulary)
    words = {text: found.of(text) for text in printed}
    assert {text: word.count for text, word in words.items() if word} == printed
    assert found.total == 213_816


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a small model, `1` with a cache."""
    place = tmp_path_factory.mktemp("runs")
    corpus = write_corpus(place / "corpus")
    cache = {"window": 20, "weight": 0.3, "flatness": 0.5, "chunk": 100}
    list(train(tiny_spec(corpus, seed=1, epochs=1, cache=cache), out=place / "1"))
    list(train(tiny_spec(corpus, seed=2, epochs=1), out=place / "2"))
    return place


def test_a_trial_keeps_the_losses_of_its_cache_with_and_without_it(runs: Path) -> None:
    record = read_record(runs / "1")
    assert record is not None and record.stages[1].cache is not None
    plain = {"valid": record.stages[1].cache.plain_valid, "test": opened(record.stages[1].cache.plain_test)}
    for split in ("valid", "test"):
        path = token_nats_path(runs / "1", "cache", split)  # type: ignore[arg-type]
        table = pq.read_table(path).to_pydict()
        without, nats, used = (np.array(table[name]) for name in ("nats_without_cache", "nats", "cache_used"))
        assert without.mean(dtype=np.float64) == pytest.approx(plain[split].nats_per_token, rel=1e-6)
        index = np.arange(len(used))
        assert np.array_equal(used, (index > 20) & (index % 100 != 0))
        assert np.array_equal(nats[used == 0], without[used == 0]) and (nats != without)[used == 1].any()
        read = read_cache(path)
        assert read is not None
        assert np.array_equal(read[0].nats, nats[used == 1]) and np.array_equal(read[1], without[used == 1])
    assert read_cache(token_nats_path(runs / "1", "train", "test")) is None


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["analyze", "words", *map(str, arguments)])


def test_the_command_lists_what_the_second_run_saves(runs: Path) -> None:
    done = invoke(runs / "1", runs / "2", "--stage", "train")
    assert done.exit_code == 0, done.output
    first, second = (read_run(runs / name, "test", "train") for name in "12")
    vocabulary = vocabulary_of(first.record)
    saved = first.losses.nats - second.losses.nats
    by_word = {word: saved[first.losses.token == k].sum() for k, word in enumerate(vocabulary)}
    head, gained, *lines = done.stdout.splitlines()
    assert head == f"{saved.size:,} tokens of test, {saved.sum():,.2f} nats saved" and gained.startswith("gained")
    (lost,) = [number for number, line in enumerate(lines) if line.startswith("lost")]
    for part, sign in ((lines[:lost], -1), (lines[lost + 1 :], 1)):
        expected = sorted((sign * nats, word) for word, nats in by_word.items() if sign * nats < 0)[:20]
        assert [line.split()[0] for line in part] == [word for _, word in expected]
        assert [float(line.split()[2]) for line in part] == pytest.approx([sign * n for n, _ in expected], abs=0.005)
    assert len(invoke(runs / "1", runs / "2", "--stage", "train", "--most", "1").stdout.splitlines()) == 5


def test_of_one_run_it_lists_what_the_cache_saves(runs: Path) -> None:
    done = invoke(runs / "1", "--split", "valid")
    run, plain = read_cache_run(runs / "1", "valid")
    assert done.stdout.startswith(f"{plain.size:,} tokens of valid, {(plain - run.losses.nats).sum():,.2f} nats saved")


def test_what_has_no_words_is_one_line_and_exit_code_2(runs: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ((runs / "2",), f"{runs / '2'}: no stage 'cache' was scored on test (valid here: train)"),
        ((runs / "1", "--stage", "train"), "--stage: goes with two runs; of one its neural cache is read, got train"),
        ((runs / "1", runs / "2", "--split", "valid"), "tokens in other columns, not"),
        ((runs / "1", runs / "2", runs / "1"), "RUN: should be one run with a neural cache, or two, got"),
        ((runs / "2", runs / "2", "--most", "0"), "0"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 2 and message in done.stderr, done.output
    corpus = runs / "corpus" / "train.txt"
    before = corpus.read_text(encoding="utf-8")
    corpus.write_text(before + "w1\n", encoding="utf-8")
    done = invoke(runs / "2", runs / "2")
    corpus.write_text(before, encoding="utf-8")
    assert done.exit_code == 2 and "the record's is" in done.stderr
