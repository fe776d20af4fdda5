"""Dynamic evaluation against its formula, and what must hold of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from lm.__main__ import app
from lm.data import load
from lm.data.batches import columns
from lm.dynamic import DynamicValues, dynamic_nats, gradient_rms, score_dynamically
from lm.evaluate import token_nats
from lm.model import LanguageModel
from lm.rescore import rescore
from lm.spec import Dynamic
from tests.lm.heads.examples import Example, V
from tests.support.lm_trials import run, settled
from tests.support.tiny import tiny_spec
from tests.support.writers import HEADS, small_writer, writer

CPU, SEGMENT, EPSILON = torch.device("cpu"), 4, 1e-4


def text(count: int, words: int = 6, columns: int = 1, seed: int = 1) -> torch.Tensor:
    return torch.randint(words, (count, columns), generator=torch.Generator().manual_seed(seed))


def ones(model: LanguageModel) -> dict[str, torch.Tensor]:
    return {name: torch.ones_like(weight) for name, weight in model.weights().items()}


@pytest.mark.parametrize("example", HEADS, ids=lambda example: example.name)
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_without_a_step_it_is_static_evaluation_to_the_bit(example: Example, decay: float) -> None:
    model, text_R1 = writer(example, torch.float32), text(42, V)
    found = dynamic_nats(model, text_R1, ones(model), DynamicValues(0.0, decay), SEGMENT, EPSILON)
    static, _ = token_nats(model, text_R1, SEGMENT)
    assert np.array_equal(found.nats, static.nats) and np.array_equal(found.token, static.token)
    assert found.score() == static.score()


@pytest.mark.parametrize("example", HEADS, ids=lambda example: example.name)
def test_every_head_learns_and_the_model_is_left_as_it_was(example: Example) -> None:
    """A segment's loss is taken before the step on it: the first one's is the static loss, whatever the step."""
    model, text_R1 = writer(example), text(42, V)
    before = {name: weight.clone() for name, weight in model.weights().items()}
    found = dynamic_nats(model, text_R1, ones(model), DynamicValues(0.01, 0.1), SEGMENT, EPSILON)
    static, _ = token_nats(model, text_R1, SEGMENT)
    assert np.array_equal(found.nats[:SEGMENT], static.nats[:SEGMENT])
    assert (found.nats[SEGMENT:] != static.nats[SEGMENT:]).all()
    assert all(torch.equal(weight, before[name]) for name, weight in model.weights().items())


@pytest.mark.parametrize("cell", ["lstm", "gru", "peephole_lstm", {"kind": "rhn", "depth": 2}], ids=str)
@pytest.mark.parametrize("decay", [0.02, 50.0], ids=["some of the way back", "all of it"])
def test_it_follows_the_formula(cell: str | dict[str, object], decay: float) -> None:
    """Written out weight by weight, with other functions of torch; the last segment is shorter."""
    model, text_R1, rate = small_writer(6, cell), text(31), 0.003
    rms = gradient_rms(model, text(40, columns=3, seed=2), SEGMENT)
    found = dynamic_nats(model, text_R1, rms, DynamicValues(rate, decay), SEGMENT, EPSILON)
    trained = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    mean = float(np.mean([float(part.mean()) for part in rms.values()]))
    state, expected = model.initial_state(1), []
    for row in range(0, 30, SEGMENT):
        targets = text_R1[row + 1 : row + 1 + SEGMENT]
        outputs, state = model(text_R1[row : row + len(targets)], state)
        log_p = model.head.scorer().log_probabilities(outputs)[:, 0]
        nats = torch.nn.functional.nll_loss(log_p, targets[:, 0], reduction="none")
        expected += nats.tolist()
        model.zero_grad()
        nats.mean().backward()
        state = [tuple(part.detach() for part in layer) for layer in state]
        with torch.no_grad():
            for name, weight in model.named_parameters():
                assert weight.grad is not None
                back = torch.minimum(decay * rms[name] / mean, torch.ones(()))
                change = -rate * weight.grad / (rms[name] + EPSILON) + back * (trained[name] - weight)
                weight.copy_(weight + change)
    np.testing.assert_allclose(found.nats, expected, rtol=1e-5)


def test_gradients_are_squared_segment_by_segment() -> None:
    model, text_RB = small_writer(6), text(14, columns=3)
    rms = gradient_rms(model, text_RB, SEGMENT)
    state, squares = model.initial_state(3), []
    for first, last in ((0, 4), (4, 8), (8, 12), (12, 13)):
        outputs, state = model(text_RB[first:last], state)
        loss = model.head.scorer().target_nats(outputs, text_RB[first + 1 : last + 1]).mean()
        model.zero_grad()
        loss.backward()
        state = [tuple(part.detach() for part in layer) for layer in state]
        squares.append({name: weight.grad**2 for name, weight in model.named_parameters() if weight.grad is not None})
    assert rms.keys() == squares[0].keys()
    for name, part in rms.items():
        torch.testing.assert_close(part, torch.stack([square[name] for square in squares]).mean(dim=0).sqrt())


def test_a_text_that_repeats_gets_better() -> None:
    model = small_writer(6)
    text_R1 = text(24).repeat(20, 1)
    rms = gradient_rms(model, text(400, columns=4, seed=3), SEGMENT)
    static, _ = token_nats(model, text_R1, SEGMENT)
    found = dynamic_nats(model, text_R1, rms, DynamicValues(0.02, 0.001), SEGMENT, EPSILON)
    thirds = [float(part.mean()) for part in np.array_split(found.nats, 3)]
    assert thirds[0] > thirds[1] > thirds[2] and thirds[2] < 0.5 * float(static.nats.mean())


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, corpus_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("trial") / "run"
    run(tiny_spec(corpus_folder, epochs=2, finetune={"epochs": 1}), folder)
    return folder


def test_values_are_chosen_on_validation_alone(corpus_folder: Path) -> None:
    model, corpus = small_writer(24).float(), load(tiny_spec(corpus_folder).corpus)
    spec = Dynamic(learning_rate=(0.0, 0.003, 30.0), decay=(0.0, 0.05), choose_tokens=150, statistics_columns=5)
    chosen, losses = score_dynamically(model, corpus, spec, CPU)
    rms = gradient_rms(model, columns(corpus.train, 5, CPU), 5)
    first = {
        (rate, decay): dynamic_nats(
            model, columns(corpus.valid[:150], 1, CPU), rms, DynamicValues(rate, decay), 5, spec.epsilon
        ).nats.mean()
        for rate in (0.0, 0.003, 30.0)
        for decay in (0.0, 0.05)
    }
    means = {values: mean if np.isfinite(mean) else np.inf for values, mean in first.items()}
    assert (chosen.learning_rate, chosen.decay) == min(means, key=lambda values: means[values])
    assert chosen.learning_rate == 0.003, "a large step does harm, none does nothing"
    test = dynamic_nats(model, columns(corpus.test, 1, CPU), rms, chosen, 5, spec.epsilon)
    assert np.array_equal(losses["test"].nats, test.nats) and len(losses["valid"].nats) == len(corpus.valid) - 1


def test_one_value_that_diverges_is_refused_too(corpus_folder: Path) -> None:
    model, corpus = small_writer(24).float(), load(tiny_spec(corpus_folder).corpus)
    spec = Dynamic(learning_rate=1e5, decay=0.0, statistics_columns=5)
    with pytest.raises(ValueError, match="the loss does not stay finite with learning_rate 100000 and decay 0"):
        score_dynamically(model, corpus, spec, CPU)


def test_evaluate_scores_any_stage_dynamically(trial: Path) -> None:
    record = settled(trial)
    for stage in record.stages:
        line = ["evaluate", str(trial), "--stage", stage.name, "--dynamic", "--learning-rate", "0.001,0.002"]
        done = CliRunner().invoke(app, [*line, "--decay", "0.01", "--device", "cpu", "--threads", "1"])
        assert done.exit_code == 0, done.output
        lines = dict(part.split(": ", 1) for part in done.stdout.splitlines())
        assert lines["test"].startswith(f"perplexity {stage.test.perplexity:.3f} ")
        assert lines["test, one column"] == lines["test"], "the spec scores test in one column"
        (name,) = (name for name in lines if name.startswith("test, dynamic"))
        assert name in (f"test, dynamic learning rate {rate} decay 0.01" for rate in ("0.001", "0.002"))
    still = rescore(record, trial, stage="train", device="cpu", dynamic=Dynamic(learning_rate=0.0, decay=0.0))
    nats = still["valid, dynamic learning rate 0 decay 0"].nats_per_token
    assert nats == pytest.approx(still["valid, one column"].nats_per_token)
    assert settled(trial) == record
