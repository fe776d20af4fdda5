"""What planning asks of a corpus, each asked once. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass

from lm.data import fingerprint_of, vocabulary_size_of
from lm.spec import Corpus, TrainSpec, parameter_count


@dataclass(frozen=True)
class _Corpus:
    fingerprint: str
    vocabulary_size: int


class Facts:
    """Fingerprints, vocabularies and sizes; CorpusError where a corpus cannot be had."""

    def __init__(self) -> None:
        self._known: dict[Corpus, _Corpus] = {}

    def _of(self, corpus: Corpus) -> _Corpus:
        if corpus not in self._known:
            self._known[corpus] = _Corpus(fingerprint_of(corpus), vocabulary_size_of(corpus))
        return self._known[corpus]

    def fingerprint(self, corpus: Corpus) -> str:
        """The hash of its text."""
        return self._of(corpus).fingerprint

    def vocabulary_size(self, corpus: Corpus) -> int:
        """Words, `<eos>` and `<unk>` included."""
        return self._of(corpus).vocabulary_size

    def parameters(self, spec: TrainSpec) -> int:
        """Trainable numbers."""
        return parameter_count(spec.model, spec.head, self.vocabulary_size(spec.corpus))
