"""A batch computed in parts: the sum of their gradients is the whole batch's. T time, B batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

import lm.epochs
from lm.spec import TrainSpec
from tests.support.lm_trials import run, settled
from tests.support.stages import begin, texts
from tests.support.tiny import tiny_spec

UNTIED = {"layers": 2, "embedding_size": 6, "hidden_size": 10, "tied": False}


def gradients(spec: TrainSpec, small_batch: int | None, windows: int = 2) -> dict[str, Tensor]:
    """Of the last of some windows, the state carried from one to the next; in double precision."""
    stage = begin(spec)
    stage.spec = stage.spec.model_copy(update={"small_batch": small_batch})
    stage.model.double()
    stage.hidden = stage.model.initial_state(spec.batch_size)
    text_RB = texts(spec)[0]
    for row in range(0, 7 * windows, 7):
        nats, terms = lm.epochs._backward(stage, text_RB[row : row + 7], text_RB[row + 1 : row + 8])
    found = {name: weight.grad for name, weight in stage.model.named_parameters() if weight.grad is not None}
    found |= {f"state {k}": part for k, layer in enumerate(stage.hidden) for part in layer}
    return found | {"nats": nats} | {f"term {k}": term for k, term in enumerate(terms)}


@pytest.mark.parametrize("small_batch", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loss_reduction": "sum_over_time", "model": UNTIED | {"cell": "gru"}},
        {"head": {"kind": "mixture", "experts": [1, 1, 2]}},
        {"head": {"kind": "softmax", "augmented": {"kind": "added"}}},
        {"head": {"kind": "adaptive", "cutoffs": [5, 12], "divisor": 2.0}, "model": UNTIED},
        {"head": {"kind": "hierarchical", "tree": {"kind": "huffman"}}, "model": UNTIED},
    ],
    ids=["softmax", "gru, summed", "mixture", "augmented", "adaptive", "tree"],
)
def test_parts_have_the_gradient_of_the_whole(corpus_folder: Path, small_batch: int, changes: dict[str, Any]) -> None:
    """Without dropout, with AR and TAR; three of four columns leave a part of one."""
    spec = tiny_spec(corpus_folder, **({"dropout": {}} | changes))
    whole, parts = gradients(spec, None), gradients(spec, small_batch)
    assert whole.keys() == parts.keys()
    assert any(gradient.abs().max() > 1e-3 for name, gradient in whole.items() if "weight" in name)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-6, atol=1e-9, msg=name)


def test_each_part_draws_masks_of_its_own(corpus_folder: Path) -> None:
    spec = tiny_spec(corpus_folder)
    whole, parts = gradients(spec, None), gradients(spec, 2)
    assert not torch.allclose(whole["embedding_VE"], parts["embedding_VE"], rtol=0.01)
    assert parts["nats"].item() == pytest.approx(whole["nats"].item(), rel=0.05)


def test_a_penalty_on_the_gate_is_of_each_part(corpus_folder: Path) -> None:
    """As in the authors' code: the only term here that is no mean over columns (Takase et al. 2018, equation 13)."""
    head = {"kind": "mixture", "experts": [1, 1, 2], "prior_penalty": 1.0, "prior_penalty_form": "paper"}
    spec = tiny_spec(corpus_folder, dropout={}, head=head)
    whole, parts = gradients(spec, None), gradients(spec, 1)
    assert parts["term 0"] >= whole["term 0"]
    assert parts["nats"].item() == pytest.approx(whole["nats"].item(), rel=1e-9)


def test_a_trial_in_parts_comes_near_the_trial_in_one(corpus_folder: Path, tmp_path: Path) -> None:
    spec = tiny_spec(corpus_folder, dropout={}, epochs=1)
    for name, size in (("whole", None), ("parts", 3)):
        run(spec.model_copy(update={"small_batch": size}), tmp_path / name)
    whole, parts = (settled(tmp_path / name) for name in ("whole", "parts"))
    assert parts.key != whole.key and parts.spec.small_batch == 3
    assert parts.stages[0].steps == whole.stages[0].steps
    assert parts.stages[0].valid.nats_per_token == pytest.approx(whole.stages[0].valid.nats_per_token, rel=1e-4)
    head, length = begin(spec).model.head, spec.bptt.length
    assert [whole.head_cost, parts.head_cost] == [head.cost(length * 4), head.cost(length * 3)]
    assert parts.head_cost.peak_bytes < whole.head_cost.peak_bytes


def test_one_part_is_the_same_to_the_last_bit(corpus_folder: Path) -> None:
    whole, one = (gradients(tiny_spec(corpus_folder), size) for size in (None, 4))
    assert all(torch.equal(gradient, one[name]) for name, gradient in whole.items())


def test_a_part_is_no_larger_than_the_batch() -> None:
    with pytest.raises(ValidationError, match="small_batch 5 is more than the 4 columns of batch_size"):
        tiny_spec("somewhere", small_batch=5)
