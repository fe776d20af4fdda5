"""A search that trains for real, in this process: stopped early, interrupted, resumed to the same ledger, exported."""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from lm.record import Evaluation, Record, read_curve, read_record, write_curve
from lm.spec import TrainSpec
from orchestrator.__main__ import app
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.run_trial import Allotment, run_inline
from orchestrator.search.ledger import best, ledger_path, read_search_trials, stopped_early
from orchestrator.search.task import SearchTask
from orchestrator.search.trial_source import SearchTrialSource
from orchestrator.sweep.searches import Search
from orchestrator.trials.plan import Facts
from orchestrator.trials.records import Records
from orchestrator.trials.storage import Storage
from orchestrator.trials.trial import Trial
from tests.support.searching import state

pytestmark = pytest.mark.usefixtures("without_pictures")

SEARCH = """
search:
  trials: 6
  sampler: {kind: tpe, startup_trials: 3}
  scheduler: {kind: asha, grace_epochs: 1, reduction_factor: 2}
  space:
    optimizer.learning_rate: {kind: log_uniform, low: 0.01, high: 10.0}
    dropout.input: {kind: uniform, low: 0.0, high: 0.5}
"""
POPULATION = """
search:
  sampler: {kind: random}
  scheduler: {kind: population, population: 4, interval_epochs: 1, share: 0.25}
  space:
    optimizer.learning_rate: {kind: log_uniform, low: 0.01, high: 10.0}
    dropout.input: {kind: uniform, low: 0.0, high: 0.5}
"""
SWEEP = """
name: tiny
question: Which rate?
base:
  corpus: {name: corpus}
  model: {layers: 1, embedding_size: 8, hidden_size: 8}
  bptt: {kind: fixed, length: 10}
  optimizer: {kind: sgd, learning_rate: 1.0, clip: 0.25}
  batch_size: 8
  epochs: 4
seeds: [1]
"""


class Heard:
    """Sends this process an interrupt at its n-th evaluation."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.trained: list[str] = []
        self.epochs = 0
        self.stopped_early = 0
        self._left = interrupt_at

    def started(self, trial: Trial) -> None:
        self.trained.append(trial.key)

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        self.epochs += 1
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(signal.SIGINT)

    def settled(self, trial: Trial, record: Record | None) -> None:
        self.stopped_early += trial.stopped_early


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_place(tmp_path, monkeypatch)


def make_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a search in `tiny.yaml`, and the text it names."""
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rng = random.Random(7)
    (tmp_path / "corpus").mkdir()
    for split, lines in (("train", 300), ("valid", 60), ("test", 60)):
        text = "\n".join(" ".join(f"w{min(int(rng.expovariate(0.2)), 30)}" for _ in range(9)) for _ in range(lines))
        (tmp_path / "corpus" / f"{split}.txt").write_text(text + "\n")
    (tmp_path / "tiny.yaml").write_text(SWEEP + SEARCH)
    return tmp_path


def searched(runs: Path, interrupt_at: int | None = None, search: str = SEARCH) -> tuple[SearchTask, Path, Heard]:
    import yaml

    base = TrainSpec.model_validate(yaml.safe_load(SWEEP)["base"] | {"seed": 0})
    task = SearchTask("best found", base, Search.model_validate(yaml.safe_load(search)["search"]))
    heard, records, facts = Heard(interrupt_at), Records(runs), Facts()
    run_inline(SearchTrialSource([task], records, facts), Allotment(runs, 1.0, 0.0, 600.0), heard, Interrupt())
    return task, ledger_path(runs, task.key(facts.fingerprint(base.corpus))), heard


