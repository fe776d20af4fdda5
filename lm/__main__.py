"""Command line: train and evaluate one model, look at codebooks, look after corpora."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from lm.analyze.commands import app as analyze_app
from lm.codebooks.commands import codebook
from lm.command_group import (
    CommandGroup,
    Device,
    RunFolder,
    StageName,
    Threads,
    Version,
    checked,
    grant_threads,
    numbers,
    refuse,
    settled_record,
)
from lm.data import CorpusError
from lm.data.commands import app as corpus_app
from lm.files import cannot_write, ran_out_of_memory
from lm.record import Record, Score, read_record
from lm.spec import Cache, Dynamic, TrainSpec
from lm.spec_file import corpus_message, read_spec_file
from lm.text_commands import generate, rerank
from lm.trial_log import evaluation_in_a_line

# Not Typer's defaults, so that an option is known to be given: each goes with --window, or with --dynamic.
_WEIGHT, _FLATNESS, _MODE = "0.05,0.1,0.2", "0.3,0.7,1.0", "reference"
_RATE, _DECAY, _SEGMENT = "3e-5,5e-5,1e-4", "0.001,0.002,0.005", 5
_CACHE = "with --window: {} [default: {}]"
_DYNAMIC = "with --dynamic: {} [default: {}]"

app = typer.Typer(
    cls=CommandGroup,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
app.add_typer(corpus_app, name="corpus", help="List, check, fetch and make corpora.")
app.add_typer(analyze_app, name="analyze", help="What settled trials say beyond their perplexity.")


@app.callback()
def _main(version: Version = False) -> None:
    """Train and evaluate one model, look at codebooks, look after corpora."""


@app.command()
def train(
    spec_file: Annotated[Path, typer.Argument(metavar="SPEC.yaml", exists=True, dir_okay=False)],
    out: Annotated[Path | None, typer.Option(help="the trial's folder; runs/<key> if not said")] = None,
    device: Device = "auto",
    threads: Threads = None,
    checkpoint_minutes: Annotated[float, typer.Option(min=0.0, help="between checkpoints within an epoch")] = 10.0,
    test: Annotated[bool, typer.Option(help="score on test; --no-test leaves that for the same command later")] = True,
) -> None:
    """Train the trial of SPEC.yaml, or go on with it; of a settled one only say so."""
    granted = grant_threads(threads)
    from lm.checkpoint import has_checkpoint
    from lm.data import fingerprint_of
    from lm.spec import trial_key
    from lm.train import train as train_trial

    spec, folder = _read_spec(spec_file), out or Path("runs")
    try:
        if out is None:
            folder /= trial_key(spec, fingerprint_of(spec.corpus))
        points = train_trial(
            spec,
            out=folder,
            shared_stages=folder.parent / ".stages" if out is None else None,
            test=test,
            device=device,
            threads=granted,
            checkpoint_seconds=60.0 * checkpoint_minutes,
        )
        for point in points:
            print(evaluation_in_a_line(point), flush=True)
    except CorpusError as error:
        refuse(corpus_message(spec_file, error))
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError) or cannot_write(error, broadly=True):
            raise
        refuse(str(error))
    except (RuntimeError, MemoryError) as error:
        _refuse_memory(error)
    except KeyboardInterrupt:
        goes_on = "goes on from the last checkpoint" if has_checkpoint(folder) else "starts again: no checkpoint yet"
        print(f"interrupted; the same command {goes_on}", file=sys.stderr)
        raise SystemExit(130) from None
    record = read_record(folder)
    assert record is not None, "a trial that ended has a record"
    _print_record(record, folder)
    raise SystemExit(0 if record.status == "complete" else 1)


@app.command()
def evaluate(
    run: RunFolder,
    stage: StageName = None,
    device: Device = "auto",
    threads: Threads = None,
    window: Annotated[str | None, typer.Option(help="neural cache: sizes to try, as in 500,2000")] = None,
    weight: Annotated[str | None, typer.Option(help=_CACHE.format("mixing weights to try", _WEIGHT))] = None,
    flatness: Annotated[str | None, typer.Option(help=_CACHE.format("flatness values to try", _FLATNESS))] = None,
    mode: Annotated[str | None, typer.Option(help=_CACHE.format("reference or full", _MODE))] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="also go on learning from the text, step by step")] = False,
    learning_rate: Annotated[str | None, typer.Option(help=_DYNAMIC.format("rates to try", _RATE))] = None,
    decay: Annotated[
        str | None, typer.Option(help=_DYNAMIC.format("ways back to the trained weights to try", _DECAY))
    ] = None,
    segment: Annotated[int | None, typer.Option(help=_DYNAMIC.format("tokens between two steps", _SEGMENT))] = None,
) -> None:
    """Score the weights kept in RUN once more; with --window also with a neural cache, with --dynamic as they adapt.

    Of several values to try, the best on validation are taken.
    """
    of_cache = {"--weight": weight, "--flatness": flatness, "--mode": mode}
    of_dynamic = {"--learning-rate": learning_rate, "--decay": decay, "--segment": segment}
    for options, asked, needs in ((of_cache, window is not None, "--window"), (of_dynamic, dynamic, "--dynamic")):
        if given := [name for name, value in options.items() if value is not None and not asked]:
            refuse(f"{given[0]}: goes with {needs}")
    granted = grant_threads(threads)
    record = settled_record(run)
    cache, adaptation = None, None
    if window is not None:
        grid = {
            "window": numbers("--window", window, int),
            "weight": numbers("--weight", _WEIGHT if weight is None else weight, float),
            "flatness": numbers("--flatness", _FLATNESS if flatness is None else flatness, float),
        }
        cache = checked(Cache, {"mode": _MODE if mode is None else mode, **grid})
    if dynamic:
        rates = numbers("--learning-rate", _RATE if learning_rate is None else learning_rate, float)
        decays = numbers("--decay", _DECAY if decay is None else decay, float)
        each = _SEGMENT if segment is None else segment
        adaptation = checked(Dynamic, {"learning_rate": rates, "decay": decays, "segment": each})
    from lm.rescore import rescore

    try:
        scores = rescore(record, run, stage=stage, device=device, threads=granted, cache=cache, dynamic=adaptation)
    except ValueError as error:
        refuse(str(error))
    for name, score in scores.items():
        _print_score(name, score)


@app.command()
def measure(
    spec_file: Annotated[Path, typer.Argument(metavar="SPEC.yaml", exists=True, dir_okay=False)],
    device: Device = "auto",
    threads: Threads = None,
    steps: Annotated[int, typer.Option(min=1, help="windows of training, after a warm-up")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="one line of JSON")] = False,
) -> None:
    """Train a few windows of SPEC.yaml and say what they cost; nothing is kept."""
    granted = grant_threads(threads)
    from lm.measure import measure as measure_model

    spec = _read_spec(spec_file)
    try:
        found = measure_model(spec, device, granted, steps)
    except CorpusError as error:
        refuse(corpus_message(spec_file, error))
    except (ValueError, OSError) as error:
        refuse(str(error))
    except (RuntimeError, MemoryError) as error:
        _refuse_memory(error)
    if as_json:
        print(found.model_dump_json())
        return
    for name, value in found.model_dump().items():
        print(f"{name}: {f'{value:,.0f}' if isinstance(value, float) and value > 100 else value}")


app.command("codebook")(codebook)
app.command("generate")(generate)
app.command("rerank")(rerank)


def _read_spec(file: Path) -> TrainSpec:
    try:
        return read_spec_file(file, TrainSpec.model_validate, TrainSpec)
    except (ValueError, OSError) as error:
        refuse(str(error))


def _refuse_memory(error: RuntimeError | MemoryError) -> NoReturn:
    """End with exit code 2 where a model does not fit into memory; any other error is raised again."""
    if not ran_out_of_memory(error):
        raise error
    lines = str(error).splitlines()
    refuse(f"not enough memory for this model: {lines[0] if lines else 'an allocation failed'}")


def _print_record(record: Record, folder: Path) -> None:
    print(f"{record.status} in {record.seconds:.0f} s: {folder}" + (f" ({record.reason})" if record.reason else ""))
    for stage in record.stages:
        _print_score(f"{stage.name} valid", stage.valid)
        if stage.test is not None:
            _print_score(f"{stage.name} test", stage.test)


def _print_score(name: str, score: Score) -> None:
    print(
        f"{name}: perplexity {score.perplexity:.3f} (as AWD-LSTM's code counts {score.perplexity_reference:.3f}), "
        f"{score.nats_per_token:.5f} nats per token, {score.predicted_tokens:,} tokens "
        f"in {score.columns} column{'' if score.columns == 1 else 's'}"
    )


if __name__ == "__main__":
    app()
