"""`init`, `sweeps` and `export`: sweep files to begin with, made or copied; a sweep for the tools of others."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer

from lm.files import write_text, writing
from lm.names import nearest
from lm.spec import Corpus
from lm.validation import SLUG
from orchestrator.commands import shared
from orchestrator.words import counted, print_table

if TYPE_CHECKING:
    from lm.record import Evaluation
    from orchestrator.agenda.expand import SweepState
    from orchestrator.trials.records import Records

SHIPPED = Path(__file__).parent.parent / "shipped"
_QUICK_TOKENS = 50_000
"""Training tokens at the quick scale: minutes on two cores with the 10,000 words of the Penn Treebank."""
_FILE = Template("""\
# What would run:  python -m orchestrator plan $name.yaml --scale laptop
# Run it:          python -m orchestrator sweep $name.yaml --scale laptop
# Its page:        reports/$name/laptop/report.md
name: $quoted
question: What do dropout, tied embeddings and the cell bring to a small LSTM?
base: # one trial; fields that are not here have defaults (python -m orchestrator schema)
  corpus: {name: $corpus}
  model: {cell: lstm, layers: 1, embedding_size: 200, hidden_size: 200, tied: true}
  dropout: {input: 0.2, output: 0.3} # the probability that a unit is dropped
  optimizer: {kind: adam, learning_rate: 0.004, clip: 0.25}
  epochs: 30
components: # each is taken away alone: new values of the base, by dotted path
  dropout: {off: {dropout.input: 0.0, dropout.output: 0.0}}
  tying: {off: {model.tied: false}}
variants: # other changes of the base
  GRU: {model.cell: gru}
seeds: [1, 2, 3] # of every variant; more seeds make the intervals smaller
resources: {cpus: 1, gpus: auto} # of one trial; auto: a quarter of a GPU if there is one
scales: # `paper` is the base as written; `laptop` is taken where there is no GPU
  laptop:
    base:
      corpus.train_tokens: $tokens
      model.embedding_size: 100
      model.hidden_size: 100
      epochs: 10
