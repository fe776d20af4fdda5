"""The neural cache against loops over tokens, and the counts that Merity et al. (2017, table 3) print."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from lm.cache import CacheValues, active_positions, cache_nats, cache_probability, choose_values, score_with_cache
from lm.data import EncodedCorpus
from lm.data.batches import columns
from lm.evaluate import token_nats
from lm.model import LanguageModel
from lm.spec import Cache, Dropout, Head, MixtureHead, Model, SoftmaxHead
from tests.support.tiny import even

Mode = Literal["reference", "full"]
CPU = torch.device("cpu")
V, N, H = 6, 90, 4


def passage(count: int = N, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states (N, H), targets (N,), the model's losses (N,), float64."""
    generator = torch.Generator().manual_seed(seed)
    hidden_NH = torch.randn(count, H, generator=generator, dtype=torch.float64)
    targets_N = torch.randint(V, (count,), generator=generator)
    nats_N = -torch.log_softmax(torch.randn(count, V, generator=generator, dtype=torch.float64), 1)
    return hidden_NH, targets_N, nats_N.gather(1, targets_N[:, None])[:, 0]


def pointer(hidden: np.ndarray, targets: list[int], now: int, first: int, flatness: float) -> np.ndarray:
    """p_cache over the vocabulary at position `now`, from the pairs at first..now-1."""
    scores = np.array([flatness * float(np.dot(hidden[now], hidden[i])) for i in range(first, now)])
    weights = np.exp(scores - scores.max())
    probability = np.zeros(V)
    for i, weight in zip(range(first, now), weights / weights.sum(), strict=True):
        probability[targets[i]] += weight
    return probability


def by_the_authors_code(
    hidden_NH: Tensor, targets_N: Tensor, nats_N: Tensor, values: CacheValues, chunk: int
) -> list[float]:
    """Chunks are appended to a history, scored, and the history is cut to the window."""
    keys, words, losses = np.zeros((0, H)), list[int](), list[float]()
    for start in range(0, len(targets_N), chunk):
        offset = len(words)
        keys = np.concatenate([keys, hidden_NH[start : start + chunk].numpy()])
        words = words + targets_N[start : start + chunk].tolist()
        for q in range(offset, len(words)):
            plain = math.exp(-nats_N[start + q - offset])
            if q > values.window:
                mixed = pointer(keys, words, q, q - values.window, values.flatness)[words[q]]
                plain = values.weight * mixed + (1 - values.weight) * plain
            losses.append(-math.log(plain))
        keys, words = keys[-values.window :], words[-values.window :]
    return losses


def by_the_whole_history(hidden_NH: Tensor, targets_N: Tensor, nats_N: Tensor, values: CacheValues) -> list[float]:
    losses, words = [], targets_N.tolist()
    for now, nats in enumerate(nats_N.tolist()):
        mixed = math.exp(-nats)
        if now > 0:
            cached = pointer(hidden_NH.numpy(), words, now, max(0, now - values.window), values.flatness)
            mixed = values.weight * cached[words[now]] + (1 - values.weight) * mixed
        losses.append(-math.log(mixed))
    return losses


@pytest.mark.parametrize("window", [1, 7, 40, 200])
@pytest.mark.parametrize("chunk", [1, 5, 40, 41, 1000])
def test_reference_mode_against_the_authors_loop(window: int, chunk: int) -> None:
    """Token by token, the history cut after every chunk, as it is in the authors' code."""
    values = CacheValues(window, 0.3, 0.8)
    nats_N = cache_nats(*passage(), values, mode="reference", chunk=chunk)
    np.testing.assert_allclose(nats_N.numpy(), by_the_authors_code(*passage(), values, chunk), rtol=1e-10)


@pytest.mark.parametrize("window", [1, 7, 40, 200])
def test_full_mode_against_a_loop_whatever_the_chunk(window: int) -> None:
    """Every position has as long a history as the text and the window give it."""
    values = CacheValues(window, 0.3, 0.8)
    nats = [cache_nats(*passage(), values, mode="full", chunk=chunk) for chunk in (1, 13, 5000)]
    np.testing.assert_allclose(nats[0].numpy(), by_the_whole_history(*passage(), values), rtol=1e-10)
    assert torch.equal(nats[0], nats[1]) and torch.equal(nats[0], nats[2])


