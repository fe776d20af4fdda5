"""A stage of a tiny trial, its state open to the test. T time, B batch, R rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lm.data import load
from lm.data.batches import columns
from lm.spec import TrainSpec
from lm.stage import Position, Stage, begin_stage
from lm.train import build_model
from tests.support.tiny import even

CPU = torch.device("cpu")


def begin(spec: TrainSpec, vocabulary: int = 24, stage: str = "train", device: torch.device = CPU) -> Stage:
    at = Position(stage, 0, 0, 0, math.nan, math.inf, 0, 0.0)
    return begin_stage(spec, build_model(spec, even(vocabulary), device), device, at)


def texts(spec: TrainSpec, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    corpus = load(spec.corpus)
    return columns(corpus.train, spec.batch_size, device), columns(corpus.valid, spec.scoring.valid_columns, device)


def window(spec: TrainSpec, steps: int = 12) -> tuple[Tensor, Tensor]:
    text_RB = texts(spec)[0][: steps + 1]
    return text_RB[:-1], text_RB[1:]