def without_times(ledger: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_a_search_that_trains_is_the_same_interrupted_or_not(place: Path) -> None:
    task, ledger, heard = searched(place / "runs")
    found = read_search_trials(ledger)
    assert state(task, found).ended
    assert {trial.state for trial in found} == {"complete", "stopped"}
    assert heard.stopped_early == sum(trial.state == "stopped" for trial in found)
    assert all(trial.seconds > 0.0 for trial in found)
    for trial in found:
        folder = place / "runs" / str(trial.key)
        assert (folder / "record.json").exists() == (trial.state == "complete")
        assert (folder / "checkpoints").exists() == (trial.state == "stopped")
    chosen = best(found)
    assert chosen is not None
    record = json.loads((place / "runs" / str(chosen.key) / "record.json").read_text())
    assert record["stages"][-1]["valid"]["nats_per_token"] == chosen.valid_nats

    _, other, first = searched(place / "again", interrupt_at=3)
    assert not state(task, read_search_trials(other)).ended
    _, other, second = searched(place / "again")
    assert second.trained[0] == first.trained[-1]
    assert without_times(other) == without_times(ledger)


def test_gc_frees_the_checkpoints_of_trials_that_a_search_stopped(place: Path) -> None:
    _, ledger, _ = searched(place / "runs")
    first, *others = [trial for trial in read_search_trials(ledger) if trial.state == "stopped"]
    further = place / "runs" / str(first.key)  # as if a table went on from where the search left it
    last = read_curve(further)[-1]
    write_curve(further, [*read_curve(further), replace(last, epoch=last.epoch + 1)])
    held = place / "runs" / str(others[0].key)
    with FileLock(held / ".lock"):
        for dry in (["--dry-run"], []):
            said = CliRunner().invoke(app, ["runs", "gc", *dry]).output
            for trial in others:
                assert (f"{place / 'runs' / str(trial.key) / 'checkpoints'}\n" in said) == (trial != others[0])
    assert {path.parent for path in (place / "runs").glob("*/checkpoints")} == {further, held}
    before = read_curve(held)
    assert "checkpoints\n" in CliRunner().invoke(app, ["runs", "gc"]).output
    assert not (held / "checkpoints").exists() and read_curve(held) == before
    assert searched(place / "runs")[2].trained == []


def test_gc_takes_no_checkpoints_that_another_search_trains_or_that_lie_elsewhere(place: Path) -> None:
    key, other = "0" * 16, "1" * 16

    def line(number: int, key: str, epochs: int | None) -> str:
        asked = json.dumps({"asked": number, "values": {}, "key": key}) + "\n"
        end = {"ended": number, "state": "stopped", "nats": 5.0, "objectives": None, "epochs": epochs, "seconds": 1.0}
        return asked if epochs is None else f"{asked}{json.dumps(end | {'reason': None})}\n"

    task, elsewhere = '{"task": {}}\n', place / "elsewhere" / "checkpoints"
    ledgers = place / "runs" / ".searches"
    ledgers.mkdir(parents=True)
    ends = line(0, key, 9) + line(1, other, 9) + line(2, key, 3) + line(3, "../elsewhere", 9) + line(4, "", 9)
    (ledgers / "a.jsonl").write_text(task + ends)
    (ledgers / "b.jsonl").write_text(task + line(0, other, None))
    points = [Evaluation("train", n, n, n, 1.0 * n, 1.0, 5.0, 5.0, 1.0, 1.0, False, True) for n in range(1, 10)]
    for folder in (place / "runs" / key, place / "runs" / other, place / "elsewhere", place / "runs"):
        (folder / "checkpoints").mkdir(parents=True)
        write_curve(folder, points[:-1])
    assert stopped_early(place / "runs") == {"../elsewhere": 9, "": 9, key: 9}
    assert CliRunner().invoke(app, ["runs", "gc"]).output == "0 bytes freed\n", "it is trained again from its beginning"
    for folder in (place / "runs" / key, place / "runs" / other, place / "elsewhere", place / "runs"):
        write_curve(folder, points)
    assert CliRunner().invoke(app, ["runs", "gc"]).exit_code == 0
    assert elsewhere.exists() and (place / "runs" / "checkpoints").exists()
    assert [path.parent.name for path in (place / "runs").glob("*/checkpoints")] == [other]


def test_a_sweep_goes_on_with_a_damaged_ledger_and_keeps_it(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, ledger, _ = searched(place / "runs")
    undisturbed = read_search_trials(ledger)
    lines = ledger.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:1], b"no JSON\n", *lines[1:-1]])  # and the end of the last trial is lost
    ledger.write_bytes(damaged)
    result = CliRunner().invoke(app, ["sweep", "tiny.yaml", "--scale", "paper", "--executor", "inline"])
    assert result.exit_code == 0, result.output
    assert caplog.messages[0].startswith(f"{ledger}:2: expected an event; ")
    kept = place / "runs" / ".old" / f"{ledger.name}-1"
    assert caplog.messages[-1].endswith(f"the damaged ledger is kept as {kept}")
    assert kept.read_bytes() == damaged
    assert [(found.key, found.state) for found in read_search_trials(ledger)] == [
        (one.key, one.state) for one in undisturbed
    ]
    text = (place / "reports" / "tiny" / "paper" / "report.md").read_text()
    assert "| best found | 6 |" in text and "**The search is not over yet.**" not in text