def test_reference_chunks_differ_at_one_position_each() -> None:
    """Each later chunk begins with a position that has no cache."""
    values = CacheValues(7, 0.3, 0.8)
    one, many = (cache_nats(*passage(), values, mode="reference", chunk=chunk) for chunk in (1000, 20))
    assert (one != many).nonzero().flatten().tolist() == [20, 40, 60, 80]


def test_blocks_of_queries_change_nothing() -> None:
    """More predictions than are scored at once."""
    hidden_NH, targets_N, nats_N = passage(1200)
    values = CacheValues(30, 0.2, 0.5)
    nats = cache_nats(hidden_NH, targets_N, nats_N, values, mode="full", chunk=5000)
    np.testing.assert_allclose(nats.numpy(), by_the_whole_history(hidden_NH, targets_N, nats_N, values), rtol=1e-10)


@pytest.mark.parametrize("mode", ["reference", "full"])
def test_no_weight_is_the_model_exactly(mode: Mode) -> None:
    """With lambda 0, to the last bit."""
    hidden_NH, targets_N, nats_N = passage()
    nats = cache_nats(hidden_NH, targets_N, nats_N, CacheValues(7, 0.0, 1.0), mode=mode, chunk=20)
    assert torch.equal(nats, nats_N)


def test_no_flatness_is_the_relative_frequency() -> None:
    """With theta 0, of the word in the window."""
    hidden_NH, targets_N, _ = passage()
    words = targets_N.tolist()
    probability = cache_probability(hidden_NH, targets_N, 15, 0.0).tolist()
    for now in range(1, N):
        seen = words[max(0, now - 15) : now]
        assert probability[now] == pytest.approx(seen.count(words[now]) / len(seen), abs=1e-12)


def test_endless_flatness_is_the_word_of_the_best_match() -> None:
    """All mass lies on the word that followed the most similar hidden state."""
    hidden_NH, targets_N, _ = passage()
    words = targets_N.tolist()
    probability = cache_probability(hidden_NH, targets_N, 15, 1e6).tolist()
    for now in range(1, N):
        first = max(0, now - 15)
        best = first + int(np.argmax([float(hidden_NH[now] @ hidden_NH[i]) for i in range(first, now)]))
        assert probability[now] == pytest.approx(float(words[best] == words[now]), abs=1e-9)


def test_probabilities_sum_to_one_over_the_vocabulary() -> None:
    """Every word takes the last target's place in turn."""
    hidden_NH, targets_N, _ = passage()
    total = 0.0
    for word in range(V):
        targets_N[-1] = word
        total += cache_probability(hidden_NH, targets_N, 15, 0.7)[-1].item()
    assert total == pytest.approx(1.0, abs=1e-12)


def test_a_word_that_neither_expects_has_a_finite_loss() -> None:
    """The model's probability is smaller than the smallest float32."""
    hidden_NH, targets_N = torch.ones(4, H), torch.tensor([0, 0, 0, 1])
    nats = cache_nats(hidden_NH, targets_N, torch.full((4,), 300.0), CacheValues(5, 0.1, 1.0), mode="full", chunk=9)
    torch.testing.assert_close(nats, torch.tensor([300.0, -math.log(0.1), -math.log(0.1), 300 - math.log(0.9)]))


TABLE_3 = {
    ".": 7632, ",": 9857, "of": 5816, "=": 2884, "to": 4048, "in": 4178, "<eos>": 3690, "and": 5251, "the": 12481,
    "a": 3381, '"': 2540, "that": 1365, "by": 1252, "was": 2279, ")": 1101, "with": 1176, "for": 1215, "on": 1485,
    "as": 1338, "at": 879, "<unk>": 11540, "Meridian": 161, "Churchill": 137, "\u2011": 67, "Blythe": 97, "Sonic": 75,
    "Richmond": 101, "Starr": 74, "Australian": 234, "Pagan": 54, "Asahi": 39, "Japanese": 181, "Hu": 43,
    "Hedgehog": 29, "Burma": 35, "29": 92, "Mississippi": 72, "German": 108, "mill": 67, "Cooke": 33,
}  # fmt: skip
"""Merity et al. 2017, table 3: words of WikiText-2's validation text and how often the cache was active on them."""


