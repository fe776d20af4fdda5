"""Products in bfloat16: what they round, what they leave alone, and what a trial makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import lm.recurrent
from lm.data import load
from lm.data.batches import columns
from lm.epochs import train_step
from lm.evaluate import validation_nats
from lm.lstm import lstm_steps
from lm.measure import measure
from lm.precision import can_round, in_bfloat16, products_in
from lm.record import read_curve, read_record
from lm.recurrent import RecurrentLayer
from lm.spec import TrainSpec, trial_key
from lm.stage import Position, Stage, begin_stage
from lm.train import build_model, load_model, train, words_for
from tests.support.tiny import seeded, tiny_spec, write_corpus

CPU = torch.device("cpu")
T, B, H = 7, 3, 8


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "text")


def relative(value: Tensor, exact: Tensor) -> float:
    return float((value.detach() - exact).norm() / exact.norm())


CPU_FLAGS = Path("/proc/cpuinfo")
FLAGS = set(CPU_FLAGS.read_text(encoding="utf-8").split()) if CPU_FLAGS.exists() else set()
ROUNDS = True if "amx_bf16" in FLAGS else None
if "sse2" in FLAGS and not {"avx512_bf16", "amx_bf16", "avx512bw", "avx_ne_convert"} & FLAGS:
    ROUNDS = False
"""Whether this CPU has products of bfloat16; None where only its products tell: with AVX-512, or on ARM."""


def test_only_products_are_rounded_and_only_within() -> None:
    a, b = torch.randn(64, 96, generator=seeded(1)), torch.randn(96, 80, generator=seeded(2))
    exact = (a.double() @ b.double()).float()
    with products_in("bfloat16"):
        assert in_bfloat16()
        rounded, summed = a @ b, (a + a.flip(0)).exp()
        with pytest.raises(RuntimeError, match="on purpose"), products_in("bfloat16"):
            raise RuntimeError("on purpose")
        assert in_bfloat16(), "the outer one holds on"
    assert not in_bfloat16()
    assert rounded.dtype == torch.float32
    low, high = (1e-4, 1e-2) if can_round() else (-1.0, 1e-6)
    assert low < relative(rounded, exact) < high
    assert relative(a @ b, exact) < 1e-6
    assert torch.equal(summed, (a + a.flip(0)).exp())
    with products_in("float32"):
        assert not in_bfloat16()


@pytest.mark.parametrize("masked", [False, True])
def test_steps_in_bfloat16_are_those_in_float32_but_for_rounding(masked: bool) -> None:
    """Output, state, and every gradient, that of the state included."""

    def given() -> list[Tensor]:
        shapes = ((T, B, 4 * H), (B, H), (B, H), (4 * H, H))
        return [torch.randn(shape, generator=seeded(k)).requires_grad_() for k, shape in enumerate(shapes)]

    mask_BH = torch.rand(B, H, generator=seeded(9)).ge(0.3) / 0.7 if masked else None
    upstream_TBH, upstream_BH = torch.randn(T, B, H, generator=seeded(5)), torch.randn(B, H, generator=seeded(6))
    found = []
    for precision in ("float32", "bfloat16"):
        tensors = given()
        with products_in("bfloat16" if precision == "bfloat16" else "float32"):
            output_TBH, memory_BH = lstm_steps(*tensors, mask_BH)
            gradients = torch.autograd.grad((output_TBH, memory_BH), tensors, (upstream_TBH, upstream_BH))
        found.append((output_TBH, memory_BH, *gradients))
    for exact, rounded in zip(*found, strict=True):
        assert 0.0 < relative(rounded, exact.detach()) < 0.03


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_the_steps_by_central_differences(masked: bool) -> None:
    shapes = ((3, 2, 12), (2, 3), (2, 3), (12, 3))
    given = [torch.randn(shape, generator=seeded(k), dtype=torch.float64) for k, shape in enumerate(shapes)]
    mask_BH = torch.tensor([[0.0, 1.5, 1.5], [1.5, 0.0, 1.5]], dtype=torch.float64) if masked else None
    assert torch.autograd.gradcheck(lstm_steps, (*(x.requires_grad_() for x in given), mask_BH))


@pytest.mark.parametrize(("size", "steps"), [(8, False), (16, True)])
def test_a_large_lstm_leaves_the_fused_kernel_for_training_in_bfloat16(
    size: int, steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm.recurrent, "_LARGE", 16)
    layer = RecurrentLayer("lstm", 5, size, 0.0, seeded(0))
    input_TBI, calls = torch.randn(T, B, 5, generator=seeded(1)), []
    monkeypatch.setattr(lm.recurrent, "lstm_steps", lambda *given: calls.append(given) or lstm_steps(*given))
    plain_TBH, _ = layer(input_TBI, layer.initial_state(B), None)
    with products_in("bfloat16"):
        output_TBH, (hidden, memory) = layer(input_TBI, layer.initial_state(B), None)
        with torch.no_grad():
            layer(input_TBI, layer.initial_state(B), None)
    assert len(calls) == steps
    assert hidden.shape == memory.shape == (1, B, size)
    torch.testing.assert_close(output_TBH, plain_TBH, rtol=0.0, atol=0.02)


def test_float32_keeps_its_key_and_bfloat16_has_another(corpus: Path) -> None:
    plain = tiny_spec(corpus)
    assert trial_key(tiny_spec(corpus, precision="float32"), "f") == trial_key(plain, "f")
    assert trial_key(tiny_spec(corpus, precision="bfloat16"), "f") != trial_key(plain, "f")


def test_a_trial_in_bfloat16_is_scored_in_float32(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights, read again, have the very loss that its record tells; and training did round if the CPU can."""
    monkeypatch.setattr("lm.train.can_round", lambda: True)  # so that even a CPU that rounds nothing trains it
    curves = {}
    # An AMX unit rounds no product of factors with 16 columns or fewer; and what is not learnt tells nothing apart.
    learning = {
        "model": {"layers": 2, "embedding_size": 32, "hidden_size": 32},
        "optimizer": {"kind": "adam", "learning_rate": 0.01},
    }
    for precision in ("float32", "bfloat16"):
        spec, out = tiny_spec(corpus, precision=precision, **learning), tmp_path / precision
        list(train(spec, out=out))
        record, text = read_record(out), load(spec.corpus)
        assert record is not None
        model = load_model(record, out, words_for(spec, text, out), CPU)
        assert all(weight.dtype == torch.float32 for weight in model.weights().values())
        valid = validation_nats(model, columns(text.valid, spec.scoring.valid_columns, CPU), spec.scoring.window)
        assert record.stages[-1].valid.nats_per_token == pytest.approx(valid, rel=1e-6)
        curves[precision] = [point.train_nats_per_token for point in read_curve(out)]
    apart = max(abs(one / other - 1) for one, other in zip(curves["float32"], curves["bfloat16"], strict=True))
    assert (apart > 1e-5) == can_round()  # another kernel's sums alone differ by less
    assert curves["float32"] == pytest.approx(curves["bfloat16"], rel=0.02)


