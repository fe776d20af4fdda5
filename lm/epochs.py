"""The epochs of a stage: windows of training, then a score on validation. T time, B batch, R rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, assert_never

import torch
from torch import Tensor

from lm.analyze.subspace import subspace_measures
from lm.data.batches import window_sampler
from lm.evaluate import validation_nats
from lm.feedback import forward_with_feedback
from lm.losses import activation, temporal_activation
from lm.optimizers import RunningAverage, decayed_rate, triggered
from lm.precision import products_in
from lm.record import Divergence, Evaluation, perplexity
from lm.recurrent import State
from lm.spec import Adam, NtAsgd, Sgd, SgdDecay, SgdHalving, SgdPlateau
from lm.stage import DivergedError, Stage, term_names, too_large


def run_stage(
    stage: Stage, train_RB: Tensor, valid_RB: Tensor, save: Callable[[Stage], None], checkpoint_seconds: float
) -> Iterator[Evaluation]:
    """Train to the stage's end, an Evaluation an epoch; within an epoch `save` is called every `checkpoint_seconds`.

    Raises DivergedError at the next checkpoint, or at the epoch's end, after a loss or gradient that was not finite,
    and at the end of an epoch whose validation perplexity overflows.
    """
    while stage.at.stage_epochs < stage.epochs and not stage.at.ended:
        _train_epoch(stage, train_RB, save, checkpoint_seconds)
        yield _end_epoch(stage, valid_RB)


def _train_epoch(stage: Stage, train_RB: Tensor, save: Callable[[Stage], None], checkpoint_seconds: float) -> None:
    """All windows of one pass over the text, from where the position stands."""
    at, spec = stage.at, stage.spec
    draw_window = window_sampler(spec.bptt, None if stage.finetune is None else stage.finetune.cap_extra, stage.windows)
    saved = begun = time.perf_counter()
    rows = len(train_RB)
    while at.row < rows - 2:
        length, rate_factor = draw_window()
        targets_TB = train_RB[at.row + 1 : at.row + 1 + length]
        train_step(stage, train_RB[at.row : at.row + len(targets_TB)], targets_TB, at.learning_rate * rate_factor)
        at.row += length
        at.epoch_tokens += targets_TB.numel()
        if time.perf_counter() - saved > checkpoint_seconds:
            _check_finite(stage, begun)
            save(stage)
            saved = begun = time.perf_counter()
    _check_finite(stage, begun)


def train_step(stage: Stage, input_TB: Tensor, targets_TB: Tensor, learning_rate: float) -> None:
    """One window: forward, backward, clip, update, normalise, average; nothing is read from a GPU here."""
    at, model = stage.at, stage.model
    with products_in(stage.spec.precision):
        nats, terms = _backward(stage, input_TB, targets_TB)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), stage.spec.optimizer.clip or math.inf)
    for group in stage.optimizer.param_groups:
        group["lr"] = learning_rate
    stage.optimizer.step()
    model.normalise_embedding()
    at.step += 1
    at.stage_steps += 1
    at.epoch_steps += 1
    if stage.average is not None:
        stage.average.update(model.weights())
    stage.sums += torch.stack((nats * targets_TB.numel(), norm, *terms))
    first_failure = (stage.failure[0] < 0) & ~(torch.isfinite(nats) & torch.isfinite(norm))
    stage.failure[0] = torch.where(first_failure, at.step, stage.failure[0])
    stage.failure[1] = torch.where(first_failure, learning_rate, stage.failure[1])
    stage.failure[2] = torch.where(first_failure, norm, stage.failure[2])


def _backward(stage: Stage, input_TB: Tensor, targets_TB: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The gradients of a window's loss; its mean and that of each term are returned, without gradient.

    Gradients of parts of the batch add up, each weighted by its share of the columns. That equals the whole batch's
    gradient, except for terms that are no mean over columns, such as the penalty on an uneven gate.
    """
    stage.optimizer.zero_grad()
    size = stage.spec.small_batch or input_TB.shape[1]
    carried: list[list[State]] = []
    means: list[Tensor] = []
    for first in range(0, input_TB.shape[1], size):
        part = slice(first, first + size)
        state = [tuple(each[:, part] for each in layer) for layer in stage.hidden]
        share = input_TB[:, part].shape[1] / input_TB.shape[1]
        hidden, losses = _backward_of(stage, input_TB[:, part], targets_TB[:, part], state, share)
        carried.append(hidden)
        means.append(share * losses)
    # Copies: a state that is a view would keep, and write into checkpoints, every step of its window.
    stage.hidden = [
        tuple(torch.cat(each, dim=1) for each in zip(*layer, strict=True)) for layer in zip(*carried, strict=True)
    ]
    nats, *terms = torch.stack(means).sum(dim=0)
    return nats, terms


