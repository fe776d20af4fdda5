"""Candidates ranked again by a language model (Choe & Charniak 2016; Takase et al. 2018). T time, B batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import torch
from pydantic import Field, StrictInt, StrictStr, ValidationError

from lm.brackets import labelled_f1
from lm.data.text import EOS, UNKNOWN, lines_of
from lm.model import LanguageModel
from lm.spec import Part
from lm.spec.text import Ranking
from lm.validation import problems_of
from lm.yaml_text import dotted

_CHUNK_TEXTS = 2048
"""Candidates that are read before they are scored: enough to find some of equal length."""
_BATCH_TOKENS = 8192
"""Tokens that are scored side by side, padding included: bounds memory."""


class Candidate(Part):
    """A text, and the logarithm of what its first model gave it."""

    text: str = Field(pattern=r"\S")
    score: float | None = Field(default=None, allow_inf_nan=False, strict=True)


class Candidates(Part):
    """The candidates for one input; `gold`, if given, is the true tree."""

    candidates: tuple[Candidate, ...] = Field(min_length=1)
    id: StrictStr | StrictInt | None = None
    gold: str | None = None


@dataclass(frozen=True)
class Ranked:
    """What became of an input: its best candidate, and of each its log-probability, tokens with `<eos>`, and score."""

    of: Candidates
    best: int
    log_probabilities: tuple[float, ...]
    tokens: tuple[int, ...]
    scores: tuple[float, ...]

    def as_data(self) -> dict[str, Any]:
        """What a line of JSON shows."""
        named = {} if self.of.id is None else {"id": self.of.id}
        text = self.of.candidates[self.best].text
        numbers = {"scores": self.scores, "log_probabilities": self.log_probabilities, "tokens": self.tokens}
        return {**named, "best": self.best, "text": text, **numbers}


def rerank(
    models: Sequence[LanguageModel],
    vocabulary: Sequence[str],
    inputs: Iterable[Candidates],
    rule: Ranking = "total",
    weight: float = 0.0,
) -> Iterator[Ranked]:
    """Each input with its best candidate, in order, while later ones have not been read yet.

    A candidate's log-probability is that of its words and of an `<eos>`, natural logarithm, from a zero state after an
    `<eos>`. `total` ranks by it, `mean` by it divided by its tokens, `interpolated` by it and `weight` times the
    candidate's own score. Of equal ones the first is best. Several models of one vocabulary are an ensemble. Raises
    what `check_candidates` finds, where it is met.
    """
    ids = {word: i for i, word in enumerate(vocabulary)}
    for chunk in _chunks(inputs):
        texts = [token_ids(candidate.text, ids) for of in chunk for candidate in of.candidates]
        log_ps = iter(log_probabilities(models, texts, ids[EOS]))
        lengths = iter(len(text) for text in texts)
        for of in chunk:
            log_p = tuple(next(log_ps) for _ in of.candidates)
            tokens = tuple(next(lengths) for _ in of.candidates)
            scores = tuple(_score(rule, weight, *one) for one in zip(of.candidates, log_p, tokens, strict=True))
            yield Ranked(of, scores.index(max(scores)), log_p, tokens, scores)


@torch.inference_mode()
def log_probabilities(models: Sequence[LanguageModel], texts: Sequence[Sequence[int]], eos: int) -> list[float]:
    """The log-probability of each text, its last word included, after an `<eos>`; texts of like length together.

    That of each word is of the mean probability over the M models.
    """
    found = [0.0] * len(texts)
    scorers, device = [model.head.scorer() for model in models], models[0].embedding_VE.device
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    while order:
        longest = len(texts[order[-1]])
        places = [order.pop() for _ in range(min(len(order), max(1, _BATCH_TOKENS // longest)))]
        # Padding follows a text, so that no word of it has read any.
        padded_BT = torch.full((len(places), longest + 1), eos)
        for row, place in enumerate(places):
            padded_BT[row, 1 : len(texts[place]) + 1] = torch.tensor(texts[place])
        text_TB = padded_BT.t().to(device)
        nats_MTB = torch.stack(
            [
                scorer.target_nats(model(text_TB[:-1], model.initial_state(len(places)))[0], text_TB[1:]).double()
                for model, scorer in zip(models, scorers, strict=True)
            ]
        )
        nats_TB = math.log(len(models)) - torch.logsumexp(-nats_MTB, dim=0)
        length_B = torch.tensor([len(texts[place]) for place in places], device=device)
        is_text_TB = torch.arange(longest, device=device)[:, None] < length_B
        total_B = torch.where(is_text_TB, nats_TB, 0.0).sum(dim=0)
        for place, nats in zip(places, total_B.tolist(), strict=True):
            found[place] = -nats
    return found


def token_ids(text: str, ids: Mapping[str, int]) -> list[int]:
    """The ids of a text's words, then of `<eos>`; ValueError for an unknown word if there is no `<unk>`."""
    unknown = ids.get(UNKNOWN)
    words = [ids.get(word, unknown) for word in text.split()]
    if None in words:
        word = text.split()[words.index(None)]
        raise ValueError(f"{word!r} is not among the {len(ids):,} words of the corpus, which has no {UNKNOWN}")
    return [*(word for word in words if word is not None), ids[EOS]]


