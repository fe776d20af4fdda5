"""How fast a trial trains and is scored on a CPU, beside another checkout and beside a trainer from a tutorial.

    python -m tests.benchmarks.step [--against ../earlier] [--case mini] [--rounds 9] [--heads] [--shares]

Everything is measured by turns, one action at a time, each by a process of its own with one thread: this tree in
float32 and in bfloat16, the tree of another checkout (`--against`), and the tutorial: `nn.LSTM`, cross-entropy of all
logits, clipping, SGD, nothing kept between two steps. Printed are tokens per CPU second (medians) and ratios to the
first column (medians of the pairs, with their quartiles). `--heads` measures every head of `sweeps/heads.yaml` at
`mini`; `--shares` says where the time of a training step goes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

import lm.dropout
import lm.epochs
import lm.optimizers
from lm.cache import score_with_cache
from lm.data import load
from lm.data.batches import columns
from lm.evaluate import validation_nats
from lm.optimizers import RunningAverage
from lm.spec import Cache, TrainSpec
from lm.stage import Position, Stage, begin_stage
from lm.train import build_model, words_for
from orchestrator.sweep import read_sweep

CPU = torch.device("cpu")
HERE = Path(__file__).resolve().parents[2]
CASES = {
    "mini": ("awd_ablation", "mini", ""),
    "tying": ("tying", "paper", "VD-LSTM"),
    "tying, augmented loss": ("tying", "paper", "VD-LSTM+AL"),
    "awd": ("awd_ablation", "paper", ""),
}
ACTIONS = ("train", "validation", "test", "cache")
EVALUATED_ROWS = 281
CACHED_TOKENS = 2000


def spec_of(sweep: str, scale: str, variant: str) -> TrainSpec:
    scaled = read_sweep(HERE / "sweeps" / f"{sweep}.yaml").at(scale)
    found = [v.spec for v in scaled.variants if v.name == variant]
    return found[0] if found else scaled.baseline.spec


class Tutorial(nn.Module):
    """A word-level language model as tutorials have it: layers of one size, no dropout, all logits at once."""

    def __init__(self, spec: TrainSpec, words: int) -> None:
        super().__init__()
        sizes = spec.model.hidden_sizes
        self.embedding = nn.Embedding(words, spec.model.embedding_size)
        self.layers = nn.ModuleList(
            nn.LSTM(given, size) for given, size in zip((spec.model.embedding_size, *sizes), sizes, strict=False)
        )
        self.decoder = nn.Linear(sizes[-1], words)
        if spec.model.tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens_TB: Tensor, state: list[tuple[Tensor, Tensor]] | None) -> tuple[Tensor, list[object]]:
        hidden, last = self.embedding(tokens_TB), []
        for number, layer in enumerate(self.layers):
            hidden, carried = layer(hidden, None if state is None else state[number])
            last.append(tuple(part.detach() for part in carried))
        return self.decoder(hidden), last


class Work:
    """One case, ready to be run again and again; each action gives the tokens that it went through."""

    def __init__(self, case: tuple[str, str, str], precision: str) -> None:
        self.spec = spec_of(*case)
        corpus = load(self.spec.corpus)
        scoring, length = self.spec.scoring, self.spec.bptt.length
        self.text_RB = columns(corpus.train, self.spec.batch_size, CPU)[: 40 * length + 1]
        self.valid_RB = columns(corpus.valid, scoring.valid_columns, CPU)[:EVALUATED_ROWS]
        self.test_RB = columns(corpus.test, scoring.test_columns, CPU)[:EVALUATED_ROWS]
        self.cached_N = corpus.valid[:CACHED_TOKENS]
        self.row = 0
        if precision == "tutorial":
            self.tutorial = Tutorial(self.spec, len(corpus.vocabulary))
            self.optimizer = torch.optim.SGD(self.tutorial.parameters(), lr=0.1)
            self.state: list[object] | None = None
            return
        if precision == "bfloat16":
            self.spec = self.spec.model_copy(update={"precision": precision})
        self.step = getattr(lm.epochs, "train_step", None) or lm.epochs._step  # as it was called
        model = build_model(self.spec, words_for(self.spec, corpus), CPU)
        self.stage: Stage = begin_stage(self.spec, model, CPU, Position("train", 0, 0, 0, math.nan, math.inf, 0, 0.0))
        if self.spec.optimizer.kind == "nt_asgd":
            self.stage.average = RunningAverage(model.weights())  # as it is for most of such a trial

    def window(self) -> tuple[Tensor, Tensor]:
        length = self.spec.bptt.length
        self.row = 0 if self.row + length >= len(self.text_RB) else self.row
        window = self.text_RB[self.row : self.row + length], self.text_RB[self.row + 1 : self.row + 1 + length]
        self.row += length
        return window

    def train(self) -> int:
        inputs_TB, targets_TB = self.window()
        self.step(self.stage, inputs_TB, targets_TB, 0.01)
        return targets_TB.numel()

    def tutorial_train(self) -> int:
        inputs_TB, targets_TB = self.window()
        logits_TBV, self.state = self.tutorial(inputs_TB, self.state)
        loss = F.cross_entropy(logits_TBV.flatten(0, 1), targets_TB.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.tutorial.parameters(), 0.25)
        self.optimizer.step()
        return targets_TB.numel()

    def validation(self) -> int:
        validation_nats(self.stage.model, self.valid_RB, self.spec.scoring.window)
        return self.valid_RB[1:].numel()

    def test(self) -> int:
        validation_nats(self.stage.model, self.test_RB, self.spec.scoring.window)
        return self.test_RB[1:].numel()

    def cache(self) -> int:
        cache = Cache(window=500, weight=0.1, flatness=1.0)
        score_with_cache(self.stage.model, {"valid": self.cached_N}, cache, self.spec.scoring.window, CPU)
        return CACHED_TOKENS


def serve() -> None:
    """Do what each line of standard input says, and answer with tokens per CPU second."""
    torch.set_num_threads(1)
    at_work: dict[str, Work] = {}
    for line in sys.stdin:
        case, precision, action = json.loads(line)
        name = json.dumps([case, precision])
        if name not in at_work:
            at_work.clear()
            at_work[name] = Work(tuple(case), precision)
        work = getattr(at_work[name], "tutorial_train" if precision == "tutorial" else action)
        begun, tokens = time.process_time(), work()
        while time.process_time() - begun < 0.1:
            tokens += work()
        print(json.dumps(tokens / (time.process_time() - begun)), flush=True)


class Server:
    """A process that measures; `tree` is the checkout whose code it runs."""

    def __init__(self, tree: Path, precision: str) -> None:
        self.precision = precision
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree,
        )  # fmt: skip

    def rate(self, case: tuple[str, str, str], action: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([case, self.precision, action]) + "\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))


def compare(servers: dict[str, Server], case: tuple[str, str, str], action: str, rounds: int) -> str:
    """A row: tokens per CPU second of the first server, then each other's, and its ratio."""
    rates: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, server in servers.items():
            rate = server.rate(case, action)
            if number:
                rates[name].append(rate)
    first, *others = rates
    cells = [f"{statistics.median(rates[first]):,.0f}"]
    for name in others:
        pairs = [rate / base for rate, base in zip(rates[name], rates[first], strict=True)]
        low, middle, high = statistics.quantiles(pairs, n=4)
        cells += [f"{statistics.median(rates[name]):,.0f}", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
    return " | ".join(cells)


def product_rates() -> str:
    """GFLOP a second of one thread's large products, in float32 and bfloat16."""
    a, b = torch.randn(1400, 400), torch.randn(400, 4000)
    rates = []
    for x, y in ((a, b), (a.bfloat16(), b.bfloat16())):
        seconds = []
        for _ in range(9):
            begun = time.process_time()
            for _ in range(5):
                x @ y
            seconds.append((time.process_time() - begun) / 5)
        rates.append(2 * a.numel() * b.shape[1] / statistics.median(seconds) / 1e9)
    return f"{rates[0]:.0f} in float32, {rates[1]:.0f} in bfloat16"


PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::mv", "aten::addmv", "aten::matmul")
LABELS = (
    ("_BlockedNats", "output layer"),
    ("_AugmentedNats", "output layer"),
    ("_Steps", "recurrence"),
    ("mkldnn_rnn", "recurrence"),
    ("embedding_dense_backward", "embedding gradient"),
    ("Optimizer.", "optimizer"),
    ("label: ", ""),
)


@contextmanager
def labelled() -> Iterator[None]:
    """The parts of a step that are plain functions are named in the profile."""

    def named(label: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            with record_function(f"label: {label}"):
                return function(*args, **options)

        return call

    places = [(nn.utils, "clip_grad_norm_", "clipping"), (RunningAverage, "update", "averaging")]
    places += [(module, "keep_mask", "dropout masks") for module in (lm.dropout, sys.modules["lm.model"])]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, label in places:
        setattr(owner, name, named(label, getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def shares(case: tuple[str, str, str], precision: str) -> dict[str, float]:
    """The share of a training step's CPU time that each part takes, by the profiler."""
    work = Work(case, precision)
    with labelled():
        for _ in range(3):
            work.train()
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            for _ in range(3):
                work.train()
    spent: dict[str, float] = {}
    for event in profiled.events():
        part, at = "the rest", event
        while at is not None and part == "the rest":
            part = next((label or at.name.removeprefix("label: ") for key, label in LABELS if key in at.name), part)
            at = at.cpu_parent
        if part == "output layer":
            part += ": products" if event.name in PRODUCTS else ": elementwise"
        spent[part] = spent.get(part, 0.0) + event.self_cpu_time_total
    total = sum(spent.values())
    return {part: time / total for part, time in sorted(spent.items(), key=lambda item: -item[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--action", action="append", choices=list(ACTIONS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--heads", action="store_true")
    parser.add_argument("--shares", action="store_true")
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error(f"--rounds: quartiles need at least 2, got {given.rounds}")
    if given.serve:
        serve()
        return
    torch.set_num_threads(1)
    cases = {name: CASES[name] for name in given.case or CASES}
    if given.heads:
        variants = read_sweep(HERE / "sweeps" / "heads.yaml").at("mini").variants
        cases = {v.name: ("heads", "mini", v.name) for v in variants}
    print(f"GFLOP a second of one thread's products: {product_rates()}\n")
    if given.shares:
        for name, case in cases.items():
            for precision in ("float32", "bfloat16"):
                told = ", ".join(f"{part} {share:.0%}" for part, share in shares(case, precision).items())
                print(f"{name}, {precision}: {told}", flush=True)
        return
    servers = {} if given.against is None else {given.against.name: Server(given.against.resolve(), "float32")}
    servers |= {"float32": Server(HERE, "float32"), "bfloat16": Server(HERE, "bfloat16")}
    first, *others = [*servers, "tutorial"]
    print(f"| case | {first} | " + " | ".join(f"{name} | ratio" for name in others) + " |")
    print("| :-- | --: |" + " --: | :-- |" * len(others))
    for name, case in cases.items():
        for action in given.action or (("train",) if given.heads else ACTIONS):
            chosen = dict(servers)
            if action == "train":
                chosen["tutorial"] = Server(HERE, "tutorial")
            print(f"| {name}, {action} | {compare(chosen, case, action, given.rounds)} |", flush=True)


if __name__ == "__main__":
    main()
