"""Tables as Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lm.scoring import ENCODINGS
from lm.tables import write_table


def test_losses_by_token_take_half_the_bytes_and_are_the_same(tmp_path: Path) -> None:
    rng, count = np.random.default_rng(0), 80_000
    token = np.minimum(rng.zipf(1.3, count), 9_999).astype(np.int32)
    columns = {"position": np.arange(1, count + 1, dtype=np.int32), "token": token, "training_count": 900_000 // token}
    table = pa.table(columns | {"nats": rng.exponential(5.0, count).astype(np.float32)})
    write_table(tmp_path / "with", table, ENCODINGS)
    write_table(tmp_path / "without", table)
    assert pq.read_table(tmp_path / "with").equals(pq.read_table(tmp_path / "without"))
    assert (tmp_path / "with").stat().st_size < 0.5 * (tmp_path / "without").stat().st_size
