"""The papers' numbers, matched to our variants by name and metric.

`sweeps/published/<file>.yaml` holds a list of records.
A record belongs to a variant if it has the variant's name, the sweep's data set and, if it names a `cell`, the
variant's recurrent cell. A table has one such record for each split: a table printed for several sizes is several here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lm.names import nearest
from lm.record import Split
from lm.spec.part import NonNegative
from lm.validation import messages, problems_of, shown
from lm.yaml_text import read_document

_Perplexity = Annotated[float, Field(ge=1.0, allow_inf_nan=False, strict=True)]


class PublishedRow(BaseModel):
    """One published number, or an entry without one, as the file has it; fields that nobody shows are ignored.

    `also` has the names of other variants that the same number belongs to, such as other readings of one recipe.
    `sweep` names the sweep file that draws a figure without numbers.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    paper: str
    table: str
    dataset: str | None = Field(default=None)
    variant: str | None = Field(default=None)
    also: tuple[str, ...] = ()
    cell: str | None = Field(default=None)
    split: Literal[Split, "train"] | None = Field(default=None)
    metric: str
    perplexity: _Perplexity | None = Field(default=None)
    std: NonNegative | None = Field(default=None)
    certainty: str
    sweep: str | None = Field(default=None)
    note: str | None = Field(default=None)

    @property
    def reference(self) -> str:
        """How sweep files name the table: `table4` if it is numbered; others (a poster's `results`) as they are."""
        return f"table{self.table}" if self.table[:1].isdigit() else self.table


class Number(PublishedRow):
    """A published perplexity. `certainty` says how we know it, in the words of the file's header."""

    perplexity: _Perplexity


class Measure(PublishedRow):
    """A published number of another metric than perplexity; some belong to a `word` that was seen `count` times."""

    value: float
    word: str | None = Field(default=None)
    count: int | None = Field(default=None)


@dataclass(frozen=True)
class Published:
    """What is printed of a variant; None if nothing is. `others`: those of later references that differ."""

    valid: Number | None = None
    test: Number | None = None
    others: tuple[Number, ...] = ()


def published_numbers(
    references: Iterable[str], dataset: str, cells: Mapping[str, str], folder: Path
) -> dict[str, Published]:
    """Each variant's published perplexities on a data set; `cells` has the recurrent cell of each variant.

    If two tables have a number, the first reference wins, and a number unlike it is one of the `others`. A name that a
    table gives to several rows is left out.
    ValueError for a reference that leads nowhere.
    """
    tables = [rows_of_table(reference, folder) for reference in references]

    def printed(variant: str, split: str) -> list[Number]:
        by_table = []
        for table in tables:
            numbers = [row for row in table if isinstance(row, Number) and row.cell in (None, cells[variant])]
            named = [number for number in numbers if variant in (number.variant, *number.also)]
            same = [number for number in named if (number.dataset, number.split) == (dataset, split)]
            if len(same) == 1:
                by_table.append(same[0])
        return by_table

    def of(variant: str) -> Published:
        valid, test = printed(variant, "valid"), printed(variant, "test")
        others = (n for numbers in (valid, test) for n in numbers if n.perplexity != numbers[0].perplexity)
        return Published(valid[0] if valid else None, test[0] if test else None, tuple(others))

    published = {variant: of(variant) for variant in cells}
    return {variant: numbers for variant, numbers in published.items() if numbers != Published()}


def published_measures(references: Iterable[str], dataset: str, folder: Path) -> list[Measure]:
    """What the tables print on a data set beside perplexities, of whichever variants; errors as above."""
    rows = [row for reference in references for row in rows_of_table(reference, folder)]
    return [row for row in rows if isinstance(row, Measure) and row.dataset == dataset]


def rows_of_table(reference: str, folder: Path) -> list[PublishedRow]:
    """The rows of a table; ValueError, with the nearest valid name, for a reference that leads nowhere."""
    file, dot, table = reference.partition(".")
    if not dot:
        raise ValueError(f"a published table is written file.tableN, got {reference!r}")
    if not folder.is_dir():
        raise ValueError(
            f"no file {file!r}: there is no folder {folder.resolve()} (`sweeps copy` brings a shipped sweep's)"
        )
    files = sorted(path.stem for path in folder.glob("*.yaml"))
    if file not in files:
        raise ValueError(f"no file {file!r} in {folder.name}/{nearest(file, files)}")
    path = folder / f"{file}.yaml"
    every = published_rows(path)
    if not (rows := [row for row in every if row.reference == table]):
        names = sorted({row.reference for row in every})
        raise ValueError(f"{folder.name}/{file}.yaml has no {table!r}{nearest(table, names)}")
    return rows


def published_rows(path: Path) -> list[PublishedRow]:
    """All rows of a file of published numbers; ValueError with the line of the first that is wrong."""
    try:
        return _rows(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=8)  # a sweep file names several tables of one file, and reading one takes a tenth of a second
def _rows(path: Path, _modified: int) -> list[PublishedRow]:
    document, rows = read_document(path), list[PublishedRow]()
    if not isinstance(document.data, list):
        raise ValueError(document.message((), f"should be a list of published numbers, got {shown(document.data)}"))
    for index, row in enumerate(document.data):
        form = _form(row)
        try:
            rows.append(form.model_validate(row))
        except ValidationError as error:
            problems = [problem.under(index) for problem in problems_of(error, form)]
            raise ValueError(messages(problems, document)[0]) from error
    return rows


def _form(row: Any) -> type[PublishedRow]:
    """An entry with neither a perplexity nor a number of another metric says only that the paper has one."""
    if not isinstance(row, dict):
        return PublishedRow
    if row.get("perplexity") is not None:
        return Number
    return Measure if isinstance(row.get("value"), int | float) else PublishedRow