def _backward_of(
    stage: Stage, input_TB: Tensor, targets_TB: Tensor, state: list[State], share: float
) -> tuple[list[State], Tensor]:
    """Add this share of the gradients of some columns; the state after them, and the means of nats and each term."""
    model, spec, penalties = stage.model, stage.spec, stage.spec.penalties
    fed: list[Tensor] = []
    if spec.feedback is None:
        outputs, hidden = model(input_TB, state, stage.noise)
    else:
        outputs, hidden, changed = forward_with_feedback(
            model, spec.feedback, stage.progress, input_TB, state, stage.noise
        )
        fed = [changed]
    trained = model.head.training_loss(outputs, targets_TB, stage.noise)
    terms = [trained.terms[name] for name in model.head.term_names]
    loss = sum((_reduced(term, spec.loss_reduction) for term in terms), _reduced(trained.nats_TB, spec.loss_reduction))
    if penalties is not None:
        loss = loss + penalties.activation * activation(outputs.dropped[-1])
        loss = loss + penalties.temporal_activation * temporal_activation(outputs.raw[-1])
    (share * loss).backward()  # type: ignore[no-untyped-call]
    means = torch.stack([trained.nats_TB.detach().mean(), *(term.detach().mean() for term in terms), *fed])
    return [tuple(each.detach() for each in layer) for layer in hidden], means


def _reduced(loss: Tensor, reduction: Literal["mean", "sum_over_time"]) -> Tensor:
    """One number of a loss: a scalar's own, the mean over tokens (T, B), or that times T (Zaremba et al. 2014)."""
    return loss.mean() * len(loss) if reduction == "sum_over_time" and loss.dim() else loss.mean()


def _check_finite(stage: Stage, begun: float) -> None:
    """Count the time since `begun`; DivergedError if a loss since then was not finite."""
    step, learning_rate, norm = stage.failure.tolist()  # read from the device, so that the clock sees finished work
    stage.at.epoch_seconds += time.perf_counter() - begun
    if step >= 0:
        raise DivergedError(
            Divergence(
                stage=stage.at.stage,
                epoch=stage.at.epoch + 1,
                step=int(step),
                learning_rate=learning_rate,
                gradient_norm=norm if math.isfinite(norm) else None,
            ),
            seconds=stage.at.seconds,
        )


