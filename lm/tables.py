"""Arrow tables as Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lm.files import atomic


def write_table(path: Path, table: pa.Table) -> None:
    """Write an Arrow table as Parquet atomically."""
    with atomic(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
