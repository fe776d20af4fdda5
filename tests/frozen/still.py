"""The same on every machine: keys depend on the texts and on `NUMERICS_VERSION`, last digits on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from lm.data import PUBLISHED, fingerprint_of
from lm.spec import Corpus
from tests.support.factories import CORPUS

NUMERICS_VERSION = 3


@contextmanager
def standing_still(fingerprint: str = CORPUS.fingerprint) -> Iterator[None]:
    """Every corpus has this fingerprint, but those whose published hashes are known; no file of a corpus is read."""

    def of(corpus: Corpus) -> str:
        published = PUBLISHED.get(corpus.name)
        return fingerprint if published is None or published.sha256 is None else fingerprint_of(corpus)

    def size(corpus: Corpus) -> int:
        return PUBLISHED[corpus.name].vocabulary_size if corpus.name in PUBLISHED else CORPUS.vocabulary_size

    with ExitStack() as stack:
        stack.enter_context(patch("lm.spec.trial.NUMERICS_VERSION", NUMERICS_VERSION))
        stack.enter_context(patch("orchestrator.trials.plan.fingerprint_of", of))
        stack.enter_context(patch("orchestrator.trials.plan.vocabulary_size_of", size))
        yield


def steady(text: str) -> str:
    """The text with its numbers to ten digits: the last ones depend on the order in which a CPU sums."""
    return re.sub(r"\d+\.\d{9,}(e[-+]\d+)?", lambda number: f"{float(number[0]):.10g}", text)
