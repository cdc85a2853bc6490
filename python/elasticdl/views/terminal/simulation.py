"""What simulations came to, as one table.

Owns its columns. Called by the verb `simulate`. Must not run anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from elasticdl.simulator.outcome import Outcome
from elasticdl.views import formatting as text
from elasticdl.views.terminal.columns import Column, columns_table

# The word that the page has too.
_COLUMNS = (
    Column("TRACE", 0),
    Column("POLICY", 0),
    Column("USE", 0),
    Column("WORKERS", 2),
    Column("FIRST WORKER", 0),
    Column("AT MOST", 1),
    Column("NEVER", 1),
    Column("ALL DONE", 1),
    Column("ONE JOB", 1),
    Column("FAIR", 2),
    Column("MOVED", 3),
    Column("GOODPUT", 4),
    Column("BELOW MIN", 3),
    Column("SERVING", 2),
)
EXPLAINED = (
    "use: share of CPU (of GPUs where jobs ask for them) that pods hold. workers: "
    "mean. first worker: from a job's coming, mean.\n"
    "all done: the last job. one job: mean from coming to end. fair: least of Jain's "
    "index, at rest. moved: workers that left or\n"
    "were pushed out. goodput: share of workers' time in training. below min: seconds, "
    "all jobs. serving: longest until complete."
)


def outcomes_table(outcomes: Sequence[Outcome], width: int) -> Table:
    """Return one row for each trace and policy."""
    rows: list[list[str | Text]] = []
    before = ""
    for one in outcomes:
        name = "" if one.trace == before else one.trace
        before = one.trace
        bold = "bold" if one.policy == "elastic" else ""
        rows.append([Text(name, "bold"), *(Text(cell, bold) for cell in _cells(one))])
    return columns_table(_COLUMNS, rows, width)


def _cells(one: Outcome) -> list[str]:
    return [
        one.policy,
        f"{100 * one.use:.1f} %",
        f"{one.workers:.0f}",
        _seconds(one.first_mean),
        _seconds(one.first_most),
        f"{one.never} of {one.jobs}" if one.never else "",
        _seconds(one.makespan),
        _seconds(one.completion),
        "" if one.fairness is None else f"{one.fairness:.3f}",
        str(one.moved) if one.moved else "0",
        "" if one.goodput is None else f"{100 * one.goodput:.0f} %",
        _seconds(one.below_floor) if one.below_floor >= 0.05 else "0 s",
        _serving(one),
    ]


def _serving(one: Outcome) -> str:
    if one.serving_late:
        return "never"
    return _seconds(one.serving_most)


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f} s" if value < 100 else text.duration(value)
