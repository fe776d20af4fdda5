"""Text drawn from a trained model. T time, B samples side by side, P prompts, V vocabulary, H layer size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lm.data.lookup import banned_ids, prompt_ids
from lm.data.text import EOS
from lm.heads import Outputs, Scorer
from lm.heads.cross_entropy import SAME_BITS_ROWS
from lm.model import LanguageModel
from lm.recurrent import State
from lm.samples import as_text
from lm.spec import Generate

_ROWS = 256
"""Samples drawn side by side; each has random numbers of its own."""
_CELLS = 2**24
"""The most probabilities of a step: bounds memory where the vocabulary is large."""


@dataclass(frozen=True)
class Passage:
    """Words that follow a prompt, and the model's own log-probability of each, natural logarithm.

    Temperature, banned words and the like change which words are chosen, not these numbers.
    """

    prompt: str
    words: tuple[str, ...]
    log_probabilities: tuple[float, ...]

    @property
    def text(self) -> str:
        """The words with blanks between them, a new line for each `<eos>`."""
        return as_text(self.words, EOS)


@torch.inference_mode()
def generate(
    model: LanguageModel,
    vocabulary: Sequence[str],
    how: Generate,
    prompts: Sequence[str] | None = None,
    *,
    sentence: bool = False,
) -> list[Passage]:
    """`how.samples` samples of each prompt, prompt by prompt; without `prompts`, of `how.prompt` alone.

    Each sample has random numbers of its own, so that it does not depend on which others are drawn with it. A step is
    one forward pass for all samples. The state begins at zero before an `<eos>`, the end of a line. With
    `sentence` a sample ends at its first `<eos>`. Raises ValueError for a word that the vocabulary lacks, or if no word
    is left to draw.
    """
    prompts = (how.prompt,) if prompts is None else prompts
    banned_V = banned(how.ban, vocabulary, model.embedding_VE.device)
    scorer = model.head.scorer()
    log_p_PV, state = read_prompts(model, scorer, [prompt_ids(prompt, vocabulary) for prompt in prompts])
    rows = [(prompt, sample) for prompt in range(len(prompts)) for sample in range(how.samples)]
    passages: list[Passage] = []
    together = max(1, min(_ROWS, _CELLS // len(vocabulary)))
    for first in range(0, len(rows), together):
        chunk = rows[first : first + together]
        batch = chunk * -(-SAME_BITS_ROWS // len(chunk))  # the products of few rows round otherwise
        of_B = torch.tensor([prompt for prompt, _ in batch], device=banned_V.device)
        uniform_TB = np.stack([_uniform(how, sample) for _, sample in batch], axis=1)
        drawn = _draw(model, scorer, log_p_PV[of_B], take(state, of_B), torch.from_numpy(uniform_TB), how, banned_V)
        columns = (tensor.t()[: len(chunk)].tolist() for tensor in drawn)
        for (prompt, _), ids, log_p in zip(chunk, *columns, strict=True):
            words = tuple(vocabulary[i] for i in ids)
            end = words.index(EOS) + 1 if sentence and EOS in words else len(words)
            passages.append(Passage(prompts[prompt], words[:end], tuple(log_p[:end])))
    return passages


def choose(log_p_BV: Tensor, uniform_B: Tensor, how: Generate, banned_V: Tensor) -> Tensor:
    """The next words (B,), by the inverse of their cumulative distribution at numbers from [0, 1)."""
    scores_BV = log_p_BV.double().masked_fill(banned_V, -torch.inf)
    if how.temperature == 0.0:
        return scores_BV.argmax(dim=-1)
    # Less the largest first: however small the temperature, that one stays 0 and all others go to minus infinity.
    scores_BV = (scores_BV - scores_BV.amax(dim=-1, keepdim=True)) / how.temperature
    if how.top_k is not None:
        best_BK = scores_BV.topk(min(how.top_k, scores_BV.shape[1]), dim=-1).indices
        scores_BV = torch.full_like(scores_BV, -torch.inf).scatter(-1, best_BK, scores_BV.gather(-1, best_BK))
    probability_BV = scores_BV.softmax(dim=-1)
    if how.top_p is not None:
        falling_BV, order_BV = probability_BV.sort(dim=-1, descending=True, stable=True)
        nucleus_BV = falling_BV.cumsum(dim=-1) - falling_BV < how.top_p
        probability_BV = torch.zeros_like(falling_BV).scatter(-1, order_BV, falling_BV * nucleus_BV)
    cumulative_BV = probability_BV.cumsum(dim=-1)
    # The last sum becomes exactly 1, which no number reaches, so that a word of probability 0 is never chosen.
    cumulative_BV = cumulative_BV / cumulative_BV[:, -1:]
    return torch.searchsorted(cumulative_BV, uniform_B[:, None].to(cumulative_BV), right=True)[:, 0]


def read_prompts(model: LanguageModel, scorer: Scorer, contexts: Sequence[Sequence[int]]) -> tuple[Tensor, list[State]]:
    """The log-probabilities (P, V) of what follows each context, read from a zero state, and the states after them."""
    read = [advance(model, scorer, _column(context, model), model.initial_state(1)) for context in contexts]
    layers = zip(*(state for _, state in read), strict=True)
    state = [tuple(torch.cat(parts, dim=1) for parts in zip(*layer, strict=True)) for layer in layers]
    return torch.cat([log_p_1V for log_p_1V, _ in read]), state


def advance(model: LanguageModel, scorer: Scorer, tokens_TB: Tensor, state: list[State]) -> tuple[Tensor, list[State]]:
    """The log-probabilities (B, V) of the word after the last of these, and the state there."""
    outputs, state = model(tokens_TB, state)
    last = Outputs(*(tuple(layer[-1:] for layer in layers) for layers in (outputs.raw, outputs.dropped)))
    return scorer.log_probabilities(last)[0], state


def take(state: list[State], rows_B: Tensor) -> list[State]:
    """The states of these rows of the batch, in this order; a row may be taken many times."""
    return [tuple(part.index_select(1, rows_B) for part in layer) for layer in state]


def banned(words: Iterable[str], vocabulary: Sequence[str], device: torch.device) -> Tensor:
    """Which words (V,) are never drawn; ValueError for unknown words, or if none is left."""
    banned_V = torch.zeros(len(vocabulary), dtype=torch.bool, device=device)
    banned_V[banned_ids(words, vocabulary)] = True
    return banned_V


def _draw(
    model: LanguageModel,
    scorer: Scorer,
    log_p_BV: Tensor,
    state: list[State],
    uniform_TB: Tensor,
    how: Generate,
    banned_V: Tensor,
) -> tuple[Tensor, Tensor]:
    """Word ids and their log-probabilities, (T, B) each."""
    words, log_ps = [], []
    for step, uniform_B in enumerate(uniform_TB, 1):
        words_B = choose(log_p_BV, uniform_B, how, banned_V)
        words.append(words_B)
        log_ps.append(log_p_BV.gather(-1, words_B[:, None])[:, 0])
        if step < len(uniform_TB):
            log_p_BV, state = advance(model, scorer, words_B[None], state)
    return torch.stack(words), torch.stack(log_ps)


def _uniform(how: Generate, sample: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A sample's numbers from [0, 1), one a word."""
    return np.random.default_rng([how.seed, sample]).random(how.words)


def _column(ids: Sequence[int], model: LanguageModel) -> Tensor:
    return torch.tensor(ids, device=model.embedding_VE.device)[:, None]
