"""What a sweep file asks of trained weights, asked of every complete trial that still has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from lm.analyzed import trained_stage
from lm.record import weights_path
from lm.spec import Analysis, unanswerable
from orchestrator.sweep.scaled import Resources
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial

_log = logging.getLogger(__name__)


def unasked(analyses: Sequence[Analysis], trials: Sequence[Trial], records: Records) -> list[tuple[Trial, Analysis]]:
    """The complete trials that have weights, with each analysis that they were not yet asked for and can be."""
    complete = [
        trial
        for trial in trials
        if analyses
        and (record := records.find(trial)) is not None
        and record.status == "complete"
        and weights_path(records.folder(records.holder(trial)), trained_stage(record)).exists()
    ]
    return [
        (trial, asked)
        for asked in analyses
        for trial in complete
        if unanswerable(asked, trial.spec) is None and records.analysis(trial, asked) is None
    ]


def ask(
    questions: Sequence[tuple[Trial, Analysis]], records: Records, resources: Resources, say: Callable[[str], None]
) -> None:
    """Ask, and keep the answers beside the records; one that fails is a warning: the page may stand for hours."""
    for trial, asked in questions:
        folder = records.folder(records.holder(trial))
        say(f"{trial.title}: {asked.kind} of its weights")
        try:
            from lm.analyze.ask import analyze

            own, record = records.find(trial), records.read(folder.name)
            if own is not None and record is not None:
                device = "auto" if resources.gpus else "cpu"
                analyze(asked, record, folder, stage=trained_stage(own), device=device, threads=resources.threads)
        except Exception as error:
            _log.warning("%s could not be asked for %s (%s: %s)", trial.title, asked.kind, type(error).__name__, error)
            _log.debug("%s", trial.title, exc_info=True)
