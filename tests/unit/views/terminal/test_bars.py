"""Bars, sparklines and tables that fit."""

from __future__ import annotations

import pytest
from elasticdl.views.terminal.bars import bar, spark, widths
from elasticdl.views.terminal.columns import Column, columns_table
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

COLUMNS = (Column("NAME", 0), Column("LOSS", 2), Column("EMPTY", 9), Column("WHY", 1))
ROWS = [("worker-0", "0.5", "", "its pod waits for a node"), ("名前", "12", "", "x")]


def shown(width: int, **options: int) -> list[str]:
    console = Console(width=200, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(columns_table(COLUMNS, ROWS, width, **options))
    return [line.rstrip() for line in capture.get().splitlines()]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(1, 80))
def test_the_parts_of_a_bar_never_are_wider_than_it(
    parts: list[float], width: int
) -> None:
    shares = [part / (sum(parts) or 1.0) for part in parts]
    cells = widths(shares, width)
    assert sum(cells) == (width if sum(parts) else 0)
    assert all(cell >= 0 for cell in cells)


@pytest.mark.parametrize(
    ("share", "drawn"),
    [
        (0, "····"),
        (0.01, "█···"),
        (0.5, "██··"),
        (0.99, "███·"),
        (1, "████"),
        (3, "████"),
    ],
)
def test_a_bar_is_empty_or_full_only_if_it_is_so(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


def test_a_sparkline_is_the_mean_of_each_part_of_the_time() -> None:
    assert spark([0, 0, 7, 7], 2) == "▁█"
    assert spark([1, 2, 3], 10) == "▁▅█"
    assert spark([3, 3, 3], 10) == "▁▁▁"
    assert spark([3], 10) == ""
    assert spark([1, 2], 1) == ""


def test_columns_are_left_out_before_the_last_one_is_short() -> None:
    assert shown(60) == [
        "NAME      LOSS  WHY",
        "worker-0  0.5   its pod waits for a node",
        "名前      12    x",
    ]
    assert shown(24)[:2] == ["NAME      LOSS  WHY", "worker-0  0.5   its pod…"]
    assert shown(23)[:2] == ["NAME      WHY", "worker-0  its pod wait…"]
    assert shown(8)[:2] == ["NAME", "worker-0"]


@pytest.mark.parametrize("width", range(1, 50))
def test_no_table_is_wider_than_it_may_be(width: int) -> None:
    assert all(Text(line).cell_len <= width for line in shown(width, left_out=1234))


def test_rows_that_are_left_out_are_told() -> None:
    assert shown(60, left_out=7)[-1] == "... 7 more"
