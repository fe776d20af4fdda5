"""Columns, and windows of random length (Merity et al. 2017, section 4.1). R rows, B columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import lm.epochs
from lm.data.batches import columns, window_sampler
from lm.spec import FixedBptt, TrainSpec, VariableBptt
from lm.stage import Position, Stage

CPU = torch.device("cpu")
PAPER = VariableBptt(kind="variable")

Windows = list[tuple[Tensor, Tensor, float]]
Epoch = Callable[..., Windows]


@pytest.fixture(scope="module")
def epoch() -> Any:
    """Runs one epoch of training whose steps only note their input, targets and learning rate."""
    noted: Windows = []

    def note(stage: Stage, input_TB: Tensor, targets_TB: Tensor, learning_rate: float) -> None:
        noted.append((input_TB, targets_TB, learning_rate))

    def run(text_RB: Tensor, bptt: VariableBptt | FixedBptt, seed: int = 1, rate: float = 30.0) -> Windows:
        noted.clear()
        spec = TrainSpec.model_validate(
            {
                "corpus": {"name": "none"},
                "optimizer": {"kind": "sgd", "learning_rate": rate},
                "bptt": bptt.model_dump(),
                "epochs": 1,
            }
        )
        at = Position("train", 0, 0, 0, rate, 0.0, 0, 0.0)
        failure = torch.tensor([-1.0, 0.0, 0.0])
        generator = torch.Generator().manual_seed(seed)
        nothing: Any = None
        stage = Stage(spec, at, nothing, nothing, None, {}, generator, nothing, [], nothing, failure)
        lm.epochs._train_epoch(stage, text_RB, lambda _: None, 1e9)
        return list(noted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm.epochs, "train_step", note)
        yield run


@given(st.integers(3, 400), st.integers(1, 20))
def test_columns_are_contiguous_slices_of_the_text(tokens: int, count: int) -> None:
    text = np.arange(tokens, dtype=np.int32)
    text.setflags(write=False)
    rows = tokens // count
    if rows < 3:
        with pytest.raises(ValueError, match=f"{tokens} tokens in {count} columns give {rows} rows"):
            columns(text, count, CPU)
        return
    text_RB = columns(text, count, CPU)
    assert text_RB.shape == (rows, count) and text_RB.dtype == torch.int64 and text_RB.is_contiguous()
    for j in range(count):
        assert text_RB[:, j].tolist() == list(range(j * rows, (j + 1) * rows))
    assert tokens - text_RB.numel() < count


BPTT = st.one_of(
    st.builds(FixedBptt, kind=st.just("fixed"), length=st.integers(2, 90)),
    st.builds(
        VariableBptt,
        kind=st.just("variable"),
        length=st.integers(2, 90),
        full_probability=st.floats(0.0, 1.0),
        deviation=st.floats(0.0, 20.0),
        minimum=st.integers(2, 9),
        cap_extra=st.none() | st.integers(0, 10),
    ),
)


@given(rows=st.integers(3, 500), batch=st.integers(1, 3), bptt=BPTT, seed=st.integers(0, 99))
def test_every_row_from_the_second_is_a_target_once_but_perhaps_the_last(
    epoch: Epoch, rows: int, batch: int, bptt: VariableBptt | FixedBptt, seed: int
) -> None:
    text_RB = torch.arange(rows * batch).view(batch, rows).t()
    windows = epoch(text_RB, bptt, seed)
    inputs, targets = (torch.cat([window[k] for window in windows])[:, 0].tolist() for k in (0, 1))
    assert inputs == list(range(len(inputs))) and targets == list(range(1, len(targets) + 1))
    assert len(targets) in (rows - 2, rows - 1)
    assert all(len(target) >= 2 and target.equal(given + 1) for given, target, _ in windows)


def test_statistics_of_window_lengths() -> None:
    """Mean, spread and share of long ones by their distribution, for a base length of 70."""
    draw = window_sampler(PAPER, None, torch.Generator().manual_seed(1))
    lengths, factors = np.array([draw() for _ in range(40_000)]).T
    assert lengths.mean() == pytest.approx(67.7, abs=0.2) and lengths.std() == pytest.approx(9.1, abs=0.15)
    assert factors.mean() == pytest.approx(0.968, abs=0.003)
    assert (lengths > 80).mean() == pytest.approx(0.013, abs=0.002)
    assert ((lengths > 17) & (lengths < 53)).mean() == pytest.approx(0.05, abs=0.004)
    assert lengths.min() >= 5 and (lengths == np.floor(lengths)).all()
    np.testing.assert_allclose(factors, lengths / 70)


def test_no_window_is_shorter_than_the_minimum() -> None:
    short = VariableBptt(kind="variable", length=7, deviation=4.0, full_probability=0.5)
    draw = window_sampler(short, None, torch.Generator().manual_seed(1))
    lengths = [draw()[0] for _ in range(500)]
    assert min(lengths) == 5 and lengths.count(5) > 100


def test_caps() -> None:
    wide = VariableBptt(kind="variable", length=20, deviation=30.0, cap_extra=4)
    for cap_extra, most in ((None, 24), (10, 30), (0, 20)):
        draw = window_sampler(wide, cap_extra, torch.Generator().manual_seed(1))
        drawn = [draw() for _ in range(300)]
        assert max(length for length, _ in drawn) == most
        assert all(factor == length / 20 for length, factor in drawn)


def test_rates_need_not_follow_lengths() -> None:
    draw = window_sampler(PAPER.model_copy(update={"rescale": False}), None, torch.Generator().manual_seed(1))
    assert {draw()[1] for _ in range(50)} == {1.0}


def test_without_randomness_all_windows_are_the_base_length(epoch: Epoch) -> None:
    steady = VariableBptt(kind="variable", full_probability=1.0, deviation=0.0)
    windows = epoch(torch.zeros(706, 2), steady)
    assert [len(target) for _, target, _ in windows] == [70] * 10 + [5]
    assert {rate for *_, rate in windows} == {30.0}  # the last one too: the rate follows the drawn length
    fixed = epoch(torch.zeros(706, 2), FixedBptt(kind="fixed"))
    assert [(len(target), rate) for _, target, rate in fixed] == [(len(target), rate) for _, target, rate in windows]


@pytest.mark.parametrize(
    ("tokens", "batch", "steps", "within"),
    [(929_589, 40, 343, 3), (929_589, 20, 686, 4), (2_088_628, 80, 386, 3)],
    ids=["ptb 40", "ptb 20", "wikitext-2 80"],
)
def test_steps_and_summed_rates_of_an_epoch(epoch: Epoch, tokens: int, batch: int, steps: int, within: int) -> None:
    """Three epochs' means; the rates sum to R / T because each token then weighs the same."""
    rows = tokens // batch
    text_RB = torch.zeros(rows, 1)
    epochs = [epoch(text_RB, PAPER, seed) for seed in range(3)]
    assert sum(map(len, epochs)) / 3 == pytest.approx(steps, abs=within)
    for windows in epochs:
        assert sum(rate for *_, rate in windows) / 30.0 == pytest.approx(rows / 70, abs=1.5)


def test_window_lengths_hang_on_their_generator_alone(epoch: Epoch) -> None:
    text_RB = torch.zeros(2000, 1)
    lengths = [[len(target) for _, target, _ in epoch(text_RB, PAPER, seed)] for seed in (1, 1, 2)]
    assert lengths[0] == lengths[1] != lengths[2]