def test_a_search_goes_on_by_what_only_its_storage_has(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a kill before the driver heard of the last epochs of a trial that the scheduler then stops.

    Once it trains, no storage is opened, because a silent one refuses that, which would end the search.
    """
    _, ledger, _ = searched(place / "runs")
    undisturbed, lines = without_times(ledger), ledger.read_bytes().splitlines(keepends=True)
    stop = next(number for number, line in enumerate(undisturbed) if line.get("goes_on") is False)
    (place / "runs").rename(place / "there")
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b"".join(lines[:stop]))
    opened = list[str]()
    monkeypatch.setattr("orchestrator.execute.run.Storage", lambda uri: opened.append(uri) or Storage(uri))
    line = ["sweep", "tiny.yaml", "--executor", "inline", "--storage", str(place / "there")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert without_times(ledger) == undisturbed
    assert len(opened) == 2  # for the exchange before, and for all that is fetched later


def test_a_population_trains_every_epoch_once_interrupted_or_not(place: Path) -> None:
    task, ledger, heard = searched(place / "runs", search=POPULATION)
    found = read_search_trials(ledger)
    assert state(task, found).ended and len(found) == 16
    assert heard.epochs == 16  # four generations of four trials of one epoch, whatever they go on from
    for trial in found:
        record = read_record(place / "runs" / str(trial.key))
        assert record is not None and len(record.stages) == 1 + trial.number // 4
        if trial.parent is not None:
            assert record.stages[-2].key == found[trial.parent].key
    _, other, first = searched(place / "again", interrupt_at=7, search=POPULATION)
    assert not state(task, read_search_trials(other)).ended
    _, other, second = searched(place / "again", search=POPULATION)
    assert first.epochs + second.epochs == 16
    assert without_times(other) == without_times(ledger)


@pytest.mark.slow
def test_a_schedule_is_trained_anew_and_compared_at_an_equal_budget(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "tiny.yaml").write_text(SWEEP.replace("seeds: [1]", "seeds: [1, 2]") + POPULATION)
    result = CliRunner().invoke(app, ["sweep", "tiny.yaml", "--scale", "paper", "--executor", "inline"])
    assert result.exit_code == 0, result.output
    text = (place / "reports" / "tiny" / "paper" / "report.md").read_text()
    assert "4 of 4 planned trials complete." in text
    assert "| best found | a schedule, see Search |" in text and "another budget" not in text
    assert "| best found | 16 | 4 complete, 12 of earlier generations | 16 |" in text
    assert "from epoch 1: optimizer.learning_rate" in text
    curves = pq.read_table(place / "reports" / "tiny" / "paper" / "curves.parquet").to_pylist()
    assert {row["stage"] for row in curves if row["variant"] == "best found"} == {
        "train",
        "train-2",
        "train-3",
        "train-4",
    }
    assert "legs:" in text
    fresh = CliRunner().invoke(app, ["sweep", "tiny.yaml", "--scale", "paper", "--executor", "inline", "--fresh"])
    assert fresh.exit_code == 0, fresh.output
    assert "20 trial folders moved" in fresh.output
    assert not caplog.records


def test_a_tuning_tells_what_will_run_and_ends_with_nothing_waiting(place: Path) -> None:
    tune = SEARCH.replace("search:", "tune:").replace("trials: 6", "trials: 2").replace("scheduler", "# scheduler")
    rest = "components: {clip: {off: {optimizer.clip: null}}}\n" + tune
    (place / "tuned.yaml").write_text(
        SWEEP.replace("epochs: 4", "epochs: 1").replace("seeds: [1]", "seeds: [1, 2, 3]") + rest
    )
    arguments = ["tuned.yaml", "--scale", "paper"]
    before = CliRunner().invoke(app, ["plan", *arguments])
    words = "to train: up to 4 search trials, then 6 for the table of results, with the values that the searches find"
    assert before.stdout.splitlines()[1] == words
    assert before.stdout.splitlines()[2].startswith(
        "no trial is stopped early (scheduler null); sampler tpe, all at random because startup_trials (3) "
        "reach trials (2); in the base gradients are"
    )
    *table, rate, dropout, full, no_clip = before.stdout.splitlines()[3:]
    assert [line.split() for line in table][1:] == [
        ["full", "the", "base", "itself"],
        ["no", "clip", "optimizer.clip", "0.25", "->", "none"],
    ]
    assert rate == "searched: optimizer.learning_rate (0.01 to 10, on a log scale)"
    assert dropout == "searched: dropout.input (0 to 0.5)"
    assert (full, no_clip) == ("search for full: 0 of 2 trials", "search for no clip: 0 of 2 trials")
    data = json.loads(CliRunner().invoke(app, ["plan", *arguments, "--json"]).output)
    assert (data["trials"], data["counts"]) == ([], {})
    assert data["left"] == {"search_trials": 4, "table_trials_fewest": 6, "table_trials_most": 6}
    assert "0 trials" in CliRunner().invoke(app, ["status", *arguments]).output
    ran = CliRunner().invoke(app, ["sweep", *arguments, "--executor", "inline"])
    assert ran.exit_code == 0, ran.output
    assert re.search(r"full, trial 0 \(\S+ .+\): started", ran.stderr)
    assert "best so far" in ran.stderr
    assert "10 done" in ran.stderr.splitlines()[-1] and "waiting" not in ran.stderr.splitlines()[-1]
    after = CliRunner().invoke(app, ["plan", *arguments])
    assert "6 trials (2 variants x 3 seeds): 6 done" in after.output
    assert "after its search" not in after.output and "searched:" not in after.output
    assert after.output.splitlines()[-1] == "nothing is left to train"


def test_the_best_so_far_of_each_seed_s_search_outlives_the_command(place: Path) -> None:
    space = "space:\n    optimizer.learning_rate: {kind: log_uniform, low: 0.01, high: 10.0}"
    tuned = (
        SWEEP.replace("seeds: [1]", "seeds: [1, 2]") + f"baseline: full\ntune:\n  trials: 1\n  repeats: 2\n  {space}\n"
    )
    (place / "tuned.yaml").write_text(tuned)
    arguments = ["sweep", "tuned.yaml", "--scale", "paper", "--executor", "inline"]
    first = CliRunner().invoke(app, arguments)
    (found,) = re.findall(r"full for seed 1, trial 0 .*; best so far (\S+)", first.stderr)
    (place / "tuned.yaml").write_text(tuned.replace("trials: 1", "trials: 2"))
    then = CliRunner().invoke(app, arguments)
    (worse,) = re.findall(r"full for seed 1, trial 1 .* perplexity (\S+) validation", then.stderr)
    assert float(worse) > float(found)
    assert re.search(rf"full for seed 1, trial 1 .*; best so far {found} validation perplexity, trial 0", then.stderr)


def test_export_writes_what_a_search_found(place: Path) -> None:
    url = f"sqlite:///{place}/optuna.db"
    result = CliRunner().invoke(app, ["export", "tiny.yaml", "--optuna", url, "--scale", "paper"])
    assert result.exit_code == 0, result.output
    assert "tiny.paper.best found: 0 trials" in result.output
    searched(place / "runs")
    result = CliRunner().invoke(app, ["export", "tiny.yaml", "--optuna", url, "--scale", "paper"])
    assert "tiny.paper.best found: 6 trials" in result.output
    exported = optuna.load_study(study_name="tiny.paper.best found", storage=url).trials
    assert len(exported) == 6
    for trial in exported:
        folder = place / "runs" / trial.user_attrs["key"]
        curve, record = read_curve(folder), read_record(folder)
        began, ended = trial.datetime_start, trial.datetime_complete
        assert began is not None and ended is not None
        if record is not None:
            assert ended.astimezone() == datetime.fromisoformat(record.finished_at)
            assert (ended - began).total_seconds() == pytest.approx(record.seconds, abs=1e-5)
            assert trial.user_attrs["valid_perplexity"] == pytest.approx(record.stages[-1].valid.perplexity)
        else:  # stopped early
            assert ended.timestamp() == pytest.approx((folder / "curve.parquet").stat().st_mtime, abs=1e-5)
            assert (ended - began).total_seconds() == pytest.approx(curve[-1].seconds, abs=1e-5)
            assert trial.user_attrs["valid_perplexity"] == pytest.approx(min(p.valid_perplexity for p in curve))


def events(folder: Path) -> Iterator[Any]:
    """The events in a folder's one file, by the format: length, CRC of it, data, CRC of them."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    [file] = folder.glob("events.out.tfevents.*")
    data = file.read_bytes()
    while data:
        [size] = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12]) == (masked_crc32c(data[:8]),)
        assert struct.unpack("<I", data[12 + size : 16 + size]) == (masked_crc32c(data[12 : 12 + size]),)
        yield Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]


