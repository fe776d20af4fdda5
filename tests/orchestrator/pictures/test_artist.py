"""The processes that draw: what they raise is raised here, and they neither outlive us nor are missed for long."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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


@pytest.mark.parametrize("which", [0, 1, 2])
def test_whichever_was_killed_between_reports_the_next_has_others(tmp_path: Path, which: int) -> None:
    before = artist._artist()
    draw_one(tmp_path)
    os.kill([before._process.pid, *_forks_of(before._process.pid)][which], signal.SIGKILL)
    _wait_until(lambda: not before.lives)
    draw_one(tmp_path)
    assert artist._artist() is not before


def test_one_that_is_killed_in_mid_picture_is_told_of(tmp_path: Path) -> None:
    before = artist._artist()
    draw_one(tmp_path)
    first, _ = _forks_of(before._process.pid)
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(ChildProcessError, match="ended with exit code 137"), Pictures(tmp_path) as pictures:
        for cell in "abcd":
            pictures.draw(cell, FOREST)
        os.kill(first, signal.SIGKILL)
        pictures.sentences()
    draw_one(tmp_path)


def test_ending_in_mid_picture_nobody_complains(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from orchestrator.pictures import Pictures; "
        "from tests.orchestrator.pictures.test_artist import FOREST; pictures = Pictures(Path(sys.argv[1])); "
        "drawn = [pictures.draw(str(k), FOREST) for k in range(99)]; pictures._drawn['0'].result(); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (-9, b"")


def test_a_fork_of_ours_neither_hinders_our_end_nor_is_hindered(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from tests.orchestrator.pictures import test_artist; "
        "test_artist.draw_one(Path(sys.argv[1])); time.sleep(60 if os.fork() == 0 else 0)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], start_new_session=True) as ours:
        try:
            assert ours.wait(20) == 0
        finally:
            os.killpg(ours.pid, signal.SIGKILL)


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
    """A `sitecustomize` that prints before all else, found where we find modules alone; and no standard streams."""
    (tmp_path / "sitecustomize.py").write_text("print('hello')")
    code = (
        "import os, sys; from pathlib import Path; os.closerange(0, 3); sys.path.insert(0, sys.argv[1]); "
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
        other.kill()
        other.close()
    assert artist._ARTISTS.pop(-1) is other is not artist._artist()


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
        forks = _forks_of(drawing)
        os.killpg(ours.pid, how)  # as a terminal does
    _wait_until(lambda: not any(map(_runs, [drawing, *forks])))


def _forks_of(process: int) -> list[int]:
    """Once all is imported."""

    def forks() -> list[int]:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]

    _wait_until(lambda: len(forks()) == 2)
    return forks()


def _wait_until(it_is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not it_is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(process: int) -> bool:
    """Whether it is there, and no zombie that nobody has waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    return False
