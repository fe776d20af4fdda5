"""A few real steps of a model, to know what a trial of it will cost. T time, B batch, R rows."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lm import provenance
from lm.data import load
from lm.data.batches import columns, window_sampler
from lm.epochs import train_step
from lm.evaluate import fit_head, mean_nats, token_nats
from lm.measured import Measured
from lm.model import LanguageModel
from lm.optimizers import RunningAverage
from lm.spec import NtAsgd, TrainSpec, vocabulary_misfits
from lm.stage import Position, Stage, begin_stage
from lm.train import build_model, check_precision, choose_device, words_for

_WARM_UP = 2
_EVALUATED_TARGETS = 2000  # at least: what is done once for a text, such as the folding of a head, is spread
_MOST_SECONDS = 60.0


def measure(spec: TrainSpec, device: str = "auto", threads: int = 1, steps: int = 8) -> Measured:
    """Train `steps` windows and score some of validation and test; nothing is kept, and no number of a trial is made.

    The peak of memory is the process's on a CPU, so measure each model in a process of its own. Steps that take more
    than a minute in all are cut short; at least one counts. Raises what `lm.train.train` raises.
    """
    begun = time.perf_counter()
    torch.set_num_threads(threads)
    chosen = choose_device(device)
    check_precision(spec, chosen)
    corpus = load(spec.corpus)
    for problem in vocabulary_misfits(spec.head, len(corpus.vocabulary)):
        raise ValueError(problem)
    model = build_model(spec, words_for(spec, corpus), chosen)
    at = Position("train", 0, 0, 0, spec.optimizer.learning_rate, math.inf, 0, 0.0)
    at.stage_epochs = max(0, spec.epochs - 1)  # where a step costs most, if the share of predicted inputs rises
    stage = begin_stage(spec, model, chosen, at)
    if isinstance(spec.optimizer, NtAsgd) or spec.finetune is not None:
        stage.average = RunningAverage(model.weights())  # from some epoch on it is there, and takes memory
    started = time.perf_counter() - begun
    trained, counted = _train_rate(stage, columns(corpus.train, spec.batch_size, chosen, "batch_size"), steps)
    valid_RB = columns(corpus.valid, spec.scoring.valid_columns, chosen, "scoring.valid_columns")
    test_RB = columns(corpus.test, spec.scoring.test_columns, chosen, "scoring.test_columns")
    fit_head(model, valid_RB)  # once for a text in a trial, so outside of the rates
    valid_rate = _evaluation_rate(mean_nats, stage, valid_RB)
    test_rate = _evaluation_rate(token_nats, stage, test_RB)
    on_gpu = chosen.type == "cuda"
    return Measured(
        train_tokens_per_second=trained,
        valid_tokens_per_second=valid_rate,
        test_tokens_per_second=test_rate,
        peak_memory_bytes=torch.cuda.max_memory_reserved(chosen) if on_gpu else provenance.peak_memory_bytes(chosen),
        start_seconds=started,
        weights_bytes=sum(weight.numel() * weight.element_size() for weight in model.weights().values()),
        device=provenance.device_name(chosen),
        threads=threads,
        steps=counted,
    )


def _train_rate(stage: Stage, train_RB: Tensor, steps: int) -> tuple[float, int]:
    """Tokens a second of the median step, and the steps that counted; the text is begun again where it ends."""
    draw_window = window_sampler(stage.spec.bptt, None, stage.windows)
    rates: list[float] = []
    row, until = 0, time.perf_counter() + _MOST_SECONDS
    for number in range(_WARM_UP + steps):
        length, _ = draw_window()
        row = 0 if row + 2 >= len(train_RB) else row
        targets_TB = train_RB[row + 1 : row + 1 + length]
        inputs_TB = train_RB[row : row + len(targets_TB)]
        seconds = _seconds(lambda x=inputs_TB, y=targets_TB: train_step(stage, x, y, 1e-6), train_RB)  # type: ignore[misc]
        if number >= _WARM_UP:
            rates.append(targets_TB.numel() / seconds)
            if time.perf_counter() > until:
                break
        row += length
    return statistics.median(rates), len(rates)


def _evaluation_rate(score: Callable[[LanguageModel, Tensor, int], object], stage: Stage, text_RB: Tensor) -> float:
    """Tokens a second over some windows, the first pass left out."""
    window = stage.spec.scoring.window
    windows = max(3, math.ceil(_EVALUATED_TARGETS / (window * text_RB.shape[1])))
    some_RB = text_RB[: 1 + windows * window]
    seconds = [_seconds(lambda: score(stage.model, some_RB, window), text_RB) for _ in range(3)]
    return some_RB[1:].numel() / float(np.median(seconds[1:]))


def _seconds(action: Callable[[], object], on: Tensor) -> float:
    """Of an action on a tensor's device, to its end."""
    begun = time.perf_counter()
    action()
    if on.is_cuda:
        torch.cuda.synchronize(on.device)
    return time.perf_counter() - begun
