"""Beam search. W hypotheses, T time, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lm.data.lookup import prompt_ids
from lm.data.text import EOS
from lm.generate import Passage, advance, banned, read_prompts, take
from lm.model import LanguageModel


@torch.inference_mode()
def beam_search(
    model: LanguageModel,
    vocabulary: Sequence[str],
    *,
    words: int,
    width: int = 100,
    prompt: str = "",
    ban: Sequence[str] = (),
    sentence: bool = False,
) -> list[Passage]:
    """The continuations of a prompt that a beam finds, best first: at most `width`, by their total log-probability.

    All hypotheses take a step in one forward pass; then the `width` best of all their continuations are kept, and the
    recurrent states are put in their order. With `sentence` a hypothesis is complete at its first `<eos>` and keeps its
    place while it is among the best; without, all have the same number of words. Raises what `generate` raises.
    """
    banned_V = banned(ban, vocabulary, model.embedding_VE.device)
    scorer, eos = model.head.scorer(), vocabulary.index(EOS)
    log_p_WV, state = read_prompts(model, scorer, [prompt_ids(prompt, vocabulary)])
    # In float64, so that a long text's total is as exact as the sum of its parts.
    total_W = torch.zeros(1, dtype=torch.float64, device=banned_V.device)
    ids_WT, log_p_WT = total_W.new_empty(1, 0, dtype=torch.long), total_W.new_empty(1, 0)
    done_W = torch.zeros_like(total_W, dtype=torch.bool)
    for step in range(words):
        if step > 0:
            log_p_WV, state = advance(model, scorer, ids_WT[:, -1][None], state)
        log_p_WV = log_p_WV.double().masked_fill(banned_V, -torch.inf)
        log_p_WV[done_W] = -torch.inf
        log_p_WV[done_W, eos] = 0.0  # a complete one has one continuation, itself
        continued_N = (total_W[:, None] + log_p_WV).flatten()
        total_W, best_W = continued_N.topk(min(width, len(continued_N)))
        possible_W = total_W > -torch.inf
        total_W, best_W = total_W[possible_W], best_W[possible_W]
        parent_W, word_W = best_W // len(vocabulary), best_W % len(vocabulary)
        state = take(state, parent_W)
        ids_WT = torch.cat((ids_WT[parent_W], word_W[:, None]), dim=1)
        log_p_WT = torch.cat((log_p_WT[parent_W], log_p_WV.flatten()[best_W, None]), dim=1)
        done_W = done_W[parent_W] | (word_W == eos) if sentence else done_W[parent_W]
        if bool(done_W.all()):
            break
    passages = []
    for ids, log_ps in zip(ids_WT.tolist(), log_p_WT.tolist(), strict=True):
        end = ids.index(eos) + 1 if sentence and eos in ids else len(ids)
        passages.append(Passage(prompt, tuple(vocabulary[i] for i in ids[:end]), tuple(log_ps[:end])))
    return passages
