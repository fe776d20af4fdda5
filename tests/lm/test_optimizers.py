"""Averaging, the trigger (Merity et al. 2017, section 3, algorithm 1) and one step of training."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lm.epochs
from lm.optimizers import RunningAverage, build_optimizer, triggered
from lm.spec import Adam, NtAsgd, Sgd, TrainSpec, Trigger
from lm.stage import Stage
from tests.support.stages import begin, texts, window
from tests.support.tiny import AVERAGING, tiny_spec


def raw_weights_each_epoch(spec: TrainSpec) -> tuple[Stage, list[dict[str, Tensor]]]:
    stage = begin(spec)
    kept = []
    for _ in lm.epochs.run_stage(stage, *texts(spec), lambda _: None, 1e9):
        kept.append({name: weight.clone() for name, weight in stage.model.weights().items()})
    return stage, kept


def equal(some: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(weight, others[name]) for name, weight in some.items())


def test_running_mean_is_the_arithmetic_mean() -> None:
    """Of all iterates so far, but for the one it began at."""
    generator = torch.Generator().manual_seed(0)
    iterates = [torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(500)]
    average = RunningAverage({"w": torch.full((4, 5), 1e6, dtype=torch.float64)})  # the iterate that triggered
    for count, iterate in enumerate(iterates, 1):
        average.update({"w": iterate})
        expected = np.mean([kept.numpy() for kept in iterates[:count]], axis=0)
        np.testing.assert_allclose(average.weights["w"].numpy(), expected, rtol=0, atol=1e-12)
    assert average.steps == 500


def test_the_mean_of_float32_weights_does_not_drift() -> None:
    generator = torch.Generator().manual_seed(0)
    average, total = RunningAverage({"w": torch.zeros(50)}), np.zeros(50)
    for _ in range(5000):
        iterate = 1.0 + 0.1 * torch.randn(50, generator=generator)
        average.update({"w": iterate})
        total += iterate.double().numpy()
    np.testing.assert_allclose(average.weights["w"].numpy(), total / 5000, rtol=0, atol=1e-5)


def test_averaging_beats_noise_on_a_parabola() -> None:
    """On w^2 / 2 with noisy gradients, iterates have variance rate / (2 - rate), their mean 1 / steps."""
    rate, steps = 0.5, 1000
    weight = nn.Parameter(torch.zeros(8000, dtype=torch.float64))
    optimizer = build_optimizer(NtAsgd(kind="nt_asgd", learning_rate=rate), [weight])
    average, generator = RunningAverage({"w": weight}), torch.Generator().manual_seed(0)
    spreads = {}
    for step in range(1, steps + 1):
        weight.grad = weight.detach() + torch.randn(8000, generator=generator, dtype=torch.float64)
        optimizer.step()
        average.update({"w": weight.detach()})
        spreads[step] = average.weights["w"].var().item()
    assert weight.detach().var().item() == pytest.approx(rate / (2 - rate), rel=0.08)
    for step in (250, 1000):
        assert spreads[step] == pytest.approx(1 / step, rel=0.08)


def epochs_triggered(rule: Trigger, values: Sequence[float], interval: int = 5) -> int | None:
    """The first epoch, counted from 1, at which the rule fires."""
    fired = [e for e, value in enumerate(values, 1) if triggered(rule, values[: e - 1], value, interval)]
    return fired[0] if fired else None


SEQUENCES = {
    "first": [100, 90, 80, 75, 74, 74.5, 74.2, 74.6, 74.3, 74.8, 74.9, 75, 75.1],
    "second": [100, 90, 80, 70, 65, 62, 63, 61, 61.5, 60, 60.5, 60.2, 60.1, 60.3, 60.4, 60.6, 60.7],
    "falling": [100.0 - k for k in range(40)],
    "constant": [50.0] * 40,
}


@pytest.mark.parametrize(
    ("name", "rule", "epoch"),
    [
        ("first", "code", 11),
        ("first", "literal", 7),
        ("first", "monotonic", 6),
        ("second", "code", 16),
        ("second", "literal", 7),
        ("second", "monotonic", 7),
        *((name, rule, None) for name in ("falling", "constant") for rule in ("code", "literal", "monotonic")),
    ],
)
def test_trigger_table(name: str, rule: Trigger, epoch: int | None) -> None:
    """By hand, for an interval of 5; a rule sees order alone, so losses trigger where perplexities do."""
    assert epochs_triggered(rule, SEQUENCES[name]) == epoch
    assert epochs_triggered(rule, [math.log(value) for value in SEQUENCES[name]]) == epoch


def test_the_earliest_trigger_compares_epoch_seven_with_epoch_one() -> None:
    rising = [10.0 + k for k in range(10)]
    assert [epochs_triggered("code", rising, n) for n in (5, 3, 1)] == [7, 5, 3]
    assert epochs_triggered("code", [50, 1, 1, 1, 1, 1, 49, 2]) == 8
    assert epochs_triggered("monotonic", rising) == 2


def test_steps_are_those_of_plain_sgd_before_and_after_the_switch(corpus_folder: Path) -> None:
    """Averaging never touches the weights that are trained."""
    averaging, iterates = raw_weights_each_epoch(tiny_spec(corpus_folder, optimizer=AVERAGING, epochs=8))
    assert averaging.at.averaging_from_epoch is not None and 2 < averaging.at.averaging_from_epoch < 8
    sgd = {"kind": "sgd", "learning_rate": 4.0, "clip": 0.5}
    plain, expected = raw_weights_each_epoch(tiny_spec(corpus_folder, optimizer=sgd, epochs=8))
    assert plain.average is None and averaging.average is not None
    assert all(equal(some, others) for some, others in zip(iterates, expected, strict=True))
    assert averaging.average.steps < averaging.at.step and not equal(averaging.average.weights, iterates[-1])


def test_averaging_takes_in_every_step_since_the_switch(corpus_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step counts, the iterate that triggered does not; nothing restarts at an epoch's end."""
    spec = tiny_spec(corpus_folder, optimizer=AVERAGING, epochs=8)
    stage, sums, steps = begin(spec), dict[str, Tensor](), 0
    step = lm.epochs.train_step

    def watched(stage: Stage, *rest: Any) -> None:
        nonlocal steps
        step(stage, *rest)
        if stage.average is not None:
            steps += 1
            for name, weight in stage.model.weights().items():
                sums[name] = sums.get(name, torch.zeros_like(weight, dtype=torch.float64)) + weight.double()

    monkeypatch.setattr(lm.epochs, "train_step", watched)
    for _ in lm.epochs.run_stage(stage, *texts(spec), lambda _: None, 1e9):
        pass
    assert stage.average is not None and stage.average.steps == steps > 30
    for name, mean in stage.average.weights.items():
        torch.testing.assert_close(mean.double(), sums[name] / steps, rtol=0.0, atol=1e-5)


