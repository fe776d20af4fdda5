"""Score a settled trial's kept weights again, if asked with other cache values, or as they go on learning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from lm.cache import score_with_cache
from lm.data.batches import columns
from lm.dynamic import score_dynamically
from lm.evaluate import token_nats
from lm.kept_model import open_model
from lm.record import Record, Score, Split
from lm.spec import Cache, Dynamic


def rescore(
    record: Record,
    folder: Path | str,
    *,
    stage: str | None = None,
    device: str = "auto",
    threads: int = 1,
    cache: Cache | None = None,
    dynamic: Dynamic | None = None,
) -> dict[str, Score]:
    """Scores by name: `valid` and `test` as the spec scores them; if they adapt to the text also the one-column passes.

    Of the weights that `stage` chose; None is the last that trained. A test text that the trial left closed stays so.
    The values of the cache, and of dynamic evaluation, where several are listed, are chosen on validation and named in
    the score's key; each acts alone.
    Raises what `open_model` raises, ValueError if dynamic evaluation diverges.
    """
    kept = open_model(record, Path(folder), stage=stage, device=device, threads=threads)
    model, corpus, scoring = kept.model, kept.corpus, record.spec.scoring
    scores: dict[str, Score] = {}
    texts: dict[Split, npt.NDArray[np.int32]] = {"valid": corpus.valid}
    if record.tested:
        texts["test"] = corpus.test
    for split, text in texts.items():
        count = scoring.valid_columns if split == "valid" else scoring.test_columns
        scores[split] = token_nats(model, columns(text, count, kept.device), scoring.window, measured=False)[0].score()
    if cache is not None:
        values, plain, mixed = score_with_cache(model, texts, cache, scoring.window, kept.device)
        for split in plain:
            scores[f"{split}, one column"] = plain[split].score()
            name = f"{split}, cache window {values.window} weight {values.weight:g} flatness {values.flatness:g}"
            scores[name] = mixed[split].score()
    if dynamic is not None:
        chosen, adapted = score_dynamically(model, corpus, dynamic, kept.device, test=record.tested)
        for split, losses in adapted.items():
            static = token_nats(model, columns(texts[split], 1, kept.device), scoring.window, measured=False)[0]
            scores[f"{split}, one column"] = static.score()
            name = f"{split}, dynamic learning rate {chosen.learning_rate:g} decay {chosen.decay:g}"
            scores[name] = losses.score()
    return scores