def read_candidates(path: Path) -> Iterator[Candidates]:
    """The inputs of a file, a line of JSON each; ValueError names the first line that is wrong."""
    for number, line in enumerate(lines_of(path), 1):
        try:
            yield Candidates.model_validate_json(line)
        except ValidationError as error:
            problem = problems_of(error, Candidates)[0]
            place = f"{dotted(problem.place)}: " if problem.place else ""
            raise ValueError(f"{path}:{number}: {place}{problem.text}") from error


def check_candidates(path: Path, vocabulary: Sequence[str], rule: Ranking, weight: float = 0.0) -> None:
    """Read a file whole before anything is scored; ValueError names the first line that is wrong.

    Wrong are: a word that the vocabulary lacks, if it has no `<unk>`; no scores, if the rule interpolates with them, or
    one that is infinite times the weight; trees whose brackets do not fit, or whose words are not the gold tree's; a
    file without lines, or one that cannot be read twice.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: should be a regular file, because it is read twice")
    ids = {word: i for i, word in enumerate(vocabulary)}
    number = 0
    for number, of in enumerate(read_candidates(path), 1):
        for place, candidate in enumerate(of.candidates):
            try:
                token_ids(candidate.text, ids)
                if not math.isfinite(_score(rule, weight, candidate, 0.0, 1)):
                    raise ValueError(f"the score {candidate.score:g} times the weight {weight:g} is infinite")
                if of.gold is not None:
                    labelled_f1([(candidate.text, of.gold)])
            except ValueError as error:
                raise ValueError(f"{path}:{number}: candidates.{place}: {error}") from error
    if number == 0:
        raise ValueError(f"{path}: has no line of JSON")


def tree_scores(results: Iterable[tuple[Candidates, int]]) -> tuple[int, dict[str, float]]:
    """How many inputs there are, and the labelled F1 of what was chosen, of the first model's choice, and of the best.

    The first model prefers what has the highest score of its own, the first if there are none. The best
    has the highest F1 of its input, which is not always the choice that makes the F1 of all highest. Each input has its
    true tree.
    """
    pairs: dict[str, list[tuple[str, str]]] = {"the best": [], "the first model's best": [], "each input's best": []}
    count = 0
    for count, (of, best) in enumerate(results, 1):  # noqa: B007
        gold = of.gold or ""
        preferred = max(of.candidates, key=lambda each: -math.inf if each.score is None else each.score)
        highest = max(of.candidates, key=lambda each: labelled_f1([(each.text, gold)]))
        for chosen, kept in zip((of.candidates[best], preferred, highest), pairs.values(), strict=True):
            kept.append((chosen.text, gold))
    return count, {name: labelled_f1(kept) for name, kept in pairs.items()}


def _score(rule: Ranking, weight: float, candidate: Candidate, log_p: float, tokens: int) -> float:
    match rule:
        case "total":
            return log_p
        case "mean":
            return log_p / tokens
        case "interpolated":
            if candidate.score is None:
                raise ValueError(f"no score of {candidate.text!r} to interpolate with")
            return log_p + weight * candidate.score
        case _:
            assert_never(rule)


def _chunks(inputs: Iterable[Candidates]) -> Iterator[list[Candidates]]:
    chunk: list[Candidates] = []
    count = 0
    for of in inputs:
        chunk.append(of)
        count += len(of.candidates)
        if count >= _CHUNK_TEXTS:
            yield chunk
            chunk, count = [], 0
    if chunk:
        yield chunk
