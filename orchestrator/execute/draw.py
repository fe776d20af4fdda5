"""Text of every variant, drawn from kept weights before the page is made, and kept beside the record."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lm.samples import Samples, write_samples
from lm.spec import Generate
from orchestrator.trials.records import Records
from orchestrator.trials.samples import Writer, undrawn
from orchestrator.trials.trial import Trial

_log = logging.getLogger(__name__)


def draw_missing(trials: Iterable[Trial], how: Generate | None, records: Records, threads: int) -> None:
    """Have the first seed of each variant write its text, where its weights are kept and it has not; None: nothing.

    On the CPU, so that a page does not depend on where it was made. If a text cannot be drawn, a warning says why and
    the page goes without. WriteError if one cannot be written.
    """
    for writer in () if how is None else undrawn(trials, how, records):
        assert how is not None
        try:
            samples = _drawn(writer, how, threads)
        except ValueError as error:
            _log.warning("no text by %s: %s", writer.folder, error)
        else:
            write_samples(writer.path(how), samples)


def _drawn(writer: Writer, how: Generate, threads: int) -> Samples:
    from lm.generate import generate  # loads torch
    from lm.kept_model import open_model

    kept = open_model(writer.record, writer.folder, stage=writer.stage, device="cpu", threads=threads)
    passages = generate(kept.model, kept.corpus.vocabulary, how)
    texts = tuple(passage.words for passage in passages)
    return Samples(stage=writer.stage, weights=writer.weights_hash, settings=how, texts=texts)
