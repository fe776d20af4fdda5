"""Codebooks and word vectors as NumPy archives: kept by content in the cache directory, and in trials' folders.

What is kept is named by all that decides it: the spec without places, the vocabulary, the training text as it is cut,
and the version of the constructions. An archive holds a checksum of every array.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lm.codebooks.code import Codebook, Spans
from lm.data import EncodedCorpus, cache_folder
from lm.files import atomic
from lm.kept import kept
from lm.spec import CodebookSpec, Embeddings

CONSTRUCTION = 1
"""Raised whenever the same spec and text would give another codebook or other vectors."""

Arrays = dict[str, Any]  # of NumPy's
Vectors = NDArray[np.float32]
T = TypeVar("T")
_log = logging.getLogger(__name__)


def stored_codebook(spec: CodebookSpec, corpus: EncodedCorpus, make: Callable[[], Codebook]) -> Codebook:
    """The codebook kept of this spec and text; made and kept where there is none."""
    return _stored("codebooks", spec, corpus, make, _arrays_of, _codebook_of)


def stored_vectors(spec: Embeddings, corpus: EncodedCorpus, make: Callable[[], Vectors]) -> Vectors:
    """The word vectors kept of this spec and text; made and kept where there are none."""
    return _stored("vectors", spec, corpus, make, lambda vectors: {"vectors": vectors}, lambda found: found["vectors"])


def save_codebook(path: Path, codebook: Codebook) -> None:
    """Write a codebook atomically."""
    _write(path, _arrays_of(codebook))


def load_codebook(path: Path) -> Codebook:
    """Read a codebook; ValueError where the file is damaged or no codebook."""
    return _read(path, _codebook_of)


def _stored(
    kind: str,
    spec: CodebookSpec | Embeddings,
    corpus: EncodedCorpus,
    make: Callable[[], T],
    to_arrays: Callable[[T], Arrays],
    from_arrays: Callable[[Arrays], T],
) -> T:
    def read(path: Path) -> T | None:
        if not path.exists():
            return None
        try:
            return _read(path, from_arrays)
        except ValueError as error:
            _log.warning("%s; making it again", error)
            return None

    return kept(
        cache_folder() / kind / f"{_key(spec, corpus)}.npz",
        kind,
        read=read,
        make=make,
        write=lambda path, made: _write(path, to_arrays(made)),
        wait_seconds=3600.0,
    )


def _key(spec: CodebookSpec | Embeddings, corpus: EncodedCorpus) -> str:
    decides = spec.model_dump(mode="json", exclude={"path": True, "embeddings": {"path"}})
    digest = hashlib.sha256(json.dumps([CONSTRUCTION, decides, corpus.vocabulary], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(corpus.train, dtype="<i4").data)
    return digest.hexdigest()[:32]


def _arrays_of(codebook: Codebook) -> Arrays:
    arrays = {"packed": codebook.packed, "bits": np.array(codebook.bits)}
    if (spans := codebook.spans) is not None:
        arrays |= {"class_bits": np.array(spans.class_bits), "order": spans.order_V, "bounds": spans.bounds}
    return arrays


def _codebook_of(arrays: Arrays) -> Codebook:
    spans = None
    if "class_bits" in arrays:
        spans = Spans(int(arrays["class_bits"]), arrays["order"], arrays["bounds"])
    return Codebook(arrays["packed"], int(arrays["bits"]), spans)


def _write(path: Path, arrays: Arrays) -> None:
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _read(path: Path, from_arrays: Callable[[Arrays], T]) -> T:
    try:
        with np.load(path) as archive:
            return from_arrays(dict(archive))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error})") from error
