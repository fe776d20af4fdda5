"""Optimizers, the running average of weights, and the rule that says when to start it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

import torch
from torch import Tensor, nn

from lm.data import cache_folder
from lm.spec import Adam, NtAsgd, Optimizer, Sgd, SgdDecay, SgdHalving, SgdPlateau, Trigger


def build_optimizer(spec: Optimizer, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD for the SGD family (averaging is kept apart, in `RunningAverage`), or Adam.

    Weight decay is coupled: added to the gradient after clipping (Merity et al. 2017, as in the authors' code).
    """
    _keep_torch_out_of_shared_folders()
    match spec:
        case Adam():
            return torch.optim.Adam(
                parameters,
                lr=spec.learning_rate,
                betas=(spec.beta1, spec.beta2),
                eps=spec.epsilon,
                weight_decay=spec.weight_decay,
                fused=True,
            )
        case Sgd() | SgdHalving() | SgdDecay() | SgdPlateau() | NtAsgd():
            return torch.optim.SGD(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True)
        case _:
            assert_never(spec)


def _keep_torch_out_of_shared_folders() -> None:
    """Set TORCHINDUCTOR_CACHE_DIR. With its first optimizer torch makes that folder, though nothing is compiled here.

    By default it lies in /tmp, where another user may own its name, and then no optimizer can be made.
    """
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return
    folder = cache_folder().absolute() / "torch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that is read-only
        folder = Path(tempfile.mkdtemp(prefix="torch-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def decayed_rate(spec: SgdDecay, epochs: int) -> float:
    """The learning rate of the next epoch: full at first, then `decay` to the power of the epochs since."""
    since_start = epochs if spec.restart is None else epochs % spec.restart
    return spec.learning_rate * spec.decay ** max(0, since_start + 1 - spec.full_epochs)


class RunningAverage:
    """The arithmetic mean of the weights after each step since it began (averaged SGD; Polyak & Juditsky 1992).

    The iterate that triggered it does not count; Merity et al. 2017, algorithm 1 includes it, PyTorch's ASGD leaves out
    one more: so the three means differ in their first one or two iterates.
    """

    def __init__(self, weights: dict[str, Tensor], steps: int = 0) -> None:
        self.weights = {name: weight.detach().clone() for name, weight in weights.items()}
        self.steps = steps

    def update(self, weights: dict[str, Tensor]) -> None:
        """Take the weights after one more step into the mean."""
        self.steps += 1
        means = list(self.weights.values())
        torch._foreach_lerp_(means, [weights[name] for name in self.weights], 1.0 / self.steps)


def triggered(rule: Trigger, earlier: Sequence[float], value: float, interval: int) -> bool:
    """Whether validation has stopped improving: `value` against the `earlier` ones, oldest first.

    `code` compares with the best value more than `interval` evaluations ago, as the authors' code does; `literal` with
    the best of the last `interval`, as algorithm 1 of Merity et al. 2017 prints it; `monotonic` with the last one.
    """
    match rule:
        case "code":
            return len(earlier) > interval and value > min(earlier[:-interval])
        case "literal":
            return len(earlier) > interval and value > min(earlier[-interval:])
        case "monotonic":
            return len(earlier) > 0 and value > earlier[-1]
        case _:
            assert_never(rule)
