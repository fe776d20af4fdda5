"""Next words in contexts, and who gets their probability (Inan et al. 2016, Table 4). T time, V words, E vector size.

The paper says of its model with reused embeddings that it gives less to `<unk>`, a, an and the where they do not
follow, and more to words like the one that does. Both are numbers here, over every prediction of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from lm.analyze.reading import read
from lm.analyzed import ContextFound, NextWordsFound
from lm.codebooks.embeddings import word_vectors
from lm.data import EncodedCorpus, load
from lm.kept_model import KeptModel
from lm.spec import NextWordsAnalysis, PpmiSvdEmbeddings

FREQUENT = ("<unk>", "a", "an", "the")
NEIGHBOURS = 10
_EVEN_PLACES, _EVEN_WORDS = 4, 12
_ROWS = 1024


@torch.inference_mode()
def next_words(settings: NextWordsAnalysis, kept: KeptModel) -> NextWordsFound:
    """Of a text read once from its beginning, its state carried."""
    corpus, model = kept.corpus, kept.model
    text = corpus.valid if settings.split == "valid" else corpus.test
    places, left_out = places_of(settings.contexts, text, corpus.vocabulary)
    ids = {word: corpus.vocabulary.index(word) for word in FREQUENT if word in corpus.vocabulary}
    # Of the whole training text, whatever part of it a model has seen: it is one measure for all of them.
    whole = load(kept.spec.corpus.model_copy(update={"train_tokens": None, "train_start": 0}))
    vectors_VE = torch.from_numpy(word_vectors(PpmiSvdEmbeddings(kind="ppmi_svd"), whole)).to(kept.device)
    own_VN, by_text_VN = neighbours(model.embedding_VE), neighbours(vectors_VE)
    known_V = vectors_VE.any(dim=1)  # a word that only validation or test has is like no other
    mass = torch.zeros(2, dtype=torch.float64, device=kept.device)
    counted_by_text = torch.zeros((), dtype=torch.int64, device=kept.device)
    sums = {word: torch.zeros(2, dtype=torch.float64, device=kept.device) for word in ids}
    contexts: dict[tuple[int, int], ContextFound] = {}
    scorer, first = model.head.scorer(), 1
    for outputs, targets_T1 in read(kept, settings.split):
        p_TV, targets_T = scorer.log_probabilities(outputs)[:, 0].exp(), targets_T1[:, 0]
        known_T = known_V[targets_T]
        counted_by_text += known_T.sum()
        mass[0] += p_TV.gather(1, own_VN[targets_T]).sum(dtype=torch.float64)
        mass[1] += p_TV[known_T].gather(1, by_text_VN[targets_T[known_T]]).sum(dtype=torch.float64)
        for word, number in ids.items():
            others_T = targets_T != number
            sums[word] += torch.stack((p_TV[others_T, number].sum(dtype=torch.float64), others_T.sum()))
        for begin, place in places:
            if first <= place < first + len(targets_T):
                contexts[begin, place] = _context(corpus, text, begin, place, p_TV[place - first], settings.words)
        first += len(targets_T)
    return NextWordsFound(
        kind="next_words",
        predictions=first - 1,
        contexts=tuple(contexts[at] for at in places),
        left_out=left_out,
        probability={word: float(total / count) for word, (total, count) in sums.items() if count},
        neighbours=float(mass[0] / (first - 1)),
        counted_by_text=int(counted_by_text),
        neighbours_by_text=float(mass[1] / counted_by_text),
    )


def neighbours(vectors_VE: Tensor) -> Tensor:
    """The ten nearest words of each by cosine, itself left out, (V, 10); all others if there are fewer."""
    unit_VE = F.normalize(vectors_VE, dim=1)
    words = len(unit_VE)
    tables = list[Tensor]()
    for rows_RE in torch.split(unit_VE, _ROWS):
        cosine_RV = rows_RE @ unit_VE.T
        cosine_RV.diagonal(offset=len(tables) * _ROWS).fill_(-torch.inf)
        tables.append(cosine_RV.topk(min(NEIGHBOURS, words - 1), dim=1).indices)
    return torch.cat(tables)


def places_of(
    contexts: Sequence[str], text: NDArray[np.int32], vocabulary: Sequence[str]
) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
    """Where each context begins in the text and where the word after it stands; and those that it does not have."""
    known = {word: number for number, word in enumerate(vocabulary)}
    places, left_out = list[tuple[int, int]](), list[str]()
    for context in contexts:
        ids = np.array([known.get(word, -1) for word in context.split()])
        begin = next(_occurrences(ids, text), None)
        if begin is None:
            left_out.append(context)
        else:
            places.append((begin, begin + len(ids)))
    if not places:
        even = [max(1, (number + 1) * len(text) // (_EVEN_PLACES + 1)) for number in range(_EVEN_PLACES)]
        places = [(max(0, place - _EVEN_WORDS), place) for place in dict.fromkeys(even)]  # fewer in a tiny text
    return places, tuple(left_out)


def _occurrences(ids: NDArray[np.int64], text: NDArray[np.int32]) -> Iterator[int]:
    """Where these ids stand in the text with a word after them."""
    for begin in np.flatnonzero(text[: len(text) - len(ids)] == ids[0]):
        if np.array_equal(text[begin : begin + len(ids)], ids):
            yield int(begin)


def _context(
    corpus: EncodedCorpus, text: NDArray[np.int32], begin: int, place: int, p_V: Tensor, most: int
) -> ContextFound:
    best = p_V.topk(min(most, len(p_V)))
    return ContextFound(
        context=" ".join(corpus.vocabulary[number] for number in text[begin:place]),
        position=place,
        next=corpus.vocabulary[text[place]],
        words=tuple(
            (corpus.vocabulary[number], probability)
            for number, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
    )
