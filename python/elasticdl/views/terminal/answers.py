"""Answers of SQL on a terminal: tables that fit it, and bars.

Owns how they look. Called by `cli.sql`. Must not know statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_NARROW = 12  # A column with less room is left out rather than cut.
_BAR = 40


def print_table(
    console: Console,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    more: bool = False,
) -> None:
    """Print rows; on a terminal columns that have no room are left out, and said so."""
    if not console.is_terminal:
        # A pipe has no width: nothing is cut.
        console.width = 100_000
    texts = [[_text(value) for value in row] for row in rows]
    widths = [
        max([len(name), *(len(row[i]) for row in texts)])
        for i, name in enumerate(names)
    ]
    shown = _fitting(widths, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for i in shown:
        numbers = all(isinstance(row[i], int | float) for row in rows if row)
        table.add_column(
            names[i],
            justify="right" if numbers and rows else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in texts:
        table.add_row(*(Text(row[i]) for i in shown))
    console.print(table)
    left_out = [names[i] for i in range(len(names)) if i not in shown]
    if left_out:
        console.print(f"not shown, for want of room: {', '.join(left_out)}")
    if more:
        console.print(f"... the first {len(rows)} rows")


def _fitting(widths: Sequence[int], room: int) -> list[int]:
    """Return the columns that fit: the first ones, and always the last two.

    Those are what a prediction adds.
    """
    needed = [min(width, _NARROW) + 1 for width in widths]
    if sum(needed) <= room:
        return list(range(len(widths)))
    last = list(range(max(0, len(widths) - 2), len(widths)))
    left = room - sum(needed[i] for i in last)
    first: list[int] = []
    for i in range(len(widths) - len(last)):
        left -= needed[i]
        if left < 0:
            break
        first.append(i)
    return first + last


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())


def print_bars(
    console: Console, title: str, values: Sequence[tuple[str, float]]
) -> None:
    """Print a bar for each value, as long as it is large."""
    console.print(title)
    most = max((abs(value) for _, value in values), default=0.0) or 1.0
    wide = max((len(name) for name, _ in values), default=0)
    room = max(10, min(_BAR, console.width - wide - 12))
    for name, value in values:
        bar = "█" * round(room * max(value, 0.0) / most)
        console.print(f"{name:<{wide}}  {value:>8.4f} {bar}", soft_wrap=True)
