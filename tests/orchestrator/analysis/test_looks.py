"""Looks at the same comparisons share the error; pages that were read before seeds were added are looks too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from orchestrator.analysis.looks import Looks, note_look, read_looks


def test_planned_looks_share_five_per_cent_and_early_ones_take_nearly_nothing() -> None:
    looks = Looks((2, 3, 4, 6, 8))
    errors = [looks.error(seeds) for seeds in looks.planned]
    assert sum(errors) == pytest.approx(0.05)
    assert errors == sorted(errors) and errors[0] < 0.001 and errors[-1] > 0.03
    assert errors[1] / errors[0] == pytest.approx((3 / 2) ** 6), "weights grow with the sixth power of the seeds"
    assert Looks((1, 2)).error(1) == pytest.approx(0.05 / (1 + 2**6))
    assert looks.error(5) == errors[3], "between two looks the later one's"
    assert looks.error(9) == errors[-1]


def test_a_single_look_has_it_all() -> None:
    assert Looks().error(3) == Looks((3,)).error(3) == 0.05


def test_an_earlier_page_with_some_of_the_seeds_has_taken_as_much(tmp_path: Path) -> None:
    ledger = tmp_path / "a.mini.looks"
    assert read_looks(ledger, (3,), (1, 2, 3)) == Looks((3,))
    for seeds in ((1, 2, 3), (3, 2, 1), (7, 8), (1, 2, 3, 4)):
        note_look(ledger, seeds)
    assert ledger.read_text().count("\n") == 3, "a page that is made again is no further look"
    assert read_looks(ledger, (5,), (1, 2, 3, 4, 5)).earlier == ((1, 2, 3), (1, 2, 3, 4))
    assert read_looks(ledger, (5,), (1, 2, 3, 4, 5)).error(5) == pytest.approx(0.05 / 3)
    assert read_looks(ledger, (2,), (7, 8)).earlier == (), "other seeds are another sample"


def test_seeds_that_only_the_variants_get_are_looks_too(tmp_path: Path) -> None:
    ledger, six = tmp_path / "a.mini.looks", (1, 2, 3, 4, 5, 6)
    for variants in ((1, 2), (1, 2, 3), (1, 2, 3), six):
        note_look(ledger, six, variants)
    assert ledger.read_text().splitlines() == [
        '{"seeds": [1, 2, 3, 4, 5, 6], "variants": [1, 2]}',
        '{"seeds": [1, 2, 3, 4, 5, 6], "variants": [1, 2, 3]}',
        '{"seeds": [1, 2, 3, 4, 5, 6]}',
    ]
    now = read_looks(ledger, (6,), six, (1, 2, 3, 4))
    assert now.earlier == ((1, 2), (1, 2, 3), six) and now.error(6) == pytest.approx(0.05 / 4)
    assert read_looks(ledger, (6,), six).earlier == ((1, 2), (1, 2, 3)), "the page itself is none"


def test_two_commands_that_note_their_looks_in_the_same_moment_lose_none(tmp_path: Path) -> None:
    ledger = tmp_path / ".sweeps" / "a.mini.looks"
    with ThreadPoolExecutor(1) as other, FileLock(f"{ledger}.lock"):
        noted = other.submit(note_look, ledger, (1, 2))
        with pytest.raises(TimeoutError):
            noted.result(0.2)
        ledger.write_text('{"seeds": [3]}\n')  # by the command that holds the lock
    assert ledger.read_text() == '{"seeds": [3]}\n{"seeds": [1, 2]}\n'


def test_a_damaged_ledger_of_looks_is_named_with_its_line(tmp_path: Path) -> None:
    ledger = tmp_path / "a.mini.looks"
    ledger.write_text('{"seeds": [1, 2]}\n{"seeds": 3}\n')
    with pytest.raises(ValueError, match=r"a\.mini\.looks:2: expected a line such as .* got '\{\"seeds\": 3\}'"):
        read_looks(ledger, (2,), (1, 2))
    ledger.write_text("[1]\n")
    with pytest.raises(ValueError, match=r"a\.mini\.looks:1: expected a line such as "):
        read_looks(ledger, (2,), (1, 2))
    ledger.write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"a\.mini\.looks:1: expected a line such as "):
        read_looks(ledger, (2,), (1, 2))