def test_a_gpu_is_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm.train.choose_device", lambda name: torch.device("cuda"))
    with pytest.raises(ValueError, match="precision bfloat16 runs on CPUs only, got device cuda"):
        list(train(tiny_spec(corpus, precision="bfloat16"), out=tmp_path / "out"))
    monkeypatch.setattr("lm.measure.choose_device", lambda name: torch.device("cuda"))
    with pytest.raises(ValueError, match="precision bfloat16 runs on CPUs only, got device cuda"):
        measure(tiny_spec(corpus, precision="bfloat16"))


def test_whether_a_cpu_can_round_is_what_its_products_say() -> None:
    assert ROUNDS in (None, can_round())
    assert not in_bfloat16()


def test_a_cpu_that_rounds_nothing_is_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of bfloat16 whose numbers are those of float32 would be false."""
    monkeypatch.setattr("lm.train.can_round", lambda: False)
    with pytest.raises(ValueError, match=r"precision bfloat16 needs a CPU with .*, and on this one it does not; use"):
        list(train(tiny_spec(corpus, precision="bfloat16"), out=tmp_path / "out"))
    with pytest.raises(ValueError, match="precision bfloat16 needs a CPU with AVX-512"):
        measure(tiny_spec(corpus, precision="bfloat16"))
    assert not (tmp_path / "out").exists()


def stage_of(spec: TrainSpec) -> tuple[Stage, Tensor]:
    text = load(spec.corpus)
    model = build_model(spec, words_for(spec, text), CPU)
    at = Position("train", 0, 0, 0, 1.0, float("inf"), 0, 0.0)
    return begin_stage(spec, model, CPU, at), columns(text.train, spec.batch_size, CPU)


def test_two_hundred_steps_are_those_of_the_plain_path_within_rounding(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks against all logits at once, fused steps against plain ones, over the losses of every step."""
    spec = tiny_spec(corpus, optimizer={"kind": "sgd", "learning_rate": 0.5, "clip": 0.5, "weight_decay": 1.2e-6})
    losses: dict[str, list[float]] = {}
    for path in ("blocks", "plain"):
        if path == "plain":
            monkeypatch.setattr("lm.heads.cross_entropy.blocked_nats", lambda *given, **_: torch.tensor(torch.inf))
        stage, text_RB = stage_of(spec)
        if path == "plain":
            parameters = stage.model.parameters()
            stage.optimizer = torch.optim.SGD(parameters, lr=0.5, weight_decay=1.2e-6, foreach=False)
        losses[path], total = [], 0.0
        for number in range(200):
            row = number * 12 % (len(text_RB) - 13)
            train_step(stage, text_RB[row : row + 12], text_RB[row + 1 : row + 13], 0.5)
            losses[path].append(float(stage.sums[0]) - total)
            total = float(stage.sums[0])
    assert losses["blocks"] == pytest.approx(losses["plain"], rel=1e-4)
    assert losses["blocks"][-1] < losses["blocks"][0]


@pytest.mark.parametrize("dropout", [{}, {"output": 0.2, "between": 0.2, "shared_mask": True}])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_state_holds_its_own_numbers_and_not_those_of_its_window(
    precision: str, dropout: dict[str, object], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint writes what a tensor's memory holds."""
    monkeypatch.setattr(lm.recurrent, "_LARGE", 4)
    stage, text_RB = stage_of(tiny_spec(corpus, precision=precision, dropout=dropout))
    train_step(stage, text_RB[:12], text_RB[1:13], 0.5)
    assert all(part.untyped_storage().nbytes() == part.nbytes for layer in stage.hidden for part in layer)