def test_evaluating_never_changes_training(corpus_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raw weights are bit for bit those of a trial that is never scored, averaged weights swapped in or not."""
    spec = tiny_spec(corpus_folder, epochs=4, finetune={"epochs": 4})
    scored = begin(spec, stage="finetune-1")
    assert scored.average is not None
    for _ in lm.epochs.run_stage(scored, *texts(spec), lambda _: None, 1e9):
        pass
    blind = begin(spec, stage="finetune-1")
    falling = iter(range(9, 0, -1))
    monkeypatch.setattr(lm.epochs, "validation_nats", lambda *_: float(next(falling)))
    for _ in lm.epochs.run_stage(blind, *texts(spec), lambda _: None, 1e9):
        pass
    assert blind.average is not None and scored.at.epoch == blind.at.epoch == 4
    assert equal(scored.model.weights(), blind.model.weights())
    assert equal(scored.average.weights, blind.average.weights)
    assert torch.equal(scored.noise.get_state(), blind.noise.get_state())


def gradients_of(stage: Stage, input_TB: Tensor, targets_TB: Tensor) -> dict[str, Tensor]:
    """The whole loss's gradient, written out; the stage's generator is left as it was."""
    noise = torch.Generator()
    noise.set_state(stage.noise.get_state())
    model = stage.model
    outputs, _ = model(input_TB, model.initial_state(input_TB.shape[1]), noise)
    logits = outputs.dropped[-1] @ model.head.weight_VH.T + model.head.bias_V
    loss = F.cross_entropy(logits.flatten(0, 1), targets_TB.flatten())
    penalties = stage.spec.penalties
    if penalties is not None:
        loss = loss + penalties.activation * (outputs.dropped[-1] ** 2).mean()
        loss = loss + penalties.temporal_activation * ((outputs.raw[-1][1:] - outputs.raw[-1][:-1]) ** 2).mean()
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def norm_of(gradients: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float((gradient.double() ** 2).sum()) for gradient in gradients.values()))


@pytest.mark.parametrize("clip", [0.25, 1e6, None])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_a_step_written_out(corpus_folder: Path, clip: float | None, decay: float) -> None:
    """Gradients are scaled to the clip, then decay is added, then the rate is applied; for every weight."""
    optimizer = {"kind": "sgd", "learning_rate": 1.0, "clip": clip, "weight_decay": decay}
    stage = begin(tiny_spec(corpus_folder, optimizer=optimizer))
    input_TB, targets_TB = window(stage.spec)
    gradients = gradients_of(stage, input_TB, targets_TB)
    norm = norm_of(gradients)
    assert norm > 0.25
    before = {name: weight.clone() for name, weight in stage.model.weights().items()}
    lm.epochs.train_step(stage, input_TB, targets_TB, 2.0)
    scale = 1.0 if clip is None or norm <= clip else clip / norm
    for name, weight in stage.model.weights().items():
        expected = before[name] - 2.0 * (scale * gradients[name] + decay * before[name])
        torch.testing.assert_close(weight, expected, rtol=1e-4, atol=2e-6)
    assert stage.sums[1].item() == pytest.approx(norm, rel=1e-5)  # the norm before clipping
    if decay == 0.0 and clip == 0.25:
        moved = {name: (before[name] - weight) / 2.0 for name, weight in stage.model.weights().items()}
        assert norm_of(moved) == pytest.approx(0.25, rel=1e-4)
        along = sum(float((moved[name] * gradients[name]).sum()) for name in moved)
        assert along / (norm_of(moved) * norm) == pytest.approx(1.0, abs=1e-6)


def test_the_reported_loss_has_no_penalties(corpus_folder: Path) -> None:
    stage = begin(tiny_spec(corpus_folder, penalties={"activation": 1e3, "temporal_activation": 1e3}, dropout={}))
    input_TB, targets_TB = window(stage.spec)
    outputs, _ = stage.model(input_TB, stage.hidden)
    expected = F.cross_entropy(
        stage.model.head.scorer().logits(outputs).flatten(0, 1), targets_TB.flatten(), reduction="sum"
    )
    lm.epochs.train_step(stage, input_TB, targets_TB, 1.0)
    assert stage.sums[0].item() == pytest.approx(expected.item(), rel=1e-6)


def test_half_a_window_is_half_a_step(corpus_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of half the base length is stepped with half the rate, and half the rate is half the step."""
    sgd = {"kind": "sgd", "learning_rate": 3.0}
    whole = begin(tiny_spec(corpus_folder, optimizer=sgd))
    half = copy.deepcopy(whole)
    start = {name: weight.clone() for name, weight in whole.model.weights().items()}
    lm.epochs.train_step(whole, *window(whole.spec), 3.0)
    lm.epochs.train_step(half, *window(whole.spec), 1.5)
    for name, weight in start.items():
        moved = (stage.model.weights()[name] - weight for stage in (whole, half))
        torch.testing.assert_close(
            *(step * factor for step, factor in zip(moved, (1, 2), strict=True)), atol=1e-6, rtol=1e-4
        )
    rates = []
    monkeypatch.setattr(lm.epochs, "train_step", lambda stage, given, targets, rate: rates.append((len(given), rate)))
    bptt = {"kind": "variable", "length": 20, "full_probability": 0.0, "deviation": 0.0}
    stage = begin(tiny_spec(corpus_folder, optimizer=sgd, bptt=bptt))
    lm.epochs._train_epoch(stage, texts(stage.spec)[0], lambda _: None, 1e9)
    assert set(rates[:-1]) == {(10, 1.5)} and stage.at.learning_rate == 3.0


def test_adam_against_its_formula(corpus_folder: Path) -> None:
    """Kingma & Ba 2015, algorithm 1, two steps, decay added to the gradient."""
    spec = Adam(kind="adam", learning_rate=0.004, beta1=0.8, beta2=0.95, epsilon=1e-4, weight_decay=0.1)
    weight = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = build_optimizer(spec, [weight])
    w, m, v = weight.detach().numpy().copy(), np.zeros(2), np.zeros(2)
    for step, raw in enumerate(([0.3, 0.1], [-0.2, 0.5]), 1):
        weight.grad = torch.tensor(raw, dtype=torch.float64)
        optimizer.step()
        g = np.array(raw) + 0.1 * w
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g**2
        w = w - 0.004 * (m / (1 - 0.8**step)) / (np.sqrt(v / (1 - 0.95**step)) + 1e-4)
        np.testing.assert_allclose(weight.detach().numpy(), w, rtol=1e-12)


def test_sgd_has_no_momentum() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = build_optimizer(Sgd(kind="sgd", learning_rate=0.5), [weight])
    for expected in (-0.5, -1.0, -1.5):
        weight.grad = torch.ones(1)
        optimizer.step()
        assert weight.item() == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_step_reads_nothing_from_the_device(corpus_folder: Path) -> None:
    """Any wait of the host for the device is an error inside a step."""
    device = torch.device("cuda")
    for stage_name in ("train", "finetune-1"):
        spec = tiny_spec(corpus_folder, finetune={"epochs": 1})
        stage = begin(spec, stage=stage_name, device=device)
        text_RB = texts(spec, device)[0]
        lm.epochs.train_step(stage, text_RB[:12], text_RB[1:13], 1.0)  # the first one sets up the libraries
        torch.cuda.set_sync_debug_mode("error")
        try:
            for row in (12, 24, 36):
                lm.epochs.train_step(stage, text_RB[row : row + 12], text_RB[row + 1 : row + 13], 1.0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert stage.failure[0].item() == -1.0
