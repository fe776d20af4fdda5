"""Arrow tables as Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lm.files import atomic, check_regular


def write_table(path: Path, table: pa.Table, encodings: Mapping[str, str] | None = None) -> None:
    """Write an Arrow table as Parquet atomically.

    `encodings` names Parquet's encoding of columns whose values hardly repeat, which a dictionary would only enlarge.
    """
    others = [name for name in table.column_names if name not in encodings] if encodings else True
    with atomic(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", use_dictionary=others, column_encoding=encodings)


def read_table(path: Path, schema: pa.Schema, *, later: str, optional: pa.Field | None = None) -> pa.Table:
    """These columns of a table; `later` names one of maps that a file of an earlier version may not have.

    The `optional` one comes last, with its nulls, if the file has it. OSError if it is no regular file or ends too
    soon, ValueError or KeyError if it has other columns, or nulls.
    """
    check_regular(path)
    with pq.ParquetFile(path) as file:
        if optional is not None and optional.name in file.schema_arrow.names:
            schema = schema.append(optional)
        table = file.read(columns=schema.names, use_threads=False)
    if later in schema.names and later not in table.column_names:
        field = schema.field(later)
        table = table.append_column(field, pa.array([[]] * len(table), field.type))
    table = table.select(schema.names)
    for field, column in zip(schema, table.columns, strict=True):
        if column.type != field.type or (column.null_count and field != optional):
            raise ValueError(f"{field.name} is {column.type} with {column.null_count} nulls, not {field.type}")
    return table
