"""Codebooks and word vectors as NumPy archives: kept by content in the cache directory, and in trials' folders.

What is kept is named by all that decides it: the spec without places, the vocabulary, the training text as it is cut,
and the version of the constructions. An archive holds a checksum of every array.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lm.codebooks.code import Codebook, Spans
from lm.data import EncodedCorpus, cache_folder
from lm.files import atomic
from lm.kept import kept
from lm.spec import CodebookSpec, Embeddings

CONSTRUCTION = 2
"""Raised whenever the same spec and text would give another codebook or other vectors."""

_WAIT_SECONDS = 3600.0

Arrays = dict[str, Any]  # of NumPy's
Vectors = NDArray[np.float32]
T = TypeVar("T")
_log = logging.getLogger(__name__)


def stored_codebook(
    spec: CodebookSpec, corpus: EncodedCorpus, copies: Iterable[Path], make: Callable[[], Codebook]
) -> Codebook:
    """The codebook of this spec and text: the first of the copies that is one, else the cache's, made where needed."""
    origin = _origin(spec, corpus)
    for path in copies:
        copy = _read(path, _codebook_of)
        if copy is not None and copy.origin == origin:
            return copy
    return kept(
        cache_folder() / "codebooks" / f"{origin}.v{CONSTRUCTION}.npz",
        "codebooks",
        read=lambda path: _read(path, _codebook_of),
        make=lambda: replace(make(), origin=origin),
        write=save_codebook,
        wait_seconds=_WAIT_SECONDS,
    )


def stored_vectors(spec: Embeddings, corpus: EncodedCorpus, make: Callable[[], Vectors]) -> Vectors:
    """The cache's word vectors of this spec and text, made where needed."""
    return kept(
        cache_folder() / "vectors" / f"{_origin(spec, corpus)}.v{CONSTRUCTION}.npz",
        "word vectors",
        read=lambda path: _read(path, lambda arrays: arrays["vectors"]),
        make=make,
        write=lambda path, vectors: _write(path, {"vectors": vectors}),
        wait_seconds=_WAIT_SECONDS,
    )


def save_codebook(path: Path, codebook: Codebook) -> None:
    """Write a codebook, whole or not at all."""
    arrays = {"packed": codebook.packed, "bits": codebook.bits, "origin": codebook.origin or ""}
    if (spans := codebook.spans) is not None:
        arrays |= {"class_bits": spans.class_bits, "order": spans.order_V, "bounds": spans.bounds}
    _write(path, arrays)


def _codebook_of(arrays: Arrays) -> Codebook:
    spans = None
    if "class_bits" in arrays:
        spans = Spans(int(arrays["class_bits"]), arrays["order"], arrays["bounds"])
    return Codebook(arrays["packed"], int(arrays["bits"]), spans, str(arrays["origin"]) or None)


def _origin(spec: CodebookSpec | Embeddings, corpus: EncodedCorpus) -> str:
    decides = spec.model_dump(mode="json", exclude={"path": True, "embeddings": {"path"}})
    digest = hashlib.sha256(json.dumps([decides, corpus.vocabulary], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(corpus.train, dtype="<i4").data)
    return digest.hexdigest()[:32]


def _write(path: Path, arrays: Arrays) -> None:
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _read(path: Path, from_arrays: Callable[[Arrays], T]) -> T | None:
    """What an archive holds, None where there is none or it is damaged."""
    try:
        with path.open("rb") as file, np.load(file) as archive:
            return from_arrays(dict(archive))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        _log.warning("%s is damaged (%s: %s); passing it over", path, type(error).__name__, error)
        return None
