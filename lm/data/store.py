"""Encoded corpora kept as Arrow files, so that text is split into words once and not once a trial.

One file a fingerprint: three record batches (train, valid, test) of one dictionary-encoded column, whose dictionary
is the vocabulary; the schema's metadata holds the vocabulary rule and a SHA-256 of all the rest.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from lm.data.corpora import cache_folder
from lm.data.encode import Encoding
from lm.files import atomic
from lm.kept import kept

FORMAT = 1
"""Part of the file's name; raised whenever the layout or the meaning of the ids changes."""

_log = logging.getLogger(__name__)


def stored(fingerprint: str, make: Callable[[], Encoding]) -> Encoding:
    """The encoding kept under this fingerprint; made and kept where there is none."""
    path = cache_folder() / "encoded" / f"{fingerprint}.v{FORMAT}.arrow"
    return kept(path, "encoded corpora", read=_read, make=make, write=_write, wait_seconds=600.0)


def _write(path: Path, encoding: Encoding) -> None:
    words = pa.array(encoding.vocabulary, pa.string())
    metadata = {"rule": encoding.rule, "sha256": _digest(encoding)}
    schema = pa.schema([pa.field("word", pa.dictionary(pa.int32(), pa.string()))], metadata=metadata)
    with atomic(path) as temporary, pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for ids in (encoding.train, encoding.valid, encoding.test):
            column = pa.DictionaryArray.from_arrays(pa.array(ids, pa.int32()), words)
            writer.write_batch(pa.record_batch([column], schema=schema))


def _read(path: Path) -> Encoding | None:
    """The encoding in a file, None where there is none or it is damaged. Mapped, so that trials share the memory."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [reader.get_batch(split) for split in range(3)]
        for batch in batches:
            batch.validate(full=True)  # Arrow follows offsets wherever they point, out of the process's memory too
        columns = [batch.column(0) for batch in batches]
        # Not by Arrow's own `to_numpy`, which imports pandas first.
        train, valid, test = (np.asarray(np.from_dlpack(column.indices), dtype=np.int32) for column in columns)
        for ids in (train, valid, test):
            ids.setflags(write=False)
        metadata = reader.schema.metadata
        vocabulary = tuple(columns[0].dictionary.to_pylist())
        encoding = Encoding(vocabulary, train, valid, test, metadata[b"rule"].decode())
        if metadata[b"sha256"].decode() == _digest(encoding):
            return encoding
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, IndexError, pa.ArrowException) as error:
        _log.warning("%s is damaged (%s); encoding the text again", path, error)
        return None
    _log.warning("%s is damaged (its SHA-256 differs); encoding the text again", path)
    return None


def _digest(encoding: Encoding) -> str:
    digest = hashlib.sha256("\n".join((encoding.rule, *encoding.vocabulary)).encode())
    for ids in (encoding.train, encoding.valid, encoding.test):
        digest.update(len(ids).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(ids, dtype="<i4").data)
    return digest.hexdigest()