def test_table_3_counts_on_wikitext_2(wikitext2: EncodedCorpus) -> None:
    """Window 3785 and chunks of 5000 give all 40 counts; other chunks do not."""
    targets = wikitext2.valid[1:]
    assert len(targets) == 217_645 and len(TABLE_3) == 40

    def counts(chunk: int) -> tuple[int, dict[str, int]]:
        active_N = active_positions(len(targets), 3785, "reference", chunk, CPU).numpy()
        found = Counter(targets[active_N].tolist())
        return int(active_N.sum()), {word: found[wikitext2.vocabulary.index(word)] for word in TABLE_3}

    assert counts(5000) == (213_816, TABLE_3)
    assert all(counts(chunk)[1] != TABLE_3 for chunk in (2000, 4000, 3785))


HEADS: list[Head] = [SoftmaxHead(kind="softmax"), MixtureHead(kind="mixture", experts=(0, 1, 2), dropout=0.5)]


def model(head: Head = HEADS[0]) -> LanguageModel:
    shape = Model(layers=2, embedding_size=H, hidden_size=5)
    return LanguageModel(shape, head, Dropout(), even(V), torch.Generator().manual_seed(3))


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)
def test_scores_of_a_model_with_its_cache(head: Head) -> None:
    """Keys are the last layer's raw outputs, whatever the head; the plain losses are those of one column."""
    texts = {"valid": np.tile(np.arange(V, dtype=np.int32), 20), "test": np.tile(np.array([2, 0, 1], np.int32), 20)}
    spec = Cache(window=12, weight=0.4, flatness=2.0, mode="full")
    built = model(head)
    values, plain, mixed = score_with_cache(built, texts, spec, 7, CPU)
    assert values == CacheValues(12, 0.4, 2.0)
    for split, text in texts.items():
        text_R1 = columns(text, 1, CPU)
        outputs, _ = built(text_R1[:-1], built.initial_state(1))
        expected_plain, _ = token_nats(built, text_R1, 70)
        np.testing.assert_allclose(plain[split].nats, expected_plain.nats, rtol=1e-5)
        expected = by_the_whole_history(
            outputs.raw[-1][:, 0].detach(), text_R1[1:, 0], torch.tensor(expected_plain.nats), values
        )
        np.testing.assert_allclose(mixed[split].nats, expected, rtol=1e-4)
        assert mixed[split].score().columns == 1 and np.array_equal(mixed[split].token, text[1:])


def test_values_are_chosen_on_validation() -> None:
    """The best of the grid on validation, also where test would choose otherwise."""
    rare = np.random.default_rng(0).integers(V, size=400).astype(np.int32)
    texts = {"valid": rare, "test": np.tile(np.array([2, 0, 1], np.int32), 20)}
    spec = Cache(window=(5, 50), weight=(0.9, 0.01), flatness=(0.0, 3.0), mode="full")
    values, _, mixed = score_with_cache(model(), texts, spec, 70, CPU)
    one = {
        (window, weight, flatness): score_with_cache(
            model(), texts, Cache(window=window, weight=weight, flatness=flatness, mode="full"), 70, CPU
        )[2]
        for window in (5, 50)
        for weight in (0.9, 0.01)
        for flatness in (0.0, 3.0)
    }
    nats = {split: {key: found[split].score().nats_per_token for key, found in one.items()} for split in texts}
    chosen = (values.window, values.weight, values.flatness)
    assert chosen == min(nats["valid"], key=nats["valid"].__getitem__)
    assert chosen != min(nats["test"], key=nats["test"].__getitem__)
    assert mixed["test"].score().nats_per_token == nats["test"][chosen]


def test_a_single_value_needs_no_choice() -> None:
    values = choose_values(*passage(), Cache(window=4, weight=0.1, flatness=1.0))
    assert values == CacheValues(4, 0.1, 1.0)
