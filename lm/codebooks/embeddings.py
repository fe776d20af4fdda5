"""Word vectors that codes are made from: of the text itself, of a trained model, of a file. V words, E vector size."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from lm.codebooks.ppmi import ppmi_svd
from lm.codebooks.store import stored_vectors
from lm.data import EncodedCorpus
from lm.data.text import lines_of
from lm.files import expanded, sha256
from lm.spec import CheckpointEmbeddings, Embeddings, FileEmbeddings, PpmiSvdEmbeddings

_TENSOR = "embedding_VE"


def word_vectors(spec: Embeddings, corpus: EncodedCorpus) -> NDArray[np.float32]:
    """The vector of every word of the corpus, (V, E); ValueError for files that are not what the spec says."""
    match spec:
        case PpmiSvdEmbeddings(window=window, size=size):
            words = len(corpus.vocabulary)
            return stored_vectors(spec, corpus, lambda: ppmi_svd(corpus.train, words, window, size))
        case CheckpointEmbeddings():
            embedding_VE = _of_checkpoint(_checked(spec), len(corpus.vocabulary))
        case FileEmbeddings():
            embedding_VE = _of_file(_checked(spec), corpus.vocabulary)
        case _:
            assert_never(spec)
    if not np.isfinite(embedding_VE).all():
        raise ValueError(f"{spec.path}: holds numbers that are not finite")
    return embedding_VE


def likeness(embedding_VE: NDArray[np.float32], word: int) -> NDArray[np.float64]:
    """The cosine of every word's vector with this word's, (V,); 0 where one of them is zero."""
    wide_VE = embedding_VE.astype(np.float64)
    norm_V = np.linalg.norm(wide_VE, axis=1)
    unit_VE = wide_VE / np.where(norm_V == 0, 1.0, norm_V)[:, None]
    cosine_V: NDArray[np.float64] = unit_VE @ unit_VE[word]
    return cosine_V


def _checked(spec: CheckpointEmbeddings | FileEmbeddings) -> Path:
    path = expanded(spec.path)
    try:
        found = sha256(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if found != spec.sha256:
        raise ValueError(f"{path} has SHA-256 {found}, the spec says {spec.sha256}")
    return path


def _of_checkpoint(path: Path, words: int) -> NDArray[np.float32]:
    try:
        with safe_open(path, framework="numpy") as weights:
            embedding_VE: NDArray[np.float32] = weights.get_tensor(_TENSOR).astype(np.float32)
    except SafetensorError as error:
        raise ValueError(f"{path}: not weights with a tensor {_TENSOR} ({error})") from error
    if embedding_VE.ndim != 2:
        raise ValueError(f"{path}: its {_TENSOR} is no matrix, but of shape {embedding_VE.shape}")
    if len(embedding_VE) != words:
        raise ValueError(f"{path}: a model of {len(embedding_VE):,} words, the corpus has {words:,}")
    return embedding_VE


def _of_file(path: Path, vocabulary: tuple[str, ...]) -> NDArray[np.float32]:
    ids = {word: word_id for word_id, word in enumerate(vocabulary)}
    found: dict[int, NDArray[np.float32]] = {}
    for number, line in enumerate(lines_of(path), 1):
        word, *values = line.split() or [""]
        if word not in ids or (number == 1 and len(values) == 1):  # the first line may hold two counts (word2vec)
            continue
        try:
            vector_E = np.array(values, dtype=np.float32)
        except ValueError as error:
            if found and len(values) > len(next(iter(found.values()))):
                continue  # its word holds a blank, so no corpus has it (GloVe's largest file has some)
            raise ValueError(f"{path}:{number}: {error}") from error
        size = len(next(iter(found.values()), vector_E))
        if len(vector_E) != size or not size:
            raise ValueError(f"{path}:{number}: {len(vector_E)} numbers for {word!r}, others have {size}")
        found.setdefault(ids[word], vector_E)
    if missing := [word for word, word_id in ids.items() if word_id not in found]:
        first = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"{path}: no vector for {len(missing):,} of the corpus's {len(ids):,} words: {first}")
    return np.stack([found[word_id] for word_id in range(len(ids))])
