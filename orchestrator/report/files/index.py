"""`reports/README.md`: the index of all reports in a folder."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import quote

from lm.files import write_text
from orchestrator.report.files.summary import read_summary
from orchestrator.words import NOTHING, escape

_log = logging.getLogger(__name__)

_MARK = "with every report; edits are lost. -->"
_HEAD = f"""<!-- Written again {_MARK}
# Reports

| Question | Answer | Scale | Date | Report |
| :-- | :-- | :-- | :-- | :-- |
"""


def write_index(reports: Path) -> None:
    """Write the index of the reports in `reports/<sweep>/<scale>/`, a row each, sorted by sweep and scale.

    A report without a summary is listed by its link; a summary that cannot be read is named in its row. A `README.md`
    of another origin is left as it is, with a warning. If two commands end at once, the later index stands, and may
    lack the other's last answer until the next report is written.
    """
    path = reports / "README.md"
    if path.exists() and _MARK not in path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]:
        _log.warning("%s: not an index of reports; it is left as it is, and no index is written", path)
        return
    rows = (_cells(page.parent) for page in sorted(reports.glob("*/*/report.md")))
    write_text(path, _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows))


def _cells(folder: Path) -> list[str]:
    sweep, scale = folder.parent.name, folder.name
    link = f"[{escape(sweep)}/{escape(scale)}]({quote(f'{sweep}/{scale}/report.md')})"
    try:
        summary = read_summary(folder)
    except (ValueError, OSError) as error:
        why = str(error).replace(f"{folder.parents[1]}/", "")
        return [NOTHING, f"cannot be read: {escape(why)}", escape(scale), NOTHING, link]
    if summary is None:
        return [NOTHING, NOTHING, escape(scale), NOTHING, link]
    partial = "" if summary.complete == summary.planned else f" ({summary.complete} of {summary.planned} complete)"
    date = NOTHING if summary.finished_at is None else escape(summary.finished_at[:10])
    return [escape(summary.question), escape(summary.answer) + partial, escape(summary.scale), date, link]
