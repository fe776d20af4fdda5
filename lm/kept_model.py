"""A settled trial's model, with the text it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from lm.data import EncodedCorpus, load
from lm.hashes import NEEDED_BY_A_MODEL, check_hashes
from lm.model import LanguageModel
from lm.record import Record
from lm.spec import TrainSpec
from lm.train import choose_device, load_model, words_for


@dataclass(frozen=True, eq=False)
class KeptModel:
    """The weights that a stage chose, on a device, the encoded corpus, and what was asked of the trainer."""

    spec: TrainSpec
    model: LanguageModel
    corpus: EncodedCorpus
    device: torch.device


def open_model(
    record: Record, folder: Path, *, stage: str | None = None, device: str = "auto", threads: int = 1
) -> KeptModel:
    """The model of a settled trial; `stage` None is the last that trained.

    Raises ValueError if the corpus or the codebook at hand is not the record's, or there are no weights of the stage,
    DamagedError if they are not what the trial wrote, CorpusError if the corpus is missing.
    """
    torch.set_num_threads(threads)
    chosen = choose_device(device)
    corpus = load(record.spec.corpus)
    if corpus.fingerprint != record.corpus.fingerprint:
        raise ValueError(f"corpus {corpus.name} is {corpus.fingerprint}, the record's is {record.corpus.fingerprint}")
    check_hashes(folder, record.hashes, NEEDED_BY_A_MODEL)
    words = words_for(record.spec, corpus, folder)
    if words.codebook is not None and words.codebook.fingerprint != record.codebook:
        raise ValueError(f"{folder}: its weights need codebook {record.codebook}, not {words.codebook.fingerprint}")
    return KeptModel(record.spec, load_model(record, folder, words, chosen, stage), corpus, chosen)
