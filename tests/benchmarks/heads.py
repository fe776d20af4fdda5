"""How long a training step of each head takes, beside what its FLOPs predict from the softmax head's measured rate.

    python tests/benchmarks/heads.py [--sweep sweeps/heads.yaml] [--scale mini] [--repeats 15]

Every head of the sweep is timed in turn with the softmax, in one process with one thread, on made-up outputs of the
layers and words of the corpus's frequencies. `head` is its forward and backward pass alone; `step` the whole training
step: layers, head, clipping, update. The prediction of a step is the softmax's, its head's time replaced.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from lm.data import load
from lm.epochs import train_step
from lm.heads import Outputs
from lm.spec import SoftmaxHead, TrainSpec
from lm.stage import Position, begin_stage
from lm.train import build_model, words_for
from orchestrator.sweep import read_sweep

CPU = torch.device("cpu")


class Timed:
    """One variant's head and step, ready to be run again and again."""

    def __init__(self, spec: TrainSpec) -> None:
        corpus = load(spec.corpus)
        self.tokens = spec.bptt.length * spec.batch_size
        words = words_for(spec, corpus)
        model = build_model(spec, words, CPU)
        self.cost = model.head.cost(self.tokens)
        at = Position("train", 0, 0, 0, math.nan, math.inf, 0, 0.0)
        self.stage = begin_stage(spec, model, CPU, at)
        text = torch.from_numpy(corpus.train[: self.tokens + spec.batch_size].copy()).long().view(-1, spec.batch_size)
        self.input_TB, self.targets_TB = text[:-1], text[1:]
        noise = torch.Generator().manual_seed(1)
        sizes = (spec.model.embedding_size, *spec.model.hidden_sizes)
        shape = (len(self.targets_TB), spec.batch_size)
        states = tuple(torch.randn(*shape, size, generator=noise).tanh() for size in sizes)
        self.outputs = Outputs(states, tuple(state.requires_grad_() for state in states))

    def head(self) -> None:
        loss = self.stage.model.head.training_loss(self.outputs, self.targets_TB, self.stage.noise)
        total: Tensor = loss.nats_TB.mean() + sum((term.mean() for term in loss.terms.values()), torch.zeros(()))
        for parameter in (*self.stage.model.head.parameters(), *self.outputs.dropped):
            parameter.grad = None
        total.backward()

    def step(self) -> None:
        train_step(self.stage, self.input_TB, self.targets_TB, 0.0)


def milliseconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return 1000.0 * (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", type=Path, default=Path("sweeps/heads.yaml"))
    parser.add_argument("--scale", default="mini")
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sweep = read_sweep(given.sweep).at(given.scale)
    base = sweep.baseline.spec
    plain = Timed(base.model_copy(update={"head": SoftmaxHead(kind="softmax"), "model": untied(base)}))
    print(f"{sweep.name}, scale {given.scale}, {base.corpus.name}, {plain.tokens} tokens a step, one thread\n")
    print("| Head | FLOPs a token | Head ms | Predicted | Ratio | Step ms | Predicted | Ratio |")
    print("| :-- | --: | --: | --: | --: | --: | --: | --: |")
    for variant in sweep.variants:
        print(row(variant.name, Timed(variant.spec), plain, given.repeats), flush=True)


def untied(spec: TrainSpec) -> object:
    """The softmax that rates are measured with has its own matrix, whose gradient nothing else adds to."""
    sizes = {"tied": False, "hidden_size": spec.model.hidden_sizes}
    return spec.model.model_copy(update=sizes)


def row(name: str, head: Timed, plain: Timed, repeats: int) -> str:
    """Medians of interleaved timings, so that a noisy machine slows both."""
    times: dict[str, list[float]] = {"head": [], "step": [], "plain head": [], "plain step": []}
    for _ in range(repeats + 2):
        times["plain head"].append(milliseconds(plain.head))
        times["head"].append(milliseconds(head.head))
        times["plain step"].append(milliseconds(plain.step))
        times["step"].append(milliseconds(head.step))
    median = {what: statistics.median(values[2:]) for what, values in times.items()}
    share = head.cost.training_flops_per_token / plain.cost.training_flops_per_token
    head_predicted = median["plain head"] * share
    step_predicted = median["plain step"] - median["plain head"] + head_predicted
    return (
        f"| {name} | {head.cost.training_flops_per_token / 1e6:.2f} M "
        f"| {median['head']:.1f} | {head_predicted:.1f} | {median['head'] / head_predicted:.2f} "
        f"| {median['step']:.1f} | {step_predicted:.1f} | {median['step'] / step_predicted:.2f} |"
    )


if __name__ == "__main__":
    main()
