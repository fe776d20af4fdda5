"""Train one trial in its folder: every stage, resumable anywhere, ending in a record."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout

from lm import provenance
from lm.analyzed import trained_stage
from lm.checkpoint import load_weights, remove_checkpoints, save_weights
from lm.codebooks import build_codebook, save_codebook
from lm.data import EncodedCorpus, fingerprint_of, load, vocabulary_size_of
from lm.data.batches import columns
from lm.epochs import run_stage
from lm.files import atomic, make_folder, remove_temporaries
from lm.hashes import NEEDED_BY_A_MODEL, READ_BY_REPORTS, RECORD, UNSCORED, check_hashes
from lm.heads import Words
from lm.model import LanguageModel
from lm.names import nearest
from lm.precision import can_round
from lm.record import Evaluation, Record, codebook_path, read_record, weights_path, write_curve
from lm.resume import TrialState, resume, save, take_over
from lm.scoring import keep_cache_stage, keep_stage, open_test
from lm.settle import open_settled, settle
from lm.shared_stages import adopt, holding, publish
from lm.spec import EcocHead, TrainSpec, stage_keys, trial_key, vocabulary_misfits
from lm.stage import DivergedError, Position, Stage, begin_stage
from lm.trial_log import evaluation_in_a_line, logged

CHECKPOINT_SECONDS = 600.0
_log = logging.getLogger(__name__)


def train(
    spec: TrainSpec,
    *,
    out: Path | str,
    resume_from: Path | str | None = None,
    shared_stages: Path | str | None = None,
    test: bool = True,
    device: str = "auto",
    threads: int = 1,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Generator[Evaluation]:
    """Train a trial in the folder `out`, an Evaluation at each epoch's end, and leave its record there.

    A trial that was interrupted goes on from its last checkpoint in `out`: bit for bit with the same number of threads
    on the same kind of CPU. A settled one yields nothing. `resume_from` names the folder of another settled trial:
    stages that it shares with this one are taken over. `shared_stages` names the folder by which trials that share a
    stage, at the same time too, train it once.
    Without `test` the test text stays closed; called again with it, a settled trial is only scored on test.
    A loss that is not finite settles the trial as `diverged`. Checkpoints are written at every epoch's end, and within
    an epoch every `checkpoint_seconds`. Device `auto` is a GPU where there is one.

    Raises lm.data.CorpusError if the corpus is missing or not what its name says, ValueError if the head does not fit
    its vocabulary, `out` holds another trial or a text is too short for its columns, DamagedError, a ValueError, if a
    file in `out` is not what the trial wrote there, OSError if the disk is full.
    """
    out = Path(out)
    resume_from = None if resume_from is None else Path(resume_from)
    shared_stages = None if shared_stages is None else Path(shared_stages)
    torch.set_num_threads(threads)
    chosen = choose_device(device)
    check_precision(spec, chosen)
    for problem in vocabulary_misfits(spec.head, vocabulary_size_of(spec.corpus)):
        raise ValueError(problem)
    make_folder(out)
    with _held(out):
        remove_temporaries(out, *(out / part for part in ("analyses", "checkpoints", "samples", "tokens", "weights")))
        settled = _settled(spec, out)
        if settled is not None:
            remove_checkpoints(out)  # left where it was killed between its record and their removal
            if settled.tested or not test:
                return
            check_hashes(out, settled.hashes, READ_BY_REPORTS + NEEDED_BY_A_MODEL)
        with logged(out) as log:
            corpus = load(spec.corpus)
            words = words_for(spec, corpus, out, resume_from)
            if words.codebook is not None and settled is None:
                save_codebook(codebook_path(out), words.codebook)
            model = build_model(spec, words, chosen)
            keys = stage_keys(spec, corpus.fingerprint)
            trial = TrialState(spec, out, corpus, chosen, threads, words, model, keys, test, shared_stages)
            if settled is not None:
                open_settled(trial, settled)
                return
            for evaluation in _train_all(trial, resume_from, checkpoint_seconds):
                log(evaluation_in_a_line(evaluation))
                yield evaluation


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """The trial's folder, for this process alone; waits for another, and says so."""
    lock = FileLock(out / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _log.warning("%s: another process trains this trial; waiting for it", out)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _settled(spec: TrainSpec, out: Path) -> Record | None:
    """The record in `out`, None without one; a failure is removed, because this attempt takes it back.

    A failure is this trial's by its key, whatever path its text has, or by its spec, if an older version or another
    text gave it another key. The record of a trial that only failed to be scored on test is what it was before.
    ValueError for the record of another trial.
    """
    record, unscored = read_record(out), out / UNSCORED
    if record is None and not unscored.exists():
        return None  # before the text is needed, which may have to be fetched
    key = trial_key(spec, fingerprint_of(spec.corpus))
    if record is None or (record.status == "failed" and (record.key == key or record.spec == spec)):
        if unscored.exists():
            unscored.rename(out / RECORD)
        else:
            (out / RECORD).unlink()
        record = read_record(out)
    if record is not None and record.key != key:
        raise ValueError(f"{out}: holds the record of trial {record.key}, of another spec, text or version")
    unscored.unlink(missing_ok=True)  # of an attempt that was killed before it wrote its failure
    return record


def _train_all(trial: TrialState, resume_from: Path | None, checkpoint_seconds: float) -> Iterator[Evaluation]:
    """Every stage that is not done yet, then the record."""
    provenance.reset_peak_memory(trial.device)
    diverged: DivergedError | None = None
    try:
        stage = resume(trial)
        if stage is None and resume_from is not None:
            take_over(trial, resume_from)
        while left := trial.spec.stages_left({result.name: result.best_epoch for result in trial.done}):
            name = left[0]
            with holding(trial, name):
                if not adopt(trial, name):
                    if name == "cache":
                        keep_cache_stage(trial)
                    else:
                        yield from _train_stage(trial, stage or _begin(trial, name), checkpoint_seconds)
                    open_test(trial)
                    publish(trial)
            stage = None
    except DivergedError as error:
        diverged = error
    settle(trial, diverged)


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU where there is one. ValueError if there is no such device here.

    For a GPU it also turns off TF32, to which cuDNN's LSTM and GRU round by default.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: torch sees no GPU here")
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device {name}: not auto, cpu or cuda")
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
    return device


def check_precision(spec: TrainSpec, device: torch.device) -> None:
    """ValueError for products in bfloat16 on a GPU, or on a CPU that would round nothing."""
    if spec.precision != "bfloat16":
        return
    if device.type == "cuda":
        raise ValueError("precision bfloat16 runs on CPUs only, got device cuda; use float32, or device cpu")
    if not can_round():
        raise ValueError(
            "precision bfloat16 needs a CPU with AVX-512 or ARM's bf16 on which PyTorch rounds products, and on this "
            "one it does not; use float32"
        )


def words_for(spec: TrainSpec, corpus: EncodedCorpus, *folders: Path | None) -> Words:
    """What the spec's head may know of the corpus's words.

    Its codebook, where it needs one, is the first that a trial keeps in one of the folders, built where none does.
    """
    codebook = None
    if isinstance(spec.head, EcocHead):
        copies = [codebook_path(folder) for folder in folders if folder is not None]
        codebook = build_codebook(spec.head.codebook, corpus, copies)
    return Words(np.bincount(corpus.train, minlength=len(corpus.vocabulary)), codebook)


def build_model(spec: TrainSpec, words: Words, device: torch.device) -> LanguageModel:
    """The model with its initial weights, drawn on the CPU so that every device starts from the same ones."""
    init = torch.Generator().manual_seed(spec.seed)
    return LanguageModel(spec.model, spec.head, spec.dropout, words, init).to(device)


def load_model(
    record: Record, folder: Path, words: Words, device: torch.device, stage: str | None = None
) -> LanguageModel:
    """The model with the weights that a stage chose, and the head's fitted settings.

    Without `stage` it is the last stage that trained. `words` are those of `words_for` this folder. ValueError
    for a stage without weights of its own, or if they are gone.
    """
    spec = record.spec
    names = [*record.best_epochs, *spec.stages_left(record.best_epochs)]
    trained = [name for name in names if name != "cache"]
    stage = trained_stage(record) if stage is None else stage
    if stage not in trained:
        raise ValueError(f"{folder}: no stage {stage!r} with weights of its own{nearest(stage, trained)}")
    path = weights_path(folder, stage)
    if not path.exists():
        raise ValueError(
            f"{path}: not there; the trial has not ended this stage, or its weights were removed, or were not imported"
        )
    model = build_model(spec, words, device)
    model.load_weights(load_weights(path, device))
    for result in record.stages:
        if result.name == stage:
            model.head.use_fitted(result.fitted)
    return model


def _begin(trial: TrialState, name: str) -> Stage:
    last = trial.curve[-1] if trial.curve else None
    before = trial.done[-1] if trial.done else None
    at = Position(
        stage=name,
        epoch=last.epoch if last else 0,
        step=last.step if last else 0,
        tokens=last.tokens if last else 0,
        learning_rate=math.nan,
        best_nats=before.valid.nats_per_token if before else math.inf,
        best_epoch=before.best_epoch if before else 0,
        seconds_before=last.seconds if last else 0.0,
    )
    return begin_stage(trial.spec, trial.model, trial.device, at)


def _train_stage(trial: TrialState, stage: Stage, checkpoint_seconds: float) -> Iterator[Evaluation]:
    scoring, corpus = trial.spec.scoring, trial.corpus
    train_RB = columns(corpus.train, trial.spec.batch_size, trial.device, "batch_size")
    valid_RB = columns(corpus.valid, scoring.valid_columns, trial.device, "scoring.valid_columns")
    # Too short a test text is refused before it is needed.
    columns(corpus.test, scoring.test_columns, trial.device, "scoring.test_columns")
    # The curve reaches the disk before the checkpoint: one that is an epoch ahead is cut at the next start.
    for evaluation in run_stage(stage, train_RB, valid_RB, lambda s: save(trial, s), checkpoint_seconds):
        trial.curve.append(evaluation)
        write_curve(trial.out, trial.curve)
        save(trial, stage)
        yield evaluation
    trial.model.load_weights(stage.best)
    with atomic(weights_path(trial.out, stage.at.stage)) as temporary:
        save_weights(temporary, stage.best)
    keep_stage(trial, stage, valid_RB)