def test_export_writes_curves_for_tensorboard(place: Path) -> None:
    task, ledger, _ = searched(place / "runs")
    line = ["export", "tiny.yaml", "--tensorboard", str(place / "boards"), "--scale", "paper"]
    for _ in range(2):  # the second time in place of the first
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 0, result.output
        assert f"{place}/boards: 6 curves; to see them: tensorboard --logdir {place}/boards" in result.output
    of_another = place / "boards/other.paper" / f"{task.title}, trial 0/events.out.tfevents.1.x"
    of_another.parent.mkdir(parents=True)
    of_another.write_text("")
    (place / "other.yaml").write_text((place / "tiny.yaml").read_text().replace("name: tiny", "name: other"))
    assert CliRunner().invoke(app, ["export", "other.yaml", *line[2:]]).exit_code == 0
    assert not of_another.exists()
    for trial in read_search_trials(ledger):
        points = read_curve(place / "runs" / str(trial.key))
        values: dict[str, dict[int, float]] = {}
        for event in events(place / "boards/tiny.paper" / f"{task.title}, trial {trial.number}"):
            for value in event.summary.value:
                values.setdefault(value.tag, {})[event.step] = value.simple_value
        assert values["curve/valid_perplexity"] == pytest.approx({p.epoch: p.valid_perplexity for p in points})
        assert values["progress/seconds"] == pytest.approx({p.epoch: p.seconds for p in points})


