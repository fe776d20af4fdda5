"""Score a settled trial's kept weights again, with other cache values if asked."""

from __future__ import annotations

from pathlib import Path

import torch

from lm.cache import score_with_cache
from lm.data import load
from lm.data.batches import columns
from lm.evaluate import token_nats
from lm.hashes import NEEDED_BY_A_MODEL, check_hashes
from lm.record import Record, Score
from lm.spec import Cache
from lm.train import choose_device, load_model, words_for


def rescore(
    record: Record, folder: Path | str, *, device: str = "auto", threads: int = 1, cache: Cache | None = None
) -> dict[str, Score]:
    """Scores by name: `valid` and `test` as the spec scores them; with a cache also the one-column passes.

    The cache's values, where it lists several, are chosen on validation and named in the score's key. Raises
    ValueError if the corpus or the codebook at hand is not the record's, DamagedError if the weights are not.
    """
    folder = Path(folder)
    torch.set_num_threads(threads)
    chosen = choose_device(device)
    corpus = load(record.spec.corpus)
    if corpus.fingerprint != record.corpus.fingerprint:
        raise ValueError(f"corpus {corpus.name} is {corpus.fingerprint}, the record's is {record.corpus.fingerprint}")
    check_hashes(folder, record.hashes, NEEDED_BY_A_MODEL)
    words = words_for(record.spec, corpus, folder)
    if words.codebook is not None and words.codebook.fingerprint != record.codebook:
        raise ValueError(f"{folder}: its weights need codebook {record.codebook}, not {words.codebook.fingerprint}")
    model = load_model(record, folder, words, chosen)
    scoring = record.spec.scoring
    scores: dict[str, Score] = {}
    for split, text, count in (
        ("valid", corpus.valid, scoring.valid_columns),
        ("test", corpus.test, scoring.test_columns),
    ):
        scores[split] = token_nats(model, columns(text, count, chosen), scoring.window, measured=False)[0].score()
    if cache is None:
        return scores
    values, plain, mixed = score_with_cache(
        model, {"valid": corpus.valid, "test": corpus.test}, cache, scoring.window, chosen
    )
    for split in plain:
        scores[f"{split}, one column"] = plain[split].score()
        name = f"{split}, cache window {values.window} weight {values.weight:g} flatness {values.flatness:g}"
        scores[name] = mixed[split].score()
    return scores
