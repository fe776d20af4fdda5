"""Numbers rounded by their uncertainty, and text that cannot break a page."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from orchestrator.analysis.effects import Interval
from orchestrator.words import (
    byte_size,
    difference,
    duration,
    escape,
    fenced,
    in_thousands,
    listed,
    number,
    published,
    signed,
    significant,
    spread,
)


@pytest.mark.parametrize(
    ("mean", "deviation", "text"),
    [
        (57.3123, 0.1234, "57.31 ± 0.12"),
        (57.3123, 0.012, "57.31 ± 0.01"),
        (57.3123, 0.0012, "57.312 ± 0.001"),
        (57.3, None, "57.30"),
        (57.3, 0.0, "57.30 ± 0.00"),
        (1234.5, 210.0, "1230 ± 210"),
        (131.72, 3.456, "131.7 ± 3.5"),
        (999_000.4, 210.0, "999000 ± 210"),
        (1.87e8, 110_000.0, "1.87e+08 ± 110000"),
        (2.5e7, 1e6, "2.50e+07 ± 1.00e+06"),
        (9e5, 1.1e6, "900000 ± 1.10e+06"),
        (2.5e7, 0.0, "2.50e+07 ± 0.00"),
        (1e200, math.inf, "1.00e+200 ± ∞"),
        (math.nan, math.nan, "–"),
    ],
)
def test_a_spread_is_rounded_by_its_deviation(mean: float, deviation: float | None, text: str) -> None:
    assert spread(mean, deviation) == text


@pytest.mark.parametrize(
    ("value", "ends", "text"),
    [
        (3.42, (2.9, 3.94), "+3.42 [+2.90, +3.94]"),
        (-0.04, (-12.0, 12.1), "0 [−12, +12]"),
        (4.0, (0.03, 7.97), "+4.0 [+0.03, +8.0]"),
        (4.0, (0.0, 8.0), "+4.0 [above 0, +8.0]"),
        (1.0, (-3.0, math.inf), "+1.0 [−3.0, +∞]"),
        (6860.0, (-10.4, 141_430.0), "+6900 [−10, +141000]"),
        (1801.0, (-3.3, 37_133.0), "+1800 [−3.3, +37000]"),
        (-1801.0, (-37_133.0, 3.3), "−1800 [−37000, +3.3]"),
        (3.0, (1.0, 2000.0), "+3.0 [+1.0, +2000]"),
        (1.5e6, (-2e5, 3.2e6), "+1.50e+06 [−200000, +3.20e+06]"),
        (2e6, (-30.0, 9.2e8), "+2.00e+06 [−30, +9.20e+08]"),
    ],
)
def test_a_difference_never_hides_which_side_of_zero_it_lies(
    value: float, ends: tuple[float, float], text: str
) -> None:
    assert difference(value, Interval(*ends)) == text


def test_what_nobody_reads_ends_nothing() -> None:
    code = "from orchestrator.words import *\nwith may_be_unread():\n for _ in range(999): print_table(['a'], ['b'])"
    reader, writer = os.pipe()
    os.close(reader)
    printed = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (printed.stderr, printed.returncode) == (b"", 0)


def test_zero_has_no_sign() -> None:
    assert [signed(0.001), signed(-0.001), signed(0.0)] == ["0.00"] * 3
    assert number(-3.0) == "−3.00"


def test_significant_digits_of_small_and_large_numbers() -> None:
    assert [significant(value) for value in (0.123456, 5.0, 80.3, 1234.56, 123456.7, -0.5, -0.0, math.inf)] == [
        *("0.1235", "5.000", "80.30", "1,235", "123,457", "−0.5000", "0.000", "∞")
    ]
    assert [significant(value, 3) for value in (99.96, 105.0, 12.34)] == ["100", "105", "12.3"]


def test_bytes_and_large_numbers_have_three_digits_in_any_unit() -> None:
    assert [byte_size(count) for count in (0, 500, 5324.8, 999.4 * 2**10, 1000 * 2**10, 41e6, 3.2e9, 5e12)] == [
        *("0.00 KiB", "0.488 KiB", "5.20 KiB", "999 KiB", "0.977 MiB", "39.1 MiB", "2.98 GiB", "4,657 GiB")
    ]
    assert [in_thousands(count) for count in (5380, 999_400, 999_600, 6e6, 1.234e10)] == [
        *("5.38 K", "999 K", "1.00 M", "6.00 M", "12.3 G")
    ]


def test_published_figures_keep_their_digits() -> None:
    assert [published(60.0), published(57.3), published(56.72), published(None)] == ["60.0", "57.3", "56.72", "–"]


def test_lists_and_durations() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert listed(["a by 5%, with d", "b by 2%"]) == "a by 5%, with d, and b by 2%"
    assert listed(["a (1, 2)", "b (3, 4)"]) == "a (1, 2) and b (3, 4)"
    assert [duration(3.21), duration(90), duration(7200)] == ["3.2 s", "1.5 min", "2.0 h"]


@given(st.text(alphabet=st.sampled_from("ab _*`|\\<>&[]()!#~$@\n\r\t:/.-+1"), max_size=40))
def test_escaped_text_is_read_back_as_itself_from_a_table(text: str) -> None:
    rows = MarkdownIt("commonmark").enable("table").parse(f"| a | b |\n| - | - |\n| {escape(text)} | x |\n")
    cells = [token for token in rows if token.type == "inline"]
    assert len(cells) == 4
    assert {child.type for child in cells[2].children or []} <= {"text", "text_special"}
    assert "".join(child.content for child in cells[2].children or []) == " ".join(text.split())


def test_a_fence_is_longer_than_any_inside() -> None:
    tokens = MarkdownIt().parse(fenced("a\n```\n# b\n````\n", "yaml"))
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == "a\n```\n# b\n````\n"
