"""What simulations came to, as one table.

Owns its columns. Called by the verb `simulate`. Must not run anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from elasticdl.simulator.outcome import Outcome
from elasticdl.views.terminal.columns import Column, columns_table

WIDTH = 100  # cells, where nobody says how many there are
# Under the name of a trace the policies.
_COLUMNS = (
    Column("TRACE", 0),
    Column("USE %", 0),
    Column("WORKERS", 5),
    Column("WAIT", 0),
    Column("AT MOST", 1),
    Column("DONE", 1),
    Column("ONE JOB", 1),
    Column("FAIR", 2),
    Column("MOVED", 3),
    Column("GOOD", 4),
    Column("BELOW", 3),
    Column("SERVING", 2),
)
EXPLAINED = """\
use: CPU (GPUs where jobs ask for them) that pods hold. workers: mean. wait: until a
job's first worker runs, mean and longest. done: the last job. one job: mean from coming
to end. fair: least of Jain's index, at rest. moved: workers that left or were pushed
out. good: goodput, share of workers' time in training. below: seconds below min, all
jobs. serving: longest until complete."""


def outcomes_table(outcomes: Sequence[Outcome], width: int) -> Table:
    """Return a line for each trace, and below it a row for each policy."""
    rows: list[list[str | Text]] = []
    before = ""
    for one in outcomes:
        if one.trace != before:
            rows.append([Text(one.trace, "bold"), *("" for _ in _COLUMNS[1:])])
        before = one.trace
        style = "bold" if one.policy == "elastic" else ""
        rows.append([Text(cell, style) for cell in _cells(one)])
    return columns_table(_COLUMNS, rows, width)


def _cells(one: Outcome) -> list[str]:
    return [
        f"  {one.policy}",
        f"{100 * one.use:.1f}",
        f"{one.workers:.0f}",
        _seconds(one.first_mean),
        # A wait that did not end is longer than any that did.
        f"{one.never} never" if one.never else _seconds(one.first_most),
        _seconds(one.makespan),
        _seconds(one.completion),
        "" if one.fairness is None else f"{one.fairness:.3f}",
        str(one.moved) if one.moved else "0",
        "" if one.goodput is None else f"{100 * one.goodput:.0f}%",
        _seconds(one.below_floor) if one.below_floor >= 0.05 else "0 s",
        "never" if one.serving_late else _seconds(one.serving_most),
    ]


def _seconds(value: float | None) -> str:
    """Return a time in six cells: policies are easier to compare in one unit."""
    if value is None:
        return ""
    if value < 99.95:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 9999.5 else f"{value / 3600:.1f} h"
