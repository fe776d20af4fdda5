"""The door to reports: from a sweep, its plan and the records to the written page."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from lm.files import in_a_line
from orchestrator.agenda.expand import SweepState, looks_path
from orchestrator.analysis.looks import note_look
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.files.folder import IfFuller, Report, write_index
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.published import Measure, Published, published_measures, published_numbers
from orchestrator.trials.records import Records

_log = logging.getLogger(__name__)


def report_sweep(
    sweep: ScaledSweep, file: Path | str, now: SweepState, records: Records, reports: Path | str, *, if_fuller: IfFuller
) -> Report:
    """Write the report of what the records hold now to `reports/<sweep>/<scale>/`, and the index of `reports/`."""
    from orchestrator.report.page import ReportInput, write_report  # a second, for matplotlib and Bokeh

    file, reports = Path(file), Path(reports)
    published, measures, note = _published(sweep, file.parent / "published")
    report = ReportInput(
        sweep=sweep,
        outcomes=read_outcomes(now.trials, records, sweep.baseline.name),
        records=records,
        published=published,
        published_note=note,
        command=sweep_command(sweep, file),
        looks=now.looks,
        searches=now.searches,
        published_measures=measures,
    )
    written = write_report(report, reports / sweep.name / sweep.scale, if_fuller=if_fuller)
    if written.judges:
        try:
            note_look(looks_path(sweep, records), sweep.seeds, sweep.variant_seeds)
        except OSError as error:  # a folder that may only be read
            _log.warning("this look at the seeds is not noted: %s", in_a_line(error))
    write_index(reports)
    return written


def sweep_command(sweep: ScaledSweep, file: Path, command: str = "sweep") -> str:
    """The line that makes this sweep again, or that of another command for it."""
    return shlex.join(["python", "-m", "orchestrator", command, str(file), *sweep.options])


def _published(sweep: ScaledSweep, folder: Path) -> tuple[dict[str, Published], list[Measure], str]:
    """The papers' numbers on this scale's corpus, or if this is not their scale on the base's; and their source."""
    cells = {variant.name: variant.spec.model.cell_name for variant in sweep.variants}
    corpus = sweep.baseline.spec.corpus.name
    for dataset in (corpus,) if sweep.published_scale else (corpus, sweep.published_corpus):
        numbers = published_numbers(sweep.published, dataset, cells, folder)
        measures = published_measures(sweep.published, dataset, folder)
        if numbers or measures:
            source = "/".join(folder.parts[-2:])
            return numbers, measures, f"From {source}/: {', '.join(sweep.published)}; corpus {dataset}"
    return {}, [], ""
