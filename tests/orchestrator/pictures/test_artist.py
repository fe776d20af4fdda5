"""The processes that draw: what they raise is raised here, and they neither outlive us nor are missed for long."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from orchestrator.pictures import Forest, ForestRow, Heads, Pictures, artist

FOREST = Forest([ForestRow("b", 0.1, 0.05, 0.15, "hurts", None, False)], 0.005, "full", "95%")


def test_what_drawing_raises_is_raised_here_and_the_next_picture_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Pictures(tmp_path / "file") as pictures, pytest.raises(OSError, match="file") as raised:
        pictures.draw("forest", FOREST)
        pictures.sentences()
    assert "draw_forest" in raised.value.__notes__[0]
    with Pictures(tmp_path) as pictures, pytest.raises(ValueError, match="empty"):
        pictures.draw("heads", Heads([], "full"))
        pictures.sentences()
    with Pictures(tmp_path) as pictures:
        pictures.draw("forest", FOREST)
        assert pictures.sentences() == {"forest": None}
    assert [path.name for path in tmp_path.glob("*.svg")] == ["forest.svg"]


def test_a_process_that_was_killed_is_told_of_and_the_next_report_has_another(tmp_path: Path) -> None:
    artist.prepare()
    killed = artist._artist()
    os.killpg(killed._process.pid, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="the process that draws pictures ended with exit code -9"):
        killed.draw(tmp_path, FOREST).result()
    with Pictures(tmp_path) as pictures:
        pictures.draw("forest", FOREST)
        assert pictures.sentences() == {"forest": None}


def test_a_fork_that_was_killed_takes_both_with_it_and_the_next_report_has_another(tmp_path: Path) -> None:
    killed = artist._artist()
    with Pictures(tmp_path) as pictures:
        pictures.draw("forest", FOREST)
        pictures.sentences()
    os.kill(_fork_of(killed._process.pid), signal.SIGKILL)
    told = "the process that draws pictures ended"
    with pytest.raises(ChildProcessError, match=told), Pictures(tmp_path) as pictures:
        for cell in "ab":
            pictures.draw(cell, FOREST)
        pictures.sentences()
    with Pictures(tmp_path) as pictures:
        pictures.draw("forest", FOREST)
        assert pictures.sentences() == {"forest": None}
    assert artist._artist() is not killed


def test_a_picture_lies_in_its_reports_folder_wherever_we_have_gone_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artist.prepare()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with Pictures(Path("report")) as pictures:
            pictures.draw("forest", FOREST)
            pictures.sentences()
        assert (tmp_path / name / "report/forest.svg").exists()


def test_after_the_block_nothing_is_drawn_any_more(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the disk"), Pictures(tmp_path / "report") as pictures:
        for cell in "abcdefgh":
            pictures.draw(cell, FOREST)
        raise RuntimeError("the disk")
    shutil.rmtree(tmp_path / "report", ignore_errors=True)
    time.sleep(0.5)
    assert not (tmp_path / "report").exists()


def test_what_is_printed_and_what_is_closed_disturbs_nobody(tmp_path: Path) -> None:
    """A `sitecustomize` that prints before all else, found where we find modules alone; and no standard error."""
    (tmp_path / "sitecustomize.py").write_text("print('hello')")
    code = (
        "import os, sys; from pathlib import Path; os.close(2); sys.path.insert(0, sys.argv[1]); "
        "sys.path.append(Path('of another type')); from tests.orchestrator.pictures.test_artist import draw_one; "
        "draw_one(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert (tmp_path / "forest.svg").exists()


def draw_one(folder: Path) -> None:
    with Pictures(folder) as pictures:
        pictures.draw("forest", FOREST)
        assert pictures.sentences() == {"forest": None}


def test_a_fork_has_a_process_of_its_own() -> None:
    artist.prepare()
    with mock.patch("os.getpid", return_value=-1):
        other = artist._artist()
    try:
        assert other is not artist._artist()
    finally:
        artist._ARTISTS.pop(-1).kill()
        other.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_process_ends_with_ours(how: signal.Signals) -> None:
    code = (
        "import signal, time; from orchestrator.pictures import artist; artist.prepare(); "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "print(artist._artist()._process.pid, flush=True); time.sleep(60)"
    )
    command, silent = [sys.executable, "-c", code], subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=silent, start_new_session=True) as ours:
        assert ours.stdout is not None
        drawing = int(ours.stdout.readline())
        fork = _fork_of(drawing)
        os.killpg(ours.pid, how)  # as a terminal does
    end = time.monotonic() + 20
    while _runs(drawing) or _runs(fork):
        assert time.monotonic() < end
        time.sleep(0.05)


def _fork_of(process: int) -> int:
    """Once all is imported."""
    end = time.monotonic() + 20
    while not (children := Path(f"/proc/{process}/task/{process}/children").read_text().split()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return int(children[0])


def _runs(process: int) -> bool:
    """Whether it is there, and no zombie that nobody has waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    return False
