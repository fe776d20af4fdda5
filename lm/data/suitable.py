"""Whether a corpus's texts can tell two models apart."""

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
MOST_UNLIKE = 1.5
"""The largest factor between the unigram model's perplexities of validation and test: 1.07 on the Penn Treebank."""

_NATS_BETWEEN_MODELS = 1.0  # standard deviation over tokens of the difference of two losses: 0.6 to 1.0 on ptb, pydoc


def corpus_warnings(corpus: EncodedCorpus) -> list[str]:
    """What keeps the texts from telling models apart, a sentence each; empty if nothing does.

    A word counts as unseen if the training text, after any cut, lacks it; `<unk>` is a word like any other.
    """
    count_V, test_tokens = np.bincount(corpus.train, minlength=len(corpus.vocabulary)), len(corpus.test)
    unseen, warnings = int((count_V[corpus.test] == 0).sum()), []
    if test_tokens < FEWEST_TEST_TOKENS:
        warnings.append(too_short(test_tokens))
    elif test_tokens < ENOUGH_TEST_TOKENS:
        least = math.expm1(2.0 * _NATS_BETWEEN_MODELS / math.sqrt(test_tokens))
        warnings.append(
            f"the test text has {test_tokens:,} tokens: a difference below about {least:.1%} in perplexity cannot be "
            f"seen ({ENOUGH_TEST_TOKENS:,} tokens show 2.0%)"
        )
    if unseen > MOST_UNSEEN * test_tokens:
        warnings.append(
            f"{unseen / test_tokens:.1%} of the test tokens are not among the {len(corpus.train):,} training tokens "
            f"(more than {MOST_UNSEEN:.0%}): what a model gives them is chance; more training text helps "
            f"(`train_tokens`), or a smaller vocabulary with <unk> (`python -m lm corpus make`: --tokenize --lower, a "
            f"higher --min-count)"
        )
    valid, test = (math.exp(corpus.facts.unigram_nats[split]) for split in ("valid", "test"))
    if max(valid, test) > MOST_UNLIKE * min(valid, test):
        warnings.append(
            f"validation and test are unlike each other: by training's word frequencies alone their perplexities are "
            f"{valid:,.0f} and {test:,.0f}; what validation chooses may not suit the test text (documents in another "
            f"order, or more training text, help)"
        )
    return warnings


def too_short(test_tokens: int) -> str:
    """That a test text has fewer than `FEWEST_TEST_TOKENS`."""
    few = f"the test text has {test_tokens:,} tokens: too few to tell any two models apart"
    return f"{few} (at least {FEWEST_TEST_TOKENS:,}; {ENOUGH_TEST_TOKENS:,} are enough)"
