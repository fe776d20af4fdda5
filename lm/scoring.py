"""What a finished stage is scored by: validation at its end, and then the test text, by which nothing is chosen."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from lm.by_token.losses import CACHE_USED, NATS_WITHOUT_CACHE
from lm.cache import CacheValues, active_positions, score_with_cache
from lm.checkpoint import load_weights
from lm.data.batches import columns
from lm.evaluate import TokenNats, fit_head, token_nats
from lm.files import LostWeightsError
from lm.record import (
    CacheResult,
    Divergence,
    Split,
    StageResult,
    token_nats_path,
    weights_path,
)
from lm.resume import TrialState
from lm.stage import DivergedError, Stage, too_large
from lm.tables import write_table

ENCODINGS = {
    "position": "DELTA_BINARY_PACKED",
    "nats": "BYTE_STREAM_SPLIT",
    NATS_WITHOUT_CACHE: "BYTE_STREAM_SPLIT",
}
"""Of losses by token in Parquet: less than half the bytes that dictionaries of these columns take."""


def keep_stage(trial: TrialState, stage: Stage, valid_RB: Tensor) -> None:
    """Score a trained stage's chosen weights, which the model holds, on validation; its result and its losses."""
    begun = time.perf_counter()
    at = stage.at
    averaging = at.averaging_from_epoch  # after the last epoch, if that one set it off
    fitted = fit_head(trial.model, valid_RB)
    valid, measures = token_nats(trial.model, valid_RB, trial.spec.scoring.window)
    _keep_losses(trial, at.stage, "valid", valid)
    trial.done.append(
        StageResult(
            name=at.stage,
            key=trial.keys[at.stage],
            epochs=at.stage_epochs,
            best_epoch=at.best_epoch,
            steps=at.stage_steps,
            train_seconds=at.train_seconds,
            evaluation_seconds=at.evaluation_seconds + time.perf_counter() - begun,
            tokens_per_second=at.stage_tokens / at.train_seconds,
            averaging_from_epoch=averaging if averaging is not None and averaging <= at.epoch else None,
            stopped_early=at.stage_epochs < stage.epochs,
            valid=valid.score(),
            test=None,
            cache=None,
            measures={"valid": measures},
            fitted=fitted,
        )
    )


def keep_cache_stage(trial: TrialState) -> None:
    """Score the chosen weights once more with the neural cache; its values, where several, are chosen on validation."""
    begun = time.perf_counter()
    spec, before = trial.spec.cache, trial.done[-1]
    assert spec is not None
    window = trial.spec.scoring.window
    values, plain, mixed = score_with_cache(trial.model, {"valid": trial.corpus.valid}, spec, window, trial.device)
    _keep_losses(trial, "cache", "valid", mixed["valid"], plain=plain["valid"], window=values.window)
    chosen = CacheResult(
        window=values.window,
        weight=values.weight,
        flatness=values.flatness,
        plain_valid=plain["valid"].score(),
        plain_test=None,
    )
    update = {
        "name": "cache",
        "key": trial.keys["cache"],
        "epochs": 0,
        "steps": 0,
        "train_seconds": 0.0,
        "evaluation_seconds": time.perf_counter() - begun,
        "valid": mixed["valid"].score(),
        "test": None,
        "cache": chosen,
        "measures": {},
    }
    trial.done.append(before.model_copy(update=update))


def open_test(trial: TrialState) -> None:
    """Score every finished stage on test that is not yet, from the weights it keeps; nothing where test stays closed.

    The model is left with the last stage's weights. Raises DivergedError where a perplexity overflows: that stage and
    those after it are no results. LostWeightsError if a stage's weights are gone.
    """
    if not trial.test or all(result.test is not None for result in trial.done):
        return
    for index, result in enumerate(trial.done):
        if result.name != "cache":
            load_chosen(trial, result)
        if result.test is None:
            trial.done[index] = _tested(trial, index)


def load_chosen(trial: TrialState, result: StageResult) -> None:
    """Give the model the weights that a stage chose, and its head what validation chose for them."""
    path = weights_path(trial.out, result.name)
    if not path.exists():
        raise LostWeightsError(
            f"{path}: not there; the weights of this stage were removed, so that it cannot be scored"
        )
    trial.model.load_weights(load_weights(path, trial.device))
    trial.model.head.use_fitted(result.fitted)


def _keep_losses(
    trial: TrialState, stage: str, split: Split, losses: TokenNats, *, plain: TokenNats | None = None, window: int = 0
) -> None:
    """Keep the losses; a cache's beside those of the same pass without it, and where one of this window was used."""
    table = losses.table(trial.words.counts_V)
    if plain is not None:
        spec = trial.spec.cache
        assert spec is not None, "losses without a cache are those of a pass with one"
        used_N = active_positions(plain.nats.size, window, spec.mode, spec.chunk, torch.device("cpu"))
        table = table.append_column(NATS_WITHOUT_CACHE, pa.array(plain.nats))
        table = table.append_column(CACHE_USED, pa.array(used_N.numpy().astype(np.uint8)))
    write_table(token_nats_path(trial.out, stage, split), table, ENCODINGS)


def _tested(trial: TrialState, index: int) -> StageResult:
    begun = time.perf_counter()
    result, scoring = trial.done[index], trial.spec.scoring
    update: dict[str, Any] = {}
    plain, window = None, 0
    if result.cache is None:
        test_RB = columns(trial.corpus.test, scoring.test_columns, trial.device)
        test, measures = token_nats(trial.model, test_RB, scoring.window)
        update["measures"] = {**result.measures, "test": measures}
    else:
        test, plain = _cached_test(trial, result.cache)
        update["cache"] = result.cache.model_copy(update={"plain_test": plain.score()})
        window = result.cache.window
    update["test"] = test.score()
    if not math.isfinite(update["test"].perplexity):
        lost = sum(each.train_seconds + each.evaluation_seconds for each in trial.done[index:])
        del trial.done[index:]
        raise _diverged(trial, result.name, update["test"].nats_per_token, lost + time.perf_counter() - begun)
    _keep_losses(trial, result.name, "test", test, plain=plain, window=window)
    update["evaluation_seconds"] = result.evaluation_seconds + time.perf_counter() - begun
    return result.model_copy(update=update)


def _diverged(trial: TrialState, stage: str, nats: float, seconds: float) -> DivergedError:
    last = ([point for point in trial.curve if point.stage == stage] or trial.curve)[-1]  # a cache has no point
    return DivergedError(
        Divergence(stage=stage, epoch=last.epoch, step=last.step, learning_rate=last.learning_rate, gradient_norm=None),
        too_large("test", nats, stage) if math.isfinite(nats) else None,
        seconds,
    )


def _cached_test(trial: TrialState, chosen: CacheResult) -> tuple[TokenNats, TokenNats]:
    spec = trial.spec.cache
    assert spec is not None
    values = CacheValues(chosen.window, chosen.weight, chosen.flatness)
    texts: dict[Split, npt.NDArray[np.int32]] = {"test": trial.corpus.test}
    _, plain, mixed = score_with_cache(trial.model, texts, spec, trial.spec.scoring.window, trial.device, values)
    return mixed["test"], plain["test"]
