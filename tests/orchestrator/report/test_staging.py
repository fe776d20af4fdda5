"""The files of a report take the place of the earlier ones when all of them are written."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from lm.files import WriteError
from tests.support import golden
from tests.support.factories import make_trial, settle
from tests.support.pages import NoArtist, write


class FullDisk(NoArtist):
    """The disk is full when the page is written half."""

    def draw(self, path: Path, *_: object) -> None:
        raise WriteError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    folder = golden.make(tmp_path)
    before = files(folder)
    settle(tmp_path / "runs", make_trial("full", 1, batch_size=20, change="change 0 | of `all`"), 99.0)
    with pytest.raises(WriteError) as error:
        write(tmp_path, [make_trial("full", 1)], artist=FullDisk())
    assert error.value.filename == str(folder / "overview.svg")
    assert files(folder) == before


def test_a_folder_in_the_place_of_a_file_is_seen_before_anything_moves(tmp_path: Path) -> None:
    folder = golden.make(tmp_path)
    (folder / "table.csv").unlink()
    before = files(folder)
    (folder / "table.csv").mkdir()
    with pytest.raises(WriteError, match="Is a directory") as error:
        write(tmp_path, [make_trial("full", 1)])
    assert error.value.filename == str(folder / "table.csv")
    (folder / "table.csv").rmdir()
    assert files(folder) == before


def test_files_that_only_the_earlier_report_has_are_removed(tmp_path: Path) -> None:
    folder = golden.make(tmp_path)
    (folder / "notes.txt").write_text("mine")
    assert (folder / "interactions.csv").exists()
    write(tmp_path, [make_trial("full", 1)])
    left = set(files(folder))
    assert "interactions.csv" not in left and {"notes.txt", "report.md", "summary.json"} <= left


def test_a_summary_names_no_file_outside_its_folder(tmp_path: Path) -> None:
    folder = golden.make(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    summary = folder / "summary.json"
    summary.write_text(summary.read_text(encoding="utf-8").replace('"interactions.csv"', '"../mine.txt"'))
    write(tmp_path, [make_trial("full", 1)])
    assert (tmp_path / "mine.txt").exists()


def test_what_a_killed_writer_left_is_removed_and_what_another_writes_is_not(tmp_path: Path) -> None:
    folder = golden.make(tmp_path)
    for name, hours in ((".1.tmp", 2), (".2.tmp", 0)):
        (folder / name).mkdir()
        (folder / name / "report.md").write_text("half")
        os.utime(folder / name, (time.time() - 3600 * hours,) * 2)
    write(tmp_path, [make_trial("full", 1)])
    assert [path.name for path in folder.glob(".*")] == [".2.tmp"]
