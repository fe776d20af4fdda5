"""What a sweep file asks of trained weights before its page is made: text of each variant, analyses of each trial."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lm.analyzed import trained_stage
from lm.files import WriteError
from lm.record import Record, weights_path
from lm.samples import Samples, write_samples
from lm.spec import Analysis, Generate, unanswerable
from orchestrator.sweep.scaled import Resources, ScaledSweep
from orchestrator.trials.records import Records
from orchestrator.trials.samples import Writer, without_text
from orchestrator.trials.trial import Trial

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """What is asked of whose weights, in words; `ask` asks, and keeps the answer beside the record."""

    words: str
    ask: Callable[[], object]


def questions(sweep: ScaledSweep, trials: Sequence[Trial], records: Records) -> list[Question]:
    """What was not yet asked of complete trials that still have their weights.

    Text is written by each variant's first seed, on the CPU, so that a page does not depend on where it was made.
    """
    resources, asked = sweep.resources, list[Question]()
    if sweep.generate is not None:
        for writer in without_text(trials, sweep.generate, records):
            write = partial(_write, writer, sweep.generate, resources.threads)
            asked.append(Question(f"{writer.trial.title}: text by its weights", write))
    for trial in trials if sweep.analyses else ():
        record, folder = records.find(trial), records.folder(records.holder(trial))
        if record is None or record.status != "complete" or not weights_path(folder, trained_stage(record)).exists():
            continue
        for analysis in sweep.analyses:
            if unanswerable(analysis, trial.spec) is None and records.analysis(trial, analysis) is None:
                analyze = partial(_analyze, analysis, trial, record, records, resources)
                asked.append(Question(f"{trial.title}: {analysis.kind} of its weights", analyze))
    return asked


def ask(asked: Sequence[Question], say: Callable[[str], None]) -> None:
    """Ask all; one that fails is a warning, because the page may stand for hours. WriteError if no text can be kept."""
    for question in asked:
        say(question.words)
        try:
            question.ask()
        except WriteError:
            raise
        except Exception as error:
            _log.warning("no answer: %s (%s: %s)", question.words, type(error).__name__, error)
            _log.debug("%s", question.words, exc_info=True)


def _write(writer: Writer, how: Generate, threads: int) -> None:
    from lm.generate import generate  # loads torch
    from lm.kept_model import open_model

    kept = open_model(writer.record, writer.folder, stage=writer.stage, device="cpu", threads=threads)
    texts = tuple(passage.words for passage in generate(kept.model, kept.corpus.vocabulary, how))
    samples = Samples(stage=writer.stage, weights=writer.weights_hash, settings=how, texts=texts)
    write_samples(writer.path(how), samples)


def _analyze(analysis: Analysis, trial: Trial, record: Record, records: Records, resources: Resources) -> None:
    from lm.analyze.ask import analyze  # loads torch

    holder = records.holder(trial)
    held = records.read(holder)
    if held is None:
        raise ValueError(f"{holder}: its record is gone")
    device = "auto" if resources.gpus else "cpu"
    stage = trained_stage(record)
    analyze(analysis, held, records.folder(holder), stage=stage, device=device, threads=resources.threads)
