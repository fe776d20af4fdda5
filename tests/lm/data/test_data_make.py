"""A corpus made of raw text, and whether a test text can tell models apart."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lm.data import corpus_warnings, load
from lm.data.commands import app
from lm.data.make import Tokenizer, make_corpus
from lm.data.suitable import ENOUGH_TEST_TOKENS, FEWEST_TEST_TOKENS
from lm.data.text import SPLITS
from lm.record import CorpusFacts
from lm.spec import Corpus
from lm.yaml_text import read_yaml
from tests.lm.data.toy_corpus import write_texts

TEXT = "".join(
    f"line {number} has The cat, 1,5{number} cats and\u2028a cat's word{number % 7}.\n\n" for number in range(200)
)


@pytest.fixture
def raw(places: Path) -> Path:
    path = places / "here" / "raw.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["make", *map(str, arguments)])


def lines(folder: Path, split: str) -> list[str]:
    return (folder / f"{split}.txt").read_text(encoding="utf-8").splitlines()


def test_the_three_stretches_are_the_text_in_its_order(raw: Path) -> None:
    assert run(raw, "--out", "mine").exit_code == 0
    made = [lines(Path("mine"), split) for split in SPLITS]
    assert [len(part) for part in made] == [160, 20, 20]
    expected = [" ".join(line.split()) for line in TEXT.split("\n") if line]
    assert [line for part in made for line in part] == expected
    assert run(raw, "--out", "halves", "--split", "2,1,1").exit_code == 0
    assert [len(lines(Path("halves"), split)) for split in SPLITS] == [100, 50, 50]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (Tokenizer(), "The cat's 1,500 well-known (N.N.) words... <unk> - said: -3"),
        (Tokenizer(lower=True), "the cat's 1,500 well-known (n.n.) words... <unk> - said: -3"),
        (Tokenizer(tokenize=True), "The cat's 1,500 well-known ( N . N . ) words ... <unk> - said : - 3"),
        (Tokenizer(numbers=True), "The cat's N well-known (N.N.) words... <unk> - said: N"),
        (
            Tokenizer(lower=True, tokenize=True, numbers=True),
            "the cat's N well-known ( n . n . ) words ... <unk> - said : - N",
        ),
    ],
)
def test_words_of_a_line(words: Tokenizer, expected: str) -> None:
    assert " ".join(words.of("The cat's 1,500\twell-known (N.N.) words... <unk> - said: -3\r\n")) == expected
    assert words.of(" \t\n") == []


def test_characters_that_only_format_are_no_words() -> None:
    text = "co\u00adoperate x\u200by \u0645\u06cc\u200c\u0631\u0648\u0645 \u200ea\u200f, I \u2764\ufe0f you!!\n"
    joined = ["cooperate", "xy", "\u0645\u06cc\u200c\u0631\u0648\u0645"]
    assert Tokenizer(tokenize=True).of(text) == [*joined, "a", ",", "I", "\u2764\ufe0f", "you", "!!"]


def test_a_word_keeps_its_combining_marks() -> None:
    assert Tokenizer(tokenize=True).of("हिन्दी भाषा, de\u0301ja\u0300") == ["हिन्दी", "भाषा", ",", "de\u0301ja\u0300"]


@pytest.mark.parametrize("limit", [{"min_count": 1}, {"vocabulary_cap": 5000}])
def test_no_word_is_unknown_if_none_of_training_is(raw: Path, limit: dict[str, int]) -> None:
    made = make_corpus(raw, Path("mine"), Tokenizer(), **limit)
    assert [split.unknown for split in made] == [0, 0, 0] and made[2].unseen > 0
    facts = load(Corpus(name="mine")).facts
    assert facts.vocabulary_rule.endswith("words that only validation and test have follow (there is no <unk>)")


def test_rare_words_are_unknown_by_the_training_part_alone(raw: Path) -> None:
    whole = make_corpus(raw, Path("whole"), Tokenizer())
    counts = Counter(word for line in lines(Path("whole"), "train") for word in line.split())
    limited = make_corpus(raw, Path("rare"), Tokenizer(), min_count=2)
    kept = {word for word, count in counts.items() if count >= 2}
    for split in SPLITS:
        for before, after in zip(lines(Path("whole"), split), lines(Path("rare"), split), strict=True):
            assert after.split() == [word if word in kept else "<unk>" for word in before.split()]
    assert [split.unknown for split in whole] == [0, 0, 0] and limited[0].unknown == 320
    assert [split.unseen for split in limited] == [split.unseen for split in whole] == [0, 40, 40]
    capped = make_corpus(raw, Path("capped"), Tokenizer(), vocabulary_cap=6)
    assert capped[0].types == 6
    assert len(load(Corpus(name="capped")).vocabulary) == 6
    assert set(" ".join(lines(Path("capped"), "train")).split()) == {
        "<unk>", *(word for word, _ in counts.most_common(4))
    }  # fmt: skip


def test_the_table_is_what_the_corpus_is_and_its_yaml_reads_it(raw: Path) -> None:
    done = run(raw, "--out", 'my "own", text', "--tokenize", "--min-count", "3")
    assert done.exit_code == 0, done.output
    read = read_yaml(done.stdout.partition("In a sweep file:\n")[2]).data
    facts = load(Corpus.model_validate(read["base"]["corpus"])).facts
    rows = {row.split()[0]: row.split() for row in done.stdout.splitlines()[1:4]}
    tokens = {"train": facts.train_tokens, "valid": facts.valid_tokens, "test": facts.test_tokens}
    assert {split: int(row[2].replace(",", "")) for split, row in rows.items()} == tokens
    assert int(rows["train"][3]) == facts.vocabulary_size
    assert rows["test"][4:] == ["14.3%", "14.3%"]  # two of 14: the line's number, and 1,5 with it


def test_a_folder_is_read_file_by_file(raw: Path) -> None:
    write_texts(Path("texts"), {"b": "the last line\n" * 50 + "end", "a": TEXT, "c": "\ufeffafter the others\n" * 9})
    (Path("texts") / "notes.md").write_text("left out", encoding="utf-8")
    assert run("texts", "--out", "mine").exit_code == 0
    every = [line for split in SPLITS for line in lines(Path("mine"), split)]
    assert every[200:] == ["the last line"] * 50 + ["end", "after the others"] + ["\ufeffafter the others"] * 8


def test_what_make_refuses(raw: Path) -> None:
    Path("latin.txt").write_bytes(TEXT.encode() + "caf\u00e9\n".encode("latin-1"))
    Path("one.txt").write_text("a text " * 500, encoding="utf-8")
    Path("short.txt").write_text("a b c\n" * 100, encoding="utf-8")
    Path("marked.txt").write_text("a b c\nb <eos> c\n", encoding="utf-8")
    (Path("empty")).mkdir()
    (Path("taken")).mkdir()
    (Path("taken") / "notes").write_text("mine", encoding="utf-8")
    os.mkfifo("pipe")
    for arguments, said in (
        (("nowhere.txt", "--out", "mine"), "nowhere.txt: cannot be read: No such file"),
        (("latin.txt", "--out", "mine"), "latin.txt:401: not UTF-8 text"),
        (("one.txt", "--out", "mine"), "1 lines with words leave none for valid and test"),
        (("short.txt", "--out", "mine"), "the test text has 40 tokens: too few to tell any two models apart"),
        (("marked.txt", "--out", "mine"), "marked.txt:2: the text has the word <eos>"),
        (("empty", "--out", "mine"), "the folder has no .txt file"),
        (("pipe", "--out", "mine"), "pipe: cannot be read: is not a regular file"),
        ((raw, "--out", "taken"), "--out taken: is there already"),
        ((raw, "--out", "raw.txt"), "--out raw.txt: is there already"),
        ((raw, "--out", "data/ptb"), "'ptb' is the name of a published corpus"),
        ((raw, "--out", "mine", "--split", "80,20"), "--split: expected three numbers above 0"),
        ((raw, "--out", "mine", "--split", "80,20,nan"), "--split: expected three numbers above 0"),
        ((raw, "--out", "mine", "--split", "1e308,1e308,1e308"), "--split: expected three numbers above 0"),
        ((raw, "--out", "mine", "--min-count", "2", "--vocabulary-cap", "9"), "give one of them"),
        ((raw, "--out", "mine", "--vocabulary-cap", "2"), "--vocabulary-cap"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2 and said in done.stderr, (arguments, done.output)
        assert done.stdout == "" and not Path("mine").exists()


def test_a_test_text_that_tells_little_gives_a_warning(raw: Path) -> None:
    done = run(raw, "--out", "mine")
    short, unseen = done.stderr.splitlines()
    assert done.exit_code == 0
    assert short == (
        "warning: the test text has 240 tokens: a difference below about 13.8% in perplexity cannot be seen "
        "(10,000 tokens show 2.0%)"
    )
    assert unseen.startswith("warning: 16.7% of the test tokens are not among the ")
    assert corpus_warnings(load(Corpus(name="mine"))) == [line.removeprefix("warning: ") for line in (short, unseen)]
    checked = CliRunner().invoke(app, ["check", "mine"])
    assert checked.exit_code == 0 and checked.stderr == done.stderr


def test_what_is_warned_of() -> None:
    def warned(test: int, unseen: int) -> list[str]:
        folder = write_texts(
            Path(f"{test}-{unseen}"),
            {"train": "a b\n" * 9, "valid": "a b\n", "test": "a b\n" * (test // 3) + "new\n" * unseen},
        )
        return [line.split(":")[0] for line in corpus_warnings(load(Corpus(name=str(folder))))]

    assert warned(ENOUGH_TEST_TOKENS + 2, 0) == []
    assert warned(ENOUGH_TEST_TOKENS - 1, 0) == ["the test text has 9,999 tokens"]
    assert warned(ENOUGH_TEST_TOKENS + 2, 1000) == [
        "8.3% of the test tokens are not among the 27 training tokens (more than 5%)"
    ]
    assert warned(ENOUGH_TEST_TOKENS + 2, 500) == []
    tiny = corpus_warnings(load(Corpus(name=str(write_texts(Path("t"), dict.fromkeys(SPLITS, "a b\n"))))))
    assert tiny == [
        "the test text has 3 tokens: too few to tell any two models apart (at least 100; 10,000 are enough)"
    ] and FEWEST_TEST_TOKENS == 100  # fmt: skip


def test_a_validation_text_that_is_unlike_the_test_text_gives_a_warning() -> None:
    train = "a b\n" * 9000 + "c d\n" * 1000
    folder = write_texts(Path("apart"), {"train": train, "valid": "c d\n" * 4000, "test": "a b\n" * 4000})
    (apart,) = corpus_warnings(load(Corpus(name=str(folder))))
    # Of 30,006 counts with one added, a and b have 9,001 each, c and d 1,001, `<eos>` 10,001: exp of the mean loss.
    assert apart.startswith("validation and test are unlike each other: by training's word frequencies alone")
    assert "their perplexities are 14 and 3;" in apart


def test_a_cut_training_text_lacks_words_of_the_vocabulary() -> None:
    folder = write_texts(
        Path("cut"), {"train": "a b\n" * 5000 + "c d\n" * 5000, "valid": "a\n", "test": "a c\n" * 5000}
    )
    assert corpus_warnings(load(Corpus(name=str(folder)))) == []
    unseen, apart = corpus_warnings(load(Corpus(name=str(folder), train_tokens=9000)))
    assert unseen.startswith("33.3% of the test tokens are not among the 9,000 training tokens")
    assert apart.startswith("validation and test are unlike each other")


@pytest.mark.parametrize("name", ["pydoc", "ptb", "wikitext-2"])
def test_the_corpora_that_ship_give_no_warning(name: str, real: object) -> None:
    if name != "pydoc":
        real(name)  # type: ignore[operator]
    corpus = load(Corpus(name=name), download=False)
    assert corpus_warnings(corpus) == [] and isinstance(corpus.facts, CorpusFacts)