""")
_CORPUS = "ptb, wikitext-2, wikitext-103, seinfeld, pydoc, or a folder with train.txt, valid.txt and test.txt"
_OPTUNA = "write its searches to an Optuna storage, such as sqlite:///optuna.db, for optuna-dashboard"
_TENSORBOARD = "write the learning curves to DIR/SWEEP.SCALE/, for `tensorboard --logdir DIR`"

app = typer.Typer(help="List and copy the sweep files that ship.", no_args_is_help=True, rich_markup_mode=None)


def _shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def _names(incomplete: str) -> list[str]:
    return [name for name in _shipped() if name.startswith(incomplete)]


def init(
    name: Annotated[str, typer.Argument(help="of the sweep; the file is NAME.yaml")],
    corpus: Annotated[str, typer.Option(metavar="FOLDER|NAME", help=_CORPUS)],
) -> None:
    """Write NAME.yaml: a small sweep of a corpus with comments, which runs at once and is there to be changed."""
    from lm.data import PUBLISHED, CorpusError, corpus_warnings, load

    if not re.fullmatch(SLUG, name) or len(name) > 64:
        rule = "at most 64 letters, digits, '-' and '_', with a letter or digit first"
        shared.wrong(f"NAME: should be {rule}, got {name!r}")
    if not corpus:
        shared.wrong(f"--corpus: should be {_CORPUS}, got ''")
    file = Path(f"{name}.yaml")
    _check_free(file)
    text, names = Path(corpus), {path.name for path in Path(corpus).glob("*.txt")}
    is_raw = text.is_file() or (names and not names & {"train.txt", "valid.txt", "test.txt"})
    if corpus not in PUBLISHED and is_raw:
        made = f"{name}-corpus"
        shared.wrong(
            f"--corpus: {corpus} is raw text; make a corpus of it first:\n"
            f"  python -m lm corpus make {shlex.quote(corpus)} --out {made} --tokenize --min-count 2\n"
            f"  python -m orchestrator init {name} --corpus {made}"
        )
    with shared.refused(CorpusError):
        if corpus in PUBLISHED:  # it is fetched when it is needed
            tokens = PUBLISHED[corpus].tokens["train"]
        else:
            loaded = load(Corpus(name=corpus))
            tokens = len(loaded.train)
            for warning in corpus_warnings(loaded):
                typer.echo(f"warning: {warning}", err=True)
    cut = _QUICK_TOKENS if tokens > _QUICK_TOKENS else "null # all"
    # In quotes, because YAML takes some names for numbers, like 1e3, and some for true or null.
    quoted = {"quoted": json.dumps(name), "corpus": json.dumps(corpus, ensure_ascii=False)}
    write_text(file, _FILE.substitute(quoted, name=name, tokens=cut))
    typer.echo(f"{file} written. Next:\n  python -m orchestrator sweep {file} --scale laptop")


def _check_free(file: Path) -> None:
    if file.exists():
        shared.wrong(f"{file}: is there already, and nothing is overwritten; give another name, or remove it")


@app.command("list")
def list_sweeps() -> None:
    """List the sweep files that ship: name, scales, question."""
    from orchestrator.sweep import read_sweep

    sweeps = [read_sweep(path) for path in _shipped().values()]
    rows = [(sweep.name, ", ".join(sweep.scale_names), sweep.question) for sweep in sweeps]
    print_table(("sweep", "scales", "question"), rows, whole=("sweep", "scales"))


@app.command("copy")
def copy_sweep(name: Annotated[str, typer.Argument(help="as `sweeps list` prints it", autocompletion=_names)]) -> None:
    """Write NAME.yaml here, and the published numbers that it shows to published/ beside it."""
    from orchestrator.sweep import read_sweep

    if name not in _shipped():
        shared.wrong(f"NAME: no sweep {name!r} ships{nearest(name, _shipped())}")
    source, file = _shipped()[name], Path(f"{name}.yaml")
    sweep = read_sweep(source)
    references = {sweep.published, *(scale.published for scale in sweep.scales.values())}
    tables = {table.partition(".")[0] for shown in references if isinstance(shown, tuple) for table in shown}
    copies = {Path("published") / f"{table}.yaml": SHIPPED / "published" / f"{table}.yaml" for table in sorted(tables)}
    changed = [
        place for place, shipped in copies.items() if place.exists() and place.read_bytes() != shipped.read_bytes()
    ]
    for place in (file, *changed):
        _check_free(place)
    # The schema that editors read lies in the package.
    header = f"# yaml-language-server: $schema={SHIPPED / 'schema.json'}"
    text = source.read_text(encoding="utf-8").replace("# yaml-language-server: $schema=schema.json", header, 1)
    for place, shipped in copies.items():
        write_text(place, shipped.read_text(encoding="utf-8"))
    write_text(file, text)
    typer.echo(f"{', '.join(map(str, (file, *copies)))} written. Next:\n  python -m orchestrator plan {file}")


def export(
    file: shared.SweepFile,
    optuna: Annotated[str | None, typer.Option(metavar="URL", help=_OPTUNA)] = None,
    tensorboard: Annotated[Path | None, typer.Option(metavar="DIR", help=_TENSORBOARD)] = None,
    scale: shared.ScaleName = None,
    runs: shared.WrittenRuns = Path("runs"),
) -> None:
    """Write a sweep for other tools, in place of what was written of it there before; nothing is trained."""
    if optuna is None and tensorboard is None:
        shared.wrong("export: expected --optuna URL or --tensorboard DIR")
    sweep, state, records = shared.opened_state(file, scale, runs)
    place = f"{sweep.name}.{sweep.scale}"
    if optuna is not None:
        if sweep.searching is None:
            shared.wrong(f"{file}: neither searches nor tunes{sweep.at_scale}: there is no study to write")
        studies = {f"{place}.{search.task.title}": (search.task, search.trials) for search in state.searches}
        with shared.refused(ValueError, OSError):
            # Optuna takes most of a second to import.
            from orchestrator.search.optuna import export as write

            write(studies, optuna, lambda key: records.times(key, records.read(key)))
        for name, (_, trials) in studies.items():
            typer.echo(f"{name}: {counted(len(trials), 'trial')}")
    if tensorboard is not None:
        with shared.refused(ValueError, OSError):
            count = _write_curves(state, records, tensorboard / place)
        typer.echo(f"{tensorboard}: {counted(count, 'curve')}; to see them: tensorboard --logdir {tensorboard}")


def _write_curves(state: SweepState, records: Records, folder: Path) -> int:
    from lm.record import read_curve

    curves = {trial.title: (records.holder(trial), records.curve(trial)) for trial in state.table}
    for search in state.searches:
        keys = {f"{search.task.title}, trial {trial.number}": trial.key for trial in search.trials}
        curves |= {title: (key, read_curve(records.folder(key))) for title, key in keys.items() if key is not None}
    written = {title: (key, curve) for title, (key, curve) in curves.items() if curve}
    for title, (key, curve) in written.items():
        times = records.times(key, records.read(key))
        span = None if times is None else (int(1000 * times[0].timestamp()), int(1000 * times[1].timestamp()))
        _write_curve(folder / title.replace("%", "%25").replace("/", "%2F"), curve, span)
    return len(written)


def _write_curve(folder: Path, curve: Iterable[Evaluation], times: tuple[int, int] | None) -> None:
    """Write a trial's finite numbers under MLflow's names, the epoch as step, in place of what was written before.

    `times` are when it began and ended, in milliseconds.
    """
    from tensorboardX import SummaryWriter  # takes up to a second to import; Ray Tune needs it too

    from orchestrator.watch.mlflow.store import curve_measures

    with writing(folder):
        for earlier in folder.glob("events.out.tfevents.*"):
            earlier.unlink()
        with SummaryWriter(str(folder)) as writer:
            for point in curve:
                for measure in curve_measures(point, times):
                    writer.add_scalar(measure.name, measure.value, measure.step, measure.milliseconds / 1000)
