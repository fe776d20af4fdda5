"""Errors of codes bit by bit: what correction mends for certain, and the same counts as the head's own measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lm.analyze.ask import analyze
from lm.analyze.code_errors import Tally
from lm.analyzed import CodeErrorsFound
from lm.codebooks import Codebook
from lm.codebooks.distance import minimum_distance
from lm.heads import Outputs, Words
from lm.heads.ecoc import Ecoc
from lm.spec import CodeErrorsAnalysis, EcocHead, RandomCode, UnigramCode
from tests.lm.heads.handmade import random_code, rank_code
from tests.support.lm_trials import run, settled
from tests.support.tiny import even, tiny_spec

WORDS, BITS = 30, 40
ASKED = CodeErrorsAnalysis(kind="code_errors")


def bits_head(book: Codebook, code: RandomCode | UnigramCode) -> Ecoc:
    """A head whose logits are its inputs."""
    words = Words(even(WORDS).counts_V, book)
    head = Ecoc(EcocHead(kind="ecoc", codebook=code), book.bits, words, torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.weight_CH.copy_(torch.eye(book.bits))
    return head


def flipped(head: Ecoc, targets_T: torch.Tensor, flips: list[list[int]]) -> Outputs:
    """Outputs with every bit of the target's codeword right but these."""
    logits_TC = head.codes.signs(targets_T)
    for row, places in enumerate(flips):
        logits_TC[row, places] *= -1
    return Outputs((), (logits_TC[:, None],))


def counted(head: Ecoc, outputs: Outputs, targets_T: torch.Tensor) -> CodeErrorsFound:
    tally = Tally(head)
    tally.add(outputs, targets_T[:, None])
    return tally.found()


def test_as_many_flips_as_the_code_corrects_are_mended_and_counted_where_they_are() -> None:
    book = random_code(WORDS, BITS)
    head = bits_head(book, RandomCode(kind="random", bits=BITS))
    radius = (minimum_distance(book) - 1) // 2
    assert radius >= 2
    chance = torch.Generator().manual_seed(1)
    targets_T = torch.randint(WORDS, (200,), generator=chance)
    flips = [torch.randperm(BITS, generator=chance)[: row % (radius + 1)].tolist() for row in range(200)]
    found = counted(head, flipped(head, targets_T, flips), targets_T)
    assert (found.corrected, found.owner, found.class_bits) == (0.0, None, None)
    assert found.wrong_bits == tuple(sum(len(f) == count for f in flips) for count in range(radius + 1))
    assert found.uncorrected == pytest.approx(sum(map(bool, flips)) / 200)
    by_bit = [sum(bit in f for f in flips) / 200 for bit in range(BITS)]
    assert found.wrong_by_bit == pytest.approx(tuple(by_bit))
    assert found.numbers()["wrong bits"] == pytest.approx(sum(by_bit))


def test_too_many_flips_are_another_word_and_a_wrong_check_bit_leaves_the_span() -> None:
    book = rank_code(WORDS, 12)
    head = bits_head(book, UnigramCode(kind="unigram", bits=12))
    assert head.spans is not None
    targets_T = torch.arange(WORDS)
    check = counted(head, flipped(head, targets_T, [[11]] * WORDS), targets_T)
    assert (check.class_bits, check.owner, check.uncorrected) == (head.spans.class_bits, 0.0, 1.0)
    signs_VC = head.codes.signs(targets_T)
    others = Outputs((), (signs_VC.roll(1, 0)[:, None],))
    wrong = counted(head, others, targets_T)
    assert (wrong.owner, wrong.corrected, wrong.most_probable, wrong.uncorrected) == (1.0, 1.0, 1.0, 1.0)
    assert sum(wrong.wrong_bits) == WORDS and wrong.wrong_bits[0] == 0


@pytest.mark.parametrize("codebook", [{"kind": "unigram", "bits": 12}, {"kind": "random", "bits": 16}])
def test_of_a_trained_trial_they_are_the_measures_of_its_record(
    corpus_folder: Path, tmp_path: Path, codebook: dict[str, Any]
) -> None:
    model = {"layers": 1, "embedding_size": 6, "hidden_size": 10, "tied": False}
    run(tiny_spec(corpus_folder, model=model, head={"kind": "ecoc", "codebook": codebook}, epochs=2), tmp_path)
    record = settled(tmp_path)
    found = analyze(ASKED, record, tmp_path, stage="train", device="cpu")
    assert isinstance(found, CodeErrorsFound)
    measures = record.stages[-1].measures["test"]
    assert found.numbers()["wrong bits"] / found.bits == pytest.approx(measures["wrong_bits"], abs=1e-9)
    assert 1 - found.uncorrected == pytest.approx(measures["exact_codes"], abs=1e-9)
    assert 1 - found.corrected == pytest.approx(measures["accuracy_hamming"], abs=1e-9)
    assert 1 - found.most_probable == pytest.approx(measures["accuracy_soft"], abs=1e-9)
    owner = None if found.owner is None else 1 - found.owner
    assert owner == pytest.approx(measures.get("accuracy_owner"), abs=1e-9)


def test_another_head_has_no_bits(corpus_folder: Path, tmp_path: Path) -> None:
    run(tiny_spec(corpus_folder, epochs=1), tmp_path)
    with pytest.raises(ValueError, match="bits are those of a head of kind ecoc, got softmax"):
        analyze(ASKED, settled(tmp_path), tmp_path, stage="train", device="cpu")
