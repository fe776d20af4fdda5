"""The unigram model of a training text, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lm.data import load
from lm.data.unigram import log_unigram
from lm.spec import Corpus


def test_every_count_is_raised_by_one_so_that_no_word_is_impossible() -> None:
    p_V = np.exp(log_unigram(np.array([3, 0, 5])))
    assert p_V.tolist() == pytest.approx([4 / 11, 1 / 11, 6 / 11])


def test_a_corpus_is_guessed_from_the_training_text_that_is_left_of_it() -> None:
    """A cut text's own counts, whatever the whole text has; the uniform model is no better."""
    whole = load(Corpus(name="pydoc"))
    cut = load(Corpus(name="pydoc", train_tokens=2_000))
    uniform = np.log(len(whole.vocabulary))
    nats = [corpus.facts.unigram_nats["test"] for corpus in (whole, cut)]
    assert nats[0] < nats[1] < uniform
    counts = np.bincount(whole.train[:2_000], minlength=len(whole.vocabulary)) + 1
    expected = -np.log(counts[whole.test] / counts.sum()).mean()
    assert nats[1] == pytest.approx(expected)
