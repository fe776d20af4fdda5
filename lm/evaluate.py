"""Exact losses of a model over a text. T time, B columns, R rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from lm.heads import Outputs
from lm.heads.temperature import FIT_TARGETS
from lm.model import LanguageModel
from lm.record import Score, perplexity


@dataclass(frozen=True)
class TokenNats:
    """The loss of every predicted token, in the order of the text.

    `position` counts from the split's first token; `token` is the predicted token's id; `nats` its loss, natural
    logarithm. The first token of each column is never predicted.
    """

    position: npt.NDArray[np.int32]
    token: npt.NDArray[np.int32]
    nats: npt.NDArray[np.float32]
    rows: int
    columns: int

    def score(self) -> Score:
        """Mean loss and perplexity, exact and by the convention of the AWD-LSTM authors' code.

        That code divides the summed loss by all rows instead of the predicted ones, so that its perplexity is the
        exact one to the power (R - 1) / R.
        """
        mean = float(self.nats.sum(dtype=np.float64)) / self.nats.size
        return Score(
            nats_per_token=mean,
            predicted_tokens=self.nats.size,
            columns=self.columns,
            perplexity=perplexity(mean),
            perplexity_reference=perplexity(mean * (self.rows - 1) / self.rows),
        )

    def table(self, counts_V: npt.NDArray[np.int64]) -> pa.Table:
        """The columns as Arrow, for Parquet; beside each word how often the training text has it."""
        counts = counts_V[self.token]
        return pa.table({"position": self.position, "token": self.token, "training_count": counts, "nats": self.nats})


def windows(model: LanguageModel, text_RB: Tensor, window: int) -> Iterator[tuple[slice, Outputs, Tensor]]:
    """The text window by window: the rows that are predicted, counted from the second, the outputs, and the targets.

    The state begins at zero and is carried along each column.
    """
    state = model.initial_state(text_RB.shape[1])
    for row in range(0, len(text_RB) - 1, window):
        targets_TB = text_RB[row + 1 : row + 1 + window]
        rows = slice(row, row + len(targets_TB))
        outputs, state = model(text_RB[rows], state)
        yield rows, outputs, targets_TB


@torch.inference_mode()
def fit_head(model: LanguageModel, text_RB: Tensor) -> dict[str, float]:
    """Choose the settings that the head leaves to validation, today an ECOC head's temperature; return them by name.

    They are chosen on the first rows of each column, and in use from now on.
    """
    if not model.head.needs_fit:
        return {}
    rows = min(-(-FIT_TARGETS // text_RB.shape[1]), len(text_RB) - 1)
    outputs, _ = model(text_RB[:rows], model.initial_state(text_RB.shape[1]))
    return model.head.fit(outputs, text_RB[1 : rows + 1])


@torch.inference_mode()
def validation_nats(model: LanguageModel, text_RB: Tensor, window: int) -> float:
    """Mean exact loss per predicted token, one number read from the device; the head is fitted first."""
    fit_head(model, text_RB)
    return mean_nats(model, text_RB, window)


@torch.inference_mode()
def mean_nats(model: LanguageModel, text_RB: Tensor, window: int) -> float:
    """Mean exact loss per predicted token, with the head as it is."""
    total = torch.zeros((), dtype=torch.float64, device=text_RB.device)
    scorer = model.head.scorer()
    for _, outputs, targets_TB in windows(model, text_RB, window):
        total += scorer.target_nats(outputs, targets_TB).sum(dtype=torch.float64)
    return float(total) / text_RB[1:].numel()


@torch.inference_mode()
def token_nats(
    model: LanguageModel, text_RB: Tensor, window: int, *, measured: bool = True
) -> tuple[TokenNats, dict[str, float]]:
    """The exact loss of every predicted token, state carried along each column; and what the head measures.

    `text_RB` are ids, as `columns` lays them. If not `measured`, the second result is empty: an error-correcting
    code's measures cost many times its losses.
    """
    # One tensor from the start: small results kept from every window would split the memory that the large
    # intermediate ones need again, and were measured to cost gigabytes.
    nats_TB = torch.empty(len(text_RB) - 1, text_RB.shape[1], device=text_RB.device, dtype=model.embedding_VE.dtype)
    scorer = model.head.scorer()
    tallies: dict[str, Tensor] = {}
    for rows, outputs, targets_TB in windows(model, text_RB, window):
        nats_TB[rows] = scorer.target_nats(outputs, targets_TB)
        if measured:
            for name, tally in model.head.tallies(scorer, outputs, targets_TB).items():
                tallies[name] = tallies[name] + tally if name in tallies else tally
    return in_text_order(nats_TB, text_RB), model.head.measures(tallies, nats_TB.numel()) if measured else {}


@torch.inference_mode()
def hidden_and_nats(model: LanguageModel, text_R1: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """One pass over one column: the last layer's raw output (N, H) before each prediction, and its loss (N,)."""
    size, dtype = model.output_size, model.embedding_VE.dtype
    hidden_NH = torch.empty(len(text_R1) - 1, size, device=text_R1.device, dtype=dtype)
    nats_N = torch.empty(len(text_R1) - 1, device=text_R1.device, dtype=dtype)
    scorer = model.head.scorer()
    for rows, outputs, targets_T1 in windows(model, text_R1, window):
        hidden_NH[rows] = outputs.raw[-1][:, 0]
        nats_N[rows] = scorer.target_nats(outputs, targets_T1)[:, 0]
    return hidden_NH, nats_N


def in_text_order(nats_TB: Tensor, text_RB: Tensor) -> TokenNats:
    """Losses of rows 1..R-1 of every column, column after column as the text runs."""
    rows, count = text_RB.shape
    position_TB = torch.arange(1, rows)[:, None] + rows * torch.arange(count)[None, :]
    return TokenNats(
        position=position_TB.t().flatten().numpy().astype(np.int32),
        token=text_RB[1:].t().flatten().cpu().numpy().astype(np.int32),
        nats=nats_TB.t().flatten().float().cpu().numpy(),
        rows=rows,
        columns=count,
    )
