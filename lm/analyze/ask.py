"""A settled trial's weights asked one question, or what was answered before."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from lm.analyze.code_errors import code_errors
from lm.analyze.next_words import next_words
from lm.analyze.rank import rank
from lm.analyze.subspace import subspace
from lm.analyzed import Found, analysis
from lm.kept_model import KeptModel, open_model
from lm.record import Record
from lm.spec import Analysis, CodeErrorsAnalysis, NextWordsAnalysis, RankAnalysis, SubspaceAnalysis, unanswerable


def analyze(
    settings: Analysis, record: Record, folder: Path, *, stage: str, device: str = "auto", threads: int = 1
) -> Found:
    """What is kept in a settled trial's folder of this question to the weights that `stage` chose, or asked now.

    Raises ValueError if the model cannot be asked this, or the test text has not been opened, and what
    `lm.kept_model.open_model` raises: its weights may be gone.
    """
    if (why := unanswerable(settings, record.spec)) is not None:
        raise ValueError(f"{folder}: {why}")
    if not isinstance(settings, SubspaceAnalysis) and settings.split == "test" and not record.tested:
        raise ValueError(f"{folder}: its test text has not been opened; ask with split valid")

    def asked() -> Found:
        return find(settings, open_model(record, folder, stage=stage, device=device, threads=threads))

    return analysis(folder, settings, stage, record.hashes, asked)


def find(settings: Analysis, kept: KeptModel) -> Found:
    """Ask a model."""
    match settings:
        case RankAnalysis():
            return rank(settings, kept)
        case SubspaceAnalysis():
            return subspace(kept.model)
        case NextWordsAnalysis():
            return next_words(settings, kept)
        case CodeErrorsAnalysis():
            return code_errors(settings, kept)
        case _:
            assert_never(settings)
