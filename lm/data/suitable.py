"""Whether a corpus's test text can tell two models apart."""

from __future__ import annotations

import math

import numpy as np

from lm.data.encode import EncodedCorpus

ENOUGH_TEST_TOKENS = 10_000
"""Tells differences of 2% in perplexity, the smallest effect of Merity et al. 2017, Table 4; fewer give a warning."""
FEWEST_TEST_TOKENS = 100
"""Tells differences of 20%, the largest effect of that table; with fewer a test text tells nothing."""
MOST_UNSEEN = 0.05
"""The largest share of test tokens whose word the training text lacks; what a model gives them is chance."""

_NATS_BETWEEN_MODELS = 1.0  # standard deviation over tokens of the difference of two losses: 0.6 to 1.0 on ptb, pydoc


def corpus_warnings(corpus: EncodedCorpus) -> list[str]:
    """What keeps the test text from telling models apart, a sentence each; empty if nothing does.

    A word counts as never seen if the training text, after any cut, lacks it; `<unk>` is a word like any other.
    """
    count_V = np.bincount(corpus.train, minlength=len(corpus.vocabulary))
    return warnings_of(len(corpus.test), int((count_V[corpus.test] == 0).sum()))


def warnings_of(test_tokens: int, unseen: int) -> list[str]:
    """As `corpus_warnings`, of a test text of this many tokens, of which `unseen` were never seen in training."""
    warnings = []
    if test_tokens < FEWEST_TEST_TOKENS:
        warnings.append(
            f"the test text has {test_tokens:,} tokens: too few to tell any two models apart "
            f"(at least {FEWEST_TEST_TOKENS:,}; {ENOUGH_TEST_TOKENS:,} are enough)"
        )
    elif test_tokens < ENOUGH_TEST_TOKENS:
        least = math.expm1(2.0 * _NATS_BETWEEN_MODELS / math.sqrt(test_tokens))
        warnings.append(
            f"the test text has {test_tokens:,} tokens: a difference below about {least:.1%} in perplexity cannot be "
            f"seen ({ENOUGH_TEST_TOKENS:,} tokens show 2.0%)"
        )
    if unseen > MOST_UNSEEN * test_tokens:
        warnings.append(
            f"{unseen / test_tokens:.1%} of the test tokens were never seen in training (more than {MOST_UNSEEN:.0%}): "
            f"what a model gives them is chance; a smaller vocabulary with <unk>, or more training text, helps"
        )
    return warnings
