"""`reports/README.md`: the index of all reports in a folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from lm.files import write_text
from orchestrator.report.files.summary import Summary, read_summary
from orchestrator.words import NOTHING, escape

_log = logging.getLogger(__name__)

_FIRST_LINE = "<!-- Made anew with every report; edits are lost. -->"
_HEAD = f"""{_FIRST_LINE}
# Reports

| Question | Answer | Scale | Date | Report |
| :-- | :-- | :-- | :-- | :-- |
"""


def write_index(reports: Path) -> None:
    """Write the index of the reports in `reports/<sweep>/<scale>/`, a row each, sorted by sweep and scale.

    A report without a summary is listed by its link; a summary that cannot be read is named in its row. A `README.md`
    of another origin is left as it is, with a warning. Of two commands that end at once the later one's index stands,
    which may lack the other's last answer until the next report is written.
    """
    path = reports / "README.md"
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_FIRST_LINE):
        _log.warning("%s: not an index of reports; left as it is, so there is no index here", path)
        return
    write_text(path, _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows(reports)))


def _rows(reports: Path) -> Iterator[list[str]]:
    for page in sorted(reports.glob("*/*/report.md")):
        sweep, scale = page.parent.parent.name, page.parent.name
        link = f"[{escape(sweep)}/{escape(scale)}]({quote(f'{sweep}/{scale}/report.md')})"
        try:
            yield [*_told(read_summary(page.parent), scale), link]
        except (ValueError, OSError) as error:
            why = str(error).replace(f"{reports}/", "")
            yield [NOTHING, f"not known: {escape(why)}", escape(scale), NOTHING, link]


def _told(summary: Summary | None, scale: str) -> list[str]:
    if summary is None:
        return [NOTHING, NOTHING, escape(scale), NOTHING]
    partial = "" if summary.complete == summary.planned else f" ({summary.complete} of {summary.planned} complete)"
    date = NOTHING if summary.finished_at is None else escape(summary.finished_at[:10])
    return [escape(summary.question), escape(summary.answer) + partial, escape(summary.scale), date]
