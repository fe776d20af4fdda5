"""Score a settled trial's kept weights again, with other cache values if asked."""

from __future__ import annotations

from pathlib import Path

from lm.cache import score_with_cache
from lm.data.batches import columns
from lm.evaluate import token_nats
from lm.kept_model import open_model
from lm.record import Record, Score
from lm.spec import Cache


def rescore(
    record: Record,
    folder: Path | str,
    *,
    stage: str | None = None,
    device: str = "auto",
    threads: int = 1,
    cache: Cache | None = None,
) -> dict[str, Score]:
    """Scores by name: `valid` and `test` as the spec scores them; with a cache also the one-column passes.

    Of the weights that `stage` chose; None is the last that trained. The cache's values, where it lists several, are
    chosen on validation and named in the score's key. Raises what `open_model` raises.
    """
    kept = open_model(record, Path(folder), stage=stage, device=device, threads=threads)
    model, corpus, scoring = kept.model, kept.corpus, record.spec.scoring
    scores: dict[str, Score] = {}
    for split, text, count in (
        ("valid", corpus.valid, scoring.valid_columns),
        ("test", corpus.test, scoring.test_columns),
    ):
        scores[split] = token_nats(model, columns(text, count, kept.device), scoring.window, measured=False)[0].score()
    if cache is None:
        return scores
    values, plain, mixed = score_with_cache(
        model, {"valid": corpus.valid, "test": corpus.test}, cache, scoring.window, kept.device
    )
    for split in plain:
        scores[f"{split}, one column"] = plain[split].score()
        name = f"{split}, cache window {values.window} weight {values.weight:g} flatness {values.flatness:g}"
        scores[name] = mixed[split].score()
    return scores
