"""Tables one line a row that fit a width: columns are left out, the last one is cut.

Owns that layout. Called by the full-screen views. Must not know what the cells say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

_GAP = 2  # Cells between two columns.


@dataclass(frozen=True)
class Column:
    """A column's head and rank: columns of the highest rank are dropped first."""

    head: str
    rank: int
    least: int = 8  # cells of the last one, as far as it needs them


def columns_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Text]],
    width: int,
    *,
    left_out: int = 0,
) -> Table:
    """Return a table of at most `width` cells.

    Columns are as wide as their cells; those that are empty are left out.
    `left_out`: how many rows are not among them, told in a line of its own.
    """
    cells = [
        [one if isinstance(one, Text) else Text(one) for one in row] for row in rows
    ]
    needs = [
        max([0, *(row[number].cell_len for row in cells)])
        for number in range(len(columns))
    ]
    more = f"... {left_out} more" if left_out else ""
    needs[0] = max(needs[0], len(more))
    kept = [number for number, need in enumerate(needs) if need]
    needs = [max(need, len(columns[n].head)) for n, need in enumerate(needs)]
    least = min(needs[-1], columns[-1].least)
    while len(kept) > 1 and _width([*needs[:-1], least], kept) > width:
        kept.remove(max(kept, key=lambda number: columns[number].rank))
    table = Table(
        box=None, pad_edge=False, header_style="bold dim", padding=(0, _GAP, 0, 0)
    )
    taken = sum(needs[number] + _GAP for number in kept[:-1])
    for number in kept:
        last = number == kept[-1]
        table.add_column(
            columns[number].head,
            width=max(1, min(needs[number], width - taken)) if last else needs[number],
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in cells:
        table.add_row(*(row[number] for number in kept))
    if more:
        table.add_row(Text(more, "dim"))
    return table


def _width(needs: Sequence[int], kept: Sequence[int]) -> int:
    return sum(needs[number] + _GAP for number in kept) - _GAP