def _end_epoch(stage: Stage, valid_RB: Tensor) -> Evaluation:
    """Score on validation, keep the best weights, let the optimizer's rule act, and begin the next epoch."""
    at = stage.at
    begun = time.perf_counter()
    raw: float | None = None
    if stage.average is not None and stage.spec.scoring.raw_iterate:  # first: the head stays fitted to the average
        raw = validation_nats(stage.model, valid_RB, stage.spec.scoring.window)
    with _evaluated_weights(stage):
        valid = validation_nats(stage.model, valid_RB, stage.spec.scoring.window)
        measured = subspace_measures(stage.model) if "subspace" in stage.spec.epoch_measures else {}
        nats_sum, norm_sum, *term_sums = stage.sums.tolist()
        norm_mean = norm_sum / at.epoch_steps
        at.epoch += 1
        at.stage_epochs += 1
        if not math.isfinite(perplexity(valid)):
            rate = at.learning_rate
            raise DivergedError(
                Divergence(stage=at.stage, epoch=at.epoch, step=at.step, learning_rate=rate, gradient_norm=norm_mean),
                f"{too_large('validation', valid, at.stage)}, epoch {at.epoch}" if math.isfinite(valid) else None,
                at.seconds,
            )
        best = valid < at.best_nats
        if best:
            at.best_nats, at.best_epoch = valid, at.epoch
            stage.best = {name: weight.clone() for name, weight in stage.model.weights().items()}
    at.evaluation_seconds += time.perf_counter() - begun
    at.train_seconds += at.epoch_seconds
    at.tokens += at.epoch_tokens
    at.stage_tokens += at.epoch_tokens
    names = term_names(stage.spec, stage.model)
    evaluation = Evaluation(
        stage=at.stage,
        epoch=at.epoch,
        step=at.step,
        tokens=at.tokens,
        seconds=at.seconds_before + at.train_seconds,
        tokens_per_second=at.epoch_tokens / at.epoch_seconds,
        train_nats_per_token=nats_sum / at.epoch_tokens,
        valid_nats_per_token=valid,
        learning_rate=at.learning_rate,
        gradient_norm=norm_mean,
        averaging=stage.average is not None,
        best=best,
        terms={name: total / at.epoch_steps for name, total in zip(names, term_sums, strict=True)} | measured,
        raw_valid_nats_per_token=raw,
    )
    _apply_rule(stage, valid)
    at.row = at.epoch_steps = at.epoch_tokens = 0
    at.epoch_seconds = 0.0
    stage.sums.zero_()
    stage.hidden = stage.model.initial_state(stage.spec.batch_size)
    return evaluation


def _apply_rule(stage: Stage, valid: float) -> None:
    """What the validation loss of an epoch sets off: averaging, a lower rate, or the stage's end."""
    at, spec = stage.at, stage.spec
    if stage.finetune is not None:
        at.ended = triggered(stage.finetune.trigger, at.trigger_log, valid, stage.finetune.nonmonotone_interval)
        at.trigger_log.append(valid)
        return
    optimizer = spec.optimizer
    match optimizer:
        case NtAsgd():
            if stage.average is None:
                if triggered(optimizer.trigger, at.trigger_log, valid, optimizer.nonmonotone_interval):
                    stage.average = RunningAverage(stage.model.weights())
                    at.averaging_from_epoch = at.epoch + 1
                at.trigger_log.append(valid)
        case SgdHalving():
            if triggered(optimizer.trigger, at.trigger_log, valid, optimizer.nonmonotone_interval):
                at.learning_rate /= 2
                at.ended = at.learning_rate < optimizer.minimum_learning_rate
            at.trigger_log.append(valid)
        case SgdDecay():
            at.learning_rate = decayed_rate(optimizer, at.stage_epochs)
        case SgdPlateau():
            if at.best_epoch < at.epoch:
                at.learning_rate /= optimizer.divisor
        case Sgd() | Adam():
            pass
        case _:
            assert_never(optimizer)
    if spec.early_stop is not None and min(at.stage_epochs, at.epoch - at.best_epoch) >= spec.early_stop:
        at.ended = True


@contextmanager
def _evaluated_weights(stage: Stage) -> Iterator[None]:
    """The averaged weights in the model's place where averaging has begun; the raw ones are back afterwards."""
    if stage.average is None:
        yield
        return
    raw = {name: weight.clone() for name, weight in stage.model.weights().items()}
    stage.model.load_weights(stage.average.weights)
    try:
        yield
    finally:
        stage.model.load_weights(raw)
