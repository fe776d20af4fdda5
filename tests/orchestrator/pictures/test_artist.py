"""The process that draws: what it raises is raised here, and it neither outlives us nor is missed for long."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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
    os.kill(killed._process.pid, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="the process that draws pictures ended with exit code -9"):
        killed.draw(tmp_path, FOREST).result()
    with Pictures(tmp_path) as pictures:
        pictures.draw("forest", FOREST)
        assert pictures.sentences() == {"forest": None}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_process_ends_with_ours(how: signal.Signals) -> None:
    code = (
        "import signal, time; from orchestrator.pictures import artist; artist.prepare(); "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "print(artist._artist()._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ours:
        assert ours.stdout is not None
        drawing = int(ours.stdout.readline())
        ours.send_signal(how)
    end = time.monotonic() + 20
    while _runs(drawing):
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(process: int) -> bool:
    """Whether it is there, and no zombie that nobody has waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    return False
