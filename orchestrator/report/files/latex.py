"""The ablation table for a paper: `table.tex`, a booktabs tabular."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.report.markdown import plain
from orchestrator.report.sections.ablation import (
    RECALLED,
    REFERENCE,
    AblationRow,
    PublishedDifference,
    ReferenceRow,
    Spread,
)
from orchestrator.sweep.published import Number
from orchestrator.words import MINUS, NOTHING, difference, number, published, published_difference, spread

_COLUMNS = {
    "Variant": "l",
    "Change": "l",
    "Parameters": "r",
    "Validation": "r",
    "Test": "r",
    "Difference": "r",
    "Verdict": "l",
    "Published": "r",
}
_PUBLISHED_DIFFERENCE = {"Published difference": "r"}
"""One column more, where a variant has one."""
_SPECIAL = {
    "->": r"\ensuremath{\to}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    # Brackets could be taken for the option of a line break before them, and two hyphens for a dash.
    "[": "{[}",
    "]": "{]}",
    "--": "{-}{-}",
    MINUS: r"\ensuremath{-}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "∞": r"\ensuremath{\infty}",
    "–": r"\textendash{}",
    "†": r"\textdagger{}",
    "…": r"\ldots{}",
    **{character: f"\\{character}" for character in "#$%&_{}"},
}
_SPECIAL_CHARACTER = re.compile("|".join(map(re.escape, _SPECIAL)))


def table_tex(rows: Sequence[AblationRow], references: Sequence[ReferenceRow], margin: float, caption: str) -> str:
    """The table, rounded as on the page, for `\\usepackage{booktabs}`; `caption` stands above it as a comment.

    `\\textquotesingle` and `\\textasciigrave` need `\\usepackage{textcomp}` in a LaTeX older than 2020, and
    `\\textquotedbl` needs `\\usepackage[T1]{fontenc}`.
    """
    columns, cells = _COLUMNS, [_cells(row, margin) for row in rows]
    if any(row.published_difference for row in rows):
        columns = _COLUMNS | _PUBLISHED_DIFFERENCE
        cells = [[*line, _difference(row.published_difference)] for line, row in zip(cells, rows, strict=True)]
    lines = [
        f"% {' '.join(caption.split())}",
        r"% \usepackage[T1]{fontenc} \usepackage{booktabs}",
        f"\\begin{{tabular}}{{{''.join(columns.values())}}}",
        r"\toprule",
        _line(list(columns)),
        r"\midrule",
        *map(_line, cells),
        *([r"\midrule"] if references else []),
        *(_line(_reference(row, len(columns))) for row in references),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if any(printed and printed.certainty == RECALLED for row in rows for printed in _published(row)):
        lines.append(r"% \textdagger: from memory, not checked against the paper")
    return "\n".join(lines) + "\n"


def _cells(row: AblationRow, margin: float) -> list[str]:
    change = row.change_in_perplexity
    return [
        escaped(row.variant),
        escaped(row.change),
        _mathematics(f"{row.parameters:,}"),
        _spread(row.valid),
        _spread(row.test),
        escaped(NOTHING) if change is None else _mathematics(difference(change, row.interval_in_perplexity)),
        escaped(plain(row.verdict(margin))),
        " / ".join(_number(printed) for printed in _published(row)),
    ]


def _reference(row: ReferenceRow, columns: int) -> list[str]:
    cells = [
        escaped(row.variant),
        escaped(row.change),
        _mathematics(f"{row.parameters:,}"),
        *(escaped(NOTHING) if value is None else _mathematics(number(value)) for value in (row.valid, row.test)),
        escaped(NOTHING),
        escaped(REFERENCE),
    ]
    return cells + [escaped(NOTHING)] * (columns - len(cells))


def escaped(text: str) -> str:
    """Any text as one line that LaTeX prints as it is; what UTF-8 LaTeX knows no glyph for is left to its fonts."""
    line = " ".join(text.split())
    printable = "".join(character for character in line if character.isprintable())
    return _SPECIAL_CHARACTER.sub(lambda match: _SPECIAL[match.group(0)], printable)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _published(row: AblationRow) -> tuple[Number | None, Number | None]:
    return row.published_valid, row.published_test


def _spread(value: Spread | None) -> str:
    return escaped(NOTHING) if value is None else _mathematics(spread(value.mean, value.deviation))


def _number(printed: Number | None) -> str:
    if printed is None:
        return escaped(NOTHING)
    deviation = "" if printed.std is None else f" ± {published(printed.std)}"
    return _mathematics(published(printed.perplexity) + deviation) + _mark(printed.certainty == RECALLED)


def _difference(found: PublishedDifference | None) -> str:
    if found is None:
        return escaped(NOTHING)
    return _mathematics(published_difference(found.perplexity)) + _mark(found.recalled)


def _mark(recalled: bool) -> str:
    return escaped("†") if recalled else ""


def _mathematics(text: str) -> str:
    """A number as the page has it, in mathematics; a comma inside it separates thousands."""
    told = re.sub(r"e\+?(\D?)0*(\d+)", r" \\times 10^{\1\2}", text)
    told = re.sub(r"(?<=\d),(?=\d{3})", "{,}", told)
    for sign, command in ((MINUS, "-"), ("±", r"\pm"), ("∞", r"\infty")):
        told = told.replace(sign, command)
    return f"${told}$"
