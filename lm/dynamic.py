"""Dynamic evaluation: a model that goes on learning from the text it is scored on (Krause et al. 2018).

R rows, T tokens of a segment, B columns. The update after a segment with gradient g is, for each weight,

    theta <- theta - eta g / (RMS_g + epsilon) + min(1, lambda RMS_g / mean(RMS_g)) (theta_0 - theta)

where theta_0 are the trained weights and RMS_g the root mean square of the gradients on training segments; its mean is
that of the means over each matrix or vector, as in the authors' code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lm.data import EncodedCorpus
from lm.data.batches import columns
from lm.evaluate import TokenNats, in_text_order
from lm.model import LanguageModel
from lm.record import Split
from lm.recurrent import State
from lm.spec import Dynamic


@dataclass(frozen=True)
class DynamicValues:
    """One choice of the step size, eta, and of the way back, lambda."""

    learning_rate: float
    decay: float


def score_dynamically(
    model: LanguageModel, corpus: EncodedCorpus, spec: Dynamic, device: torch.device, *, test: bool = True
) -> tuple[DynamicValues, dict[Split, TokenNats]]:
    """The values, chosen on validation where the spec lists several, and each split's losses; without `test` no test's.

    In one column, as the authors do. The model reads the text it is scored on, so these numbers stand beside the static
    ones of one column, never beside another model's. Raises ValueError if no choice keeps the loss finite.
    """
    count = min(spec.statistics_columns, len(corpus.train) // 3)
    rms = gradient_rms(model, columns(corpus.train, count, device), spec.segment)

    def losses(text: npt.NDArray[np.int32], values: DynamicValues) -> TokenNats:
        return dynamic_nats(model, columns(text, 1, device), rms, values, spec.segment, spec.epsilon)

    rates, decays = _listed(spec.learning_rate), _listed(spec.decay)
    choices = [DynamicValues(*choice) for choice in itertools.product(rates, decays)]
    if len(choices) > 1:
        means = [float(losses(corpus.valid[: spec.choose_tokens], values).nats.mean()) for values in choices]
        finite = {values: nats for values, nats in zip(choices, means, strict=True) if math.isfinite(nats)}
        if not finite:
            raise ValueError(
                f"dynamic evaluation: no learning_rate of {rates} and decay of {decays} keeps the loss finite"
            )
        choices = [min(finite, key=lambda values: finite[values])]
    (values,) = choices
    adapted: dict[Split, TokenNats] = {"valid": losses(corpus.valid, values)}
    if test:
        adapted["test"] = losses(corpus.test, values)
    if any(not math.isfinite(each.score().perplexity) for each in adapted.values()):
        wrong = f"learning_rate {values.learning_rate:g} and decay {values.decay:g}"
        raise ValueError(f"dynamic evaluation: the loss does not stay finite with {wrong}")
    return values, adapted


def gradient_rms(model: LanguageModel, text_RB: Tensor, segment: int) -> dict[str, Tensor]:
    """The root mean square of each weight's gradient over the segments of a text, undropped; by name.

    The gradient is that of a segment's mean loss over all columns, with the state carried along.
    """
    squares = {name: torch.zeros_like(weight) for name, weight in model.weights().items()}
    state, starts = model.initial_state(text_RB.shape[1]), range(0, len(text_RB) - 1, segment)
    for row in starts:
        state, gradients = _gradients(model, text_RB[row : row + segment + 1], state)
        for name, gradient in gradients.items():
            squares[name].addcmul_(gradient, gradient)
    return {name: (square / len(starts)).sqrt_() for name, square in squares.items()}


@torch.no_grad()
def dynamic_nats(
    model: LanguageModel,
    text_R1: Tensor,
    rms: Mapping[str, Tensor],
    values: DynamicValues,
    segment: int,
    epsilon: float,
) -> TokenNats:
    """The loss of every predicted token, each segment's before the step on it; the model keeps its weights.

    With a learning rate of 0 these are, to the bit, the losses of static evaluation with a window of a segment: the
    losses come from a forward pass of their own, because kernels round otherwise where gradients are asked for.
    """
    nats_R1 = torch.empty(len(text_R1) - 1, 1, dtype=model.embedding_VE.dtype, device=text_R1.device)
    average = float(torch.stack([part.mean() for part in rms.values()]).mean())
    back = {name: (values.decay * part / average).clamp_(max=1.0) for name, part in rms.items()}
    step = {name: values.learning_rate / (part + epsilon) for name, part in rms.items()}
    state, weights = model.initial_state(1), model.weights()
    with _restored(model) as trained:
        for row in range(0, len(nats_R1), segment):
            window_T1 = text_R1[row : row + segment + 1]
            outputs, following = model(window_T1[:-1], state)
            nats_R1[row : row + segment] = model.head.scorer().target_nats(outputs, window_T1[1:])
            for name, gradient in _gradients(model, window_T1, state)[1].items():
                weight = weights[name]
                weight.addcmul_(back[name], trained[name] - weight).addcmul_(step[name], gradient, value=-1.0)
            state = following
    return in_text_order(nats_R1, text_R1)


@torch.enable_grad()
def _gradients(model: LanguageModel, window_TB: Tensor, state: list[State]) -> tuple[list[State], dict[str, Tensor]]:
    """The state after a window whose last row is only predicted, and the gradient of the mean exact loss, by weight.

    A weight that the loss does not depend on has none.
    """
    parameters = dict(model.named_parameters())
    outputs, following = model(window_TB[:-1], state)
    mean = model.head.scorer().target_nats(outputs, window_TB[1:]).mean()
    gradients = torch.autograd.grad(mean, list(parameters.values()), allow_unused=True)
    named = {name: found for name, found in zip(parameters, gradients, strict=True) if found is not None}
    return [tuple(part.detach() for part in layer) for layer in following], named


@contextmanager
def _restored(model: LanguageModel) -> Iterator[dict[str, Tensor]]:
    """A copy of the weights, which the model has again when the block ends."""
    trained = {name: weight.clone() for name, weight in model.weights().items()}
    try:
        yield trained
    finally:
        model.load_weights(trained)


def _listed(value: float | tuple[float, ...]) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)