def test_curves_that_cannot_be_written_end_with_5(place: Path) -> None:
    searched(place / "runs")
    (place / "boards").write_text("")
    result = CliRunner().invoke(app, ["export", "tiny.yaml", "--tensorboard", "boards", "--scale", "paper"])
    assert (result.exit_code, result.stderr.count("\n")) == (5, 1)
    assert result.stderr == "boards/tiny.paper: Not a directory (a file lies where a folder is needed)\n"


def test_export_wants_to_know_where_to(place: Path) -> None:
    result = CliRunner().invoke(app, ["export", "tiny.yaml", "--scale", "paper"])
    assert (result.exit_code, result.stderr) == (2, "export: expected --optuna URL or --tensorboard DIR\n")


def test_export_says_what_is_wrong(place: Path) -> None:
    (place / "plain.yaml").write_text(SWEEP + "components: {a: {off: {batch_size: 4}}}\n")
    plain = CliRunner().invoke(app, ["export", "plain.yaml", "--optuna", "sqlite:///optuna.db", "--scale", "paper"])
    assert plain.exit_code == 2
    assert "neither searches nor tunes: there is no study" in plain.output
    for url in ("nothing://me:secret@host/db", "secret", "sqlite:////secret/optuna.db"):
        bad = CliRunner().invoke(app, ["export", "tiny.yaml", "--optuna", url, "--scale", "paper"])
        assert bad.exit_code == 2
        assert "--optuna: expected the URL of a database, such as sqlite:///optuna.db; it cannot" in bad.output
        assert "secret" not in bad.output
    with sqlite3.connect(place / "other.db") as other:
        other.execute("create table alembic_version (version_num text)")
        other.execute("insert into alembic_version values ('of another program')")
    bad = CliRunner().invoke(app, ["export", "tiny.yaml", "--optuna", "sqlite:///other.db", "--scale", "paper"])
    assert bad.exit_code == 2 and "or another version of Optuna made it" in bad.output
