"""The command of a finished sweep makes nothing again that still stands, and everything that does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lm.data import CorpusError
from lm.files import WriteError
from orchestrator import api
from orchestrator.agenda.expand import expand
from orchestrator.analysis.looks import note_look
from orchestrator.api import load_sweep, run_sweep
from orchestrator.errors import RayLostError
from orchestrator.execute import pages, run
from orchestrator.execute.interrupt import Interrupt
from orchestrator.report import report_sweep
from orchestrator.report.files.folder import Report
from orchestrator.trials.records import Records
from tests.support.places import command, make_place, process, settle, trials, working_in

pytestmark = pytest.mark.usefixtures("without_pictures")

HEAVY = ("bokeh", "matplotlib", "mlflow", "optuna", "ray", "torch")
PAGE = Path("reports/toy/paper/report.md")
NOTE = Path("runs/.sweeps/toy.paper.made")
LINE = ("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place whose trials are complete."""
    place = make_place(tmp_path_factory.mktemp("whole"))
    with working_in(place):
        for trial in trials().values():
            if trial.reads_from is None:
                settle(trial)
    return place


@pytest.fixture
def made(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A copy of it as the working directory, where a command was run; what later commands make, `page` or `mirror`."""
    for name in ("runs", "cache", "corpus"):
        shutil.copytree(whole / name, tmp_path / name)
    shutil.copy(whole / "toy.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    what: list[str] = []

    class Tracker:
        link = "mlflow ui"

        def __init__(self, *_: object, **__: object) -> None: ...

        def finish(self, *_: object) -> bool:
            what.append("mirror")
            with Path("mlflow.db").open("a") as file:
                file.write("a run\n")
            return not Path("mlflow fails").exists()

    def report(*arguments: object, **options: object) -> Report:
        what.append("page")
        return report_sweep(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "Tracker", Tracker)
    monkeypatch.setattr(run, "report_sweep", report)
    again()
    assert what == ["page", "mirror"]
    what.clear()
    return what


def again(**options: object) -> None:
    assert run_sweep("toy.yaml", scale="paper", executor="inline", **options).exit_code == 0  # type: ignore[arg-type]


def test_what_stands_is_not_made_again(made: list[str]) -> None:
    again()
    again()
    assert made == []


def test_a_sweep_can_run_in_another_thread(made: list[str]) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(again).result()
    assert made == []


def edit_page() -> None:
    PAGE.write_text(PAGE.read_text() + "It helps.\n")


def edit_summary() -> None:
    path = PAGE.parent / "summary.json"
    path.write_text(path.read_text().replace(" seed", " very seed"))


def edit_note() -> None:
    NOTE.write_text(NOTE.read_text()[:-40])


def other_question() -> None:
    Path("toy.yaml").write_text(Path("toy.yaml").read_text().replace("Does it matter?", "Does it?"))


def other_published_numbers() -> None:
    Path("published").mkdir()
    Path("published/toy.yaml").write_text("{}\n")


@pytest.mark.parametrize(
    "change",
    [
        PAGE.unlink,
        (PAGE.parent / "forest.svg").unlink,
        edit_summary,
        NOTE.unlink,
        lambda: NOTE.write_bytes(b"\xff\x00"),
        edit_page,
        edit_note,
        other_question,
        other_published_numbers,
    ],
)
def test_a_page_that_does_not_stand_is_written_again(made: list[str], change: Callable[[], object]) -> None:
    before = PAGE.read_bytes()
    change()
    again()
    assert made == ["page", "mirror"]
    assert PAGE.read_bytes() == before or b"Does it?" in PAGE.read_bytes()
    made.clear()
    again()
    assert made == []


def test_a_look_at_more_seeds_makes_the_intervals_of_the_page_that_stands_wider(made: list[str]) -> None:
    """As after `--seeds` with more of them; a page with its old intervals would err more often than it says."""
    note_look(Path("runs/.sweeps/toy.paper.looks"), [1, 2, 3, 4, 5])
    again()
    assert made == ["page", "mirror"]
    again()
    assert made == ["page", "mirror"]


def test_a_second_interrupt_does_not_wait_for_mlflow(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(_: object, __: object, interrupt: Interrupt, ___: object) -> bool:
        with interrupt.stopping(lambda: None):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second signal ends the command")

    monkeypatch.setattr(run, "_train", trained)
    for record in Path("runs").glob("*/record.json"):
        record.unlink()
    assert run_sweep("toy.yaml", scale="paper", executor="inline").exit_code == 130
    assert made == []


def test_the_link_with_which_an_editor_locks_a_file_is_no_table(made: list[str]) -> None:
    Path("published").mkdir()
    Path("published/.#toy.yaml").symlink_to("somebody@a.machine:1234")
    again()
    assert made == []


def test_a_file_of_published_numbers_that_cannot_be_read_ends_no_sweep(made: list[str]) -> None:
    Path("published").mkdir()
    Path("published/old.yaml").symlink_to("gone.yaml")
    again()
    assert made == ["page", "mirror"]


def test_other_code_writes_the_page_again(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "code_digest", lambda: "of another version")
    again()
    assert made == ["page", "mirror"]


def test_a_page_elsewhere_is_another_page(made: list[str]) -> None:
    again(reports="elsewhere")
    assert made == ["page", "mirror"]
    assert (Path("elsewhere") / PAGE.relative_to("reports")).read_bytes() == PAGE.read_bytes()


def test_another_record_in_the_place_of_one_is_another_input(made: list[str]) -> None:
    path = Records("runs").folder(trials()["full"].key) / "record.json"
    record = json.loads(path.read_text())
    del record["hashes"]  # as before there were any: nothing says whether somebody has changed it
    path.write_text(json.dumps(record | {"threads": 7}))
    again()
    again()
    assert made == ["page", "mirror"] * 2
    assert "| Threads per trial | 1, 7 |" in PAGE.read_text()


def test_a_database_that_was_deleted_or_written_to_is_asked(made: list[str]) -> None:
    database = Path("mlflow.db")
    for change in (database.unlink, lambda: database.write_text("of another sweep")):
        change()
        again()
        assert made == ["mirror"]
        made.clear()
        again()
        assert made == []


def test_a_mirror_that_failed_is_tried_again(made: list[str]) -> None:
    Path("mlflow fails").touch()
    Path("mlflow.db").unlink()
    again()
    again()
    assert made == ["mirror", "mirror"]


def test_a_server_is_asked_every_time(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://lab:hunter2@127.0.0.1:9")
    again()
    again()
    assert made == ["mirror", "mirror"]
    assert "hunter2" not in NOTE.read_text()


def test_a_part_of_the_sweep_notes_nothing(made: list[str]) -> None:
    again(only=["neural cache"])
    assert made == ["page", "mirror"]
    made.clear()
    PAGE.unlink()
    again(only=["neural cache"])
    assert made == ["page", "mirror"]


def test_a_page_that_lacks_a_picture_is_tried_again(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.report import page

    def cannot(*_: object) -> None:
        raise MemoryError

    sweep, records = load_sweep("toy.yaml", "paper"), Records("runs")
    last = pages.LastMade(sweep, Path("toy.yaml"), PAGE.parent, records)
    monkeypatch.setitem(page.write_report.__kwdefaults__, "draw", cannot)
    now = expand(sweep, records)
    lacking = report_sweep(sweep, "toy.yaml", now, records, "reports", if_fuller="replace")
    assert not lacking.is_whole
    last.write(now, lacking, mirrored=True)
    assert not NOTE.exists()


def test_a_finished_sweep_imports_nothing_heavy_and_fills_a_database_that_was_deleted(whole: Path) -> None:
    with working_in(whole):
        assert command(*LINE)[0] == 0
    page, database = whole / PAGE, whole / "mlflow.db"
    before = page.stat().st_mtime_ns, database.stat().st_mtime_ns
    quick = process(whole, "-X", "importtime", "-m", "orchestrator", *LINE)
    assert quick.returncode == 0 and quick.stdout.splitlines()[-1] == str(PAGE)
    link = "MLflow: mlflow ui, then http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning&compareRunsMode=CHART"
    assert quick.stdout.splitlines()[-2] == link, "it was noted, because MLflow takes seconds to import"
    summary = json.loads(page.with_name("summary.json").read_text())
    assert summary["answer"] in quick.stdout.splitlines()
    table = quick.stdout.partition("variant ")[2].splitlines()
    assert {line.split("  ")[0] for line in table[1:-2]} == summary["verdicts"].keys()
    imported = {line.rpartition("|")[2].strip() for line in quick.stderr.splitlines()}
    assert "orchestrator.execute.pages" in imported and not imported & set(HEAVY)
    assert (page.stat().st_mtime_ns, database.stat().st_mtime_ns) == before

    database.unlink()
    assert process(whole, "-m", "orchestrator", *LINE).returncode == 0
    with sqlite3.connect(database) as connection:
        [count] = connection.execute("select count(*) from runs").fetchone()
    assert count == 1 + len(trials_of(whole))
    assert page.stat().st_mtime_ns == before[0]


def trials_of(place: Path) -> list[str]:
    with working_in(place):
        return list(trials())


def test_a_command_is_given_the_outcome(made: list[str], caplog: pytest.LogCaptureFixture) -> None:
    again(notify="cat > outcome.json")
    said = json.loads(Path("outcome.json").read_text())
    summary = json.loads(PAGE.with_name("summary.json").read_text())
    assert (said["state"], said["exit_code"], said["sweep"], said["scale"]) == ("complete", 0, "toy", "paper")
    assert (said["answer"], said["verdicts"], said["page"]) == (summary["answer"], summary["verdicts"], str(PAGE))
    assert not caplog.messages


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("exit 3", "--notify: the command ended with exit code 3"),
        ("exec sleep 60", "--notify: the command was ended after 0.2 seconds"),
    ],
)
def test_a_command_that_fails_is_a_warning(
    made: list[str], command: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api, "NOTIFY_SECONDS", 0.2 if "sleep" in command else 60.0)
    again(notify=command)
    assert caplog.messages == [said]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (WriteError(28, "No space left on device", "runs"), "cannot be written"),
        (IsADirectoryError(21, "Is a directory", "reports/README.md"), "cannot be written"),
        (RayLostError("gone, password=hunter2"), "Ray lost"),
        (CorpusError("corpus folder corpus lacks valid.txt"), "failed"),
    ],
)
def test_a_command_hears_of_an_error_too(
    made: list[str], error: Exception, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(api, "run_prepared", fails)
    with pytest.raises(type(error)):
        again(notify="cat > outcome.json")
    said = json.loads(Path("outcome.json").read_text())
    assert said["state"] == state and "hunter2" not in said["error"]
