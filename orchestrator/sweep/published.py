"""The papers' numbers, matched to our variants by name. `sweeps/published/<file>.yaml` holds a list of records.

A record is a variant's where its `variant` is the variant's name, its data set the sweep's, and its `cell`, if it
names one, the variant's. One table has each of those once: a table printed for several sizes is several here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lm.yaml_text import read_yaml_file
from orchestrator.errors import nearest


class Row(BaseModel):
    """One published number, as carried in the file; fields that only other metrics have are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    paper: str
    table: str
    dataset: str | None = Field(default=None)
    variant: str | None = Field(default=None)
    cell: str | None = Field(default=None)
    split: str | None = Field(default=None)
    metric: str
    perplexity: float | None = Field(default=None)
    std: float | None = Field(default=None)
    certainty: str
    note: str | None = Field(default=None)


@dataclass(frozen=True)
class Number:
    """A published perplexity. `certainty` tells how we know it, in the words of the file's header."""

    perplexity: float
    std: float | None
    certainty: str
    source: str
    note: str | None


@dataclass(frozen=True)
class Published:
    """What the papers print for a variant; None where they print nothing."""

    valid: Number | None = None
    test: Number | None = None


def published_numbers(
    references: Iterable[str], dataset: str, cells: Mapping[str, str], folder: Path
) -> dict[str, Published]:
    """Published perplexities on a data set of the variants, given with their recurrent cells.

    Where two tables have one, the first reference wins. A name that a table gives to several rows is left out.
    ValueError for a reference that leads nowhere.
    """
    found: dict[str, Published] = {}
    for reference in references:
        rows = [row for row in _table(reference, folder) if row.dataset == dataset and row.perplexity is not None]
        for variant, cell in cells.items():
            theirs = [row for row in rows if row.variant == variant and row.cell in (None, cell)]
            valid, test = (_only(theirs, split) for split in ("valid", "test"))
            before = found.get(variant, Published())
            merged = Published(before.valid or valid, before.test or test)
            if merged != Published():
                found[variant] = merged
    return found


def check_reference(reference: str, folder: Path) -> None:
    """ValueError, with the nearest valid name, for a reference that leads nowhere."""
    _table(reference, folder)


def _table(reference: str, folder: Path) -> list[Row]:
    file, dot, table = reference.partition(".")
    if not dot:
        raise ValueError(f"a published table is written file.tableN, got {reference!r}")
    if not folder.is_dir():
        raise ValueError(f"no file {file!r}: there is no folder {folder.resolve()}")
    files = sorted(path.stem for path in folder.glob("*.yaml"))
    if file not in files:
        raise ValueError(f"no file {file!r} in {folder.name}/{nearest(file, files)}")
    tables: dict[str, list[Row]] = {}
    for row in _rows(folder / f"{file}.yaml"):
        # Numbered tables read `table4`; others (a poster's `results`) keep the name they have.
        tables.setdefault(f"table{row.table}" if row.table[:1].isdigit() else row.table, []).append(row)
    if table not in tables:
        raise ValueError(f"{folder.name}/{file}.yaml has no {table!r}{nearest(table, sorted(tables))}")
    return tables[table]


def _rows(path: Path) -> list[Row]:
    stat = path.stat()
    return _rows_of(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)  # a sweep file names several tables of one file, and reading one takes a tenth of a second
def _rows_of(path: Path, _modified: int, _size: int) -> list[Row]:
    try:
        return TypeAdapter(list[Row]).validate_python(read_yaml_file(path))
    except ValidationError as error:
        raise ValueError(f"{path}: not a list of published numbers: {error}") from error


def _only(rows: list[Row], split: str) -> Number | None:
    matching = [row for row in rows if row.split == split]
    if len(matching) != 1:
        return None
    row = matching[0]
    assert row.perplexity is not None
    source = f"{row.paper} table {row.table}" if row.table[:1].isdigit() else f"{row.paper} {row.table}"
    return Number(row.perplexity, row.std, row.certainty, source, row.note)
