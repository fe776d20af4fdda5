"""The rank of log-probabilities: what bounds it, what only seems to raise it, and what is kept of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch.nn import functional as F

from lm.analyze.rank import rank_of, summary, triangle
from lm.heads import OutputHead, Outputs, Words, build_head
from lm.spec import Head, MixtureHead, SoftmaxHead
from tests.lm.heads.examples import EXAMPLES, Example, V, build, outputs, random_code
from tests.support.tiny import even

ROWS, WORDS, SIZE = 700, 500, 20


def windows() -> list[Outputs]:
    """Outputs of one layer in float32, as a model gives them, 150 rows at a time."""
    hidden_NH = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(0))
    return [Outputs((part, part), (part, part)) for part in hidden_NH[:, None].split(150)]


def head_of(spec: Head, words: Words | None = None) -> OutputHead:
    """A head whose parameters are all drawn, biases too."""
    init = torch.Generator().manual_seed(1)
    embedding_VE = torch.nn.Parameter(torch.randn(WORDS, SIZE, generator=init))
    head = build_head(
        spec, sizes=(SIZE, SIZE), words=words or even(WORDS), embedding_VE=embedding_VE, tied=True, init=init
    )
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(generator=init)
    return head


@pytest.mark.parametrize(("bias", "centred"), [(True, SIZE + 1), (False, SIZE)])
def test_a_softmax_has_the_rank_of_its_size_and_one_more_for_its_bias(bias: bool, centred: int) -> None:
    found = rank_of(head_of(SoftmaxHead(kind="softmax", bias=bias)), windows())
    assert (found.positions, found.words, found.bound) == (ROWS, WORDS, centred)
    assert (found.centred.rank, found.plain.rank) == (centred, centred + 1), "the normaliser is one more"
    assert set(found.centred.above.values()) == {centred} and 1 < found.centred.effective < centred


def test_a_mixture_passes_every_bound_at_every_threshold_and_one_of_contexts_does_not() -> None:
    found = rank_of(head_of(MixtureHead(kind="mixture", experts=(0, 5))), windows())
    assert (found.centred.rank, found.plain.rank, found.bound) == (WORDS - 1, WORDS, None)
    assert found.centred.above["1e-4"] > 10 * SIZE, "not by rounding alone"
    contexts = rank_of(head_of(MixtureHead(kind="mixture", experts=(0, 5), mixture="contexts")), windows())
    assert contexts.centred.rank == contexts.bound == SIZE + 1


@pytest.mark.parametrize(
    ("spec", "bound"),
    [
        ({"kind": "differentiated", "shares": [0.25, 0.75], "sizes": [12, 8]}, SIZE + 1),
        ({"kind": "adaptive", "cutoffs": [100, 200, 300], "divisor": 1.0}, SIZE + 3),
        ({"kind": "hierarchical", "tree": {"kind": "two_level", "words_per_class": 50}}, SIZE + 10),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_heads_of_blocks_and_classes_reach_a_bound_of_their_own(spec: dict[str, Any], bound: int) -> None:
    found = rank_of(head_of(TypeAdapter(Head).validate_python(spec)), windows())
    assert found.centred.rank == found.bound == bound


@pytest.mark.parametrize(
    ("bits", "bias", "bound"),
    [(12, "none", 12), (12, "unigram", 13), (30, "none", SIZE + 1), (30, "unigram", SIZE + 1)],
)
def test_codes_have_no_rank_beyond_their_bits(bits: int, bias: str, bound: int) -> None:
    spec = {"kind": "ecoc", "codebook": {"kind": "random", "bits": bits}, "word_bias": bias}
    words = Words(np.arange(1, WORDS + 1), random_code(WORDS, bits))
    found = rank_of(head_of(TypeAdapter(Head).validate_python(spec), words), windows())
    assert found.centred.rank == found.bound == bound


def test_rounding_and_a_floor_below_probabilities_have_full_rank_and_only_thresholds_tell() -> None:
    """The traps of the protocol: float32 logits, and log(p + 1e-8)."""
    head = head_of(SoftmaxHead(kind="softmax"))
    with torch.no_grad():
        narrow = torch.cat([head.scorer().log_probabilities(window)[:, 0] for window in windows()])
    cast = summary(torch.linalg.svdvals(narrow.double()), ROWS, WORDS)
    assert (cast.rank, cast.above["1e-4"]) == (WORDS, SIZE + 2)
    exact = torch.cat([F.log_softmax(part.double(), dim=-1) for part in narrow.split(150)])
    floored = summary(torch.linalg.svdvals((exact.exp() + 1e-8).log()), ROWS, WORDS)
    assert floored.rank == WORDS and floored.above["1e-4"] > 10 * SIZE


def test_the_triangle_of_blocks_has_the_singular_values_of_the_whole() -> None:
    whole = torch.randn(37, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for sizes in ([37], [5] * 7 + [2], [1] * 37, [8, 29]):
        r, rows = triangle(iter(whole.split(sizes)))
        assert rows == 37 and r.shape == (8, 8)
        expected = np.linalg.svd(whole.numpy(), compute_uv=False)
        assert torch.linalg.svdvals(r).numpy() == pytest.approx(expected, rel=1e-12)
    assert triangle(iter(whole[:5].split(2)))[0].shape == (5, 8), "fewer rows than words"


def test_a_summary_counts_by_each_threshold() -> None:
    found = summary(torch.tensor([10.0, 5.0, 0.5, 1e-3, 1e-12, 1e-16], dtype=torch.float64), 100, 6)
    assert (found.largest, found.rank) == (10.0, 5), "1e-16 is rounding: 10 x 100 x 2.2e-16 and less"
    assert found.above == {"1e-2": 3, "1e-3": 3, "1e-4": 3, "1e-5": 4, "1e-6": 4}
    share = np.array([10.0, 5.0, 0.5, 1e-3]) / 15.501
    assert found.effective == pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-9)
    assert found.spectrum[0] == (1, 1.0) and found.spectrum[-1][0] == 6
    even = summary(torch.ones(7, dtype=torch.float64), 7, 7)
    assert even.effective == pytest.approx(7.0)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_no_head_passes_the_bound_that_is_said_of_it(example: Example) -> None:
    head = build(example, dtype=torch.float32)
    before = {name: weight.clone() for name, weight in head.named_parameters()}
    found = rank_of(head, [outputs(batch=50, dtype=torch.float32)])
    assert found.words == V and found.centred.rank <= min(found.bound or V - 1, V - 1)
    assert found.plain.rank <= found.centred.rank + 1
    assert all(torch.equal(weight, before[name]) for name, weight in head.named_parameters()), "stays in float32"
