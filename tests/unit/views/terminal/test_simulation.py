"""The table of simulations on a terminal of a hundred columns."""

import io
from dataclasses import replace

from elasticdl.simulator.outcome import Outcome
from elasticdl.views.terminal.simulation import EXPLAINED, WIDTH, outcomes_table
from rich.console import Console

# With the widest figure that any shipped trace has in each column, and wider ones.
WIDE = Outcome(
    trace="serving-wave", policy="elastic", seed=1, jobs=20, seconds=3600.0,
    finished=20, makespan=9876.0, completion=1234.5, first_mean=1117.2,
    first_most=2345.6, never=0, use=1.0, workers=347.2, fairness=0.999,
    below_floor=5432.1, moved=12345, preempted=3, work=1.0, goodput=1.0,
    serving_most=6543.2, serving_late=0, shortfall=0.0, packed=1, fit=1,
)  # fmt: skip


def lines(*outcomes: Outcome, width: int = WIDTH) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(outcomes_table(outcomes, width))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_all_of_it_fits_a_hundred_columns() -> None:
    head, trace, row, other = lines(WIDE, replace(WIDE, policy="gang", never=14))
    assert head.split() == [
        *("TRACE", "USE", "%", "WORKERS", "WAIT", "AT", "MOST", "DONE", "ONE", "JOB"),
        *("FAIR", "MOVED", "GOOD", "BELOW", "SERVING"),
    ]
    assert trace == "serving-wave"
    assert "elastic" in row
    assert "..." not in row
    assert "6543 s" in row
    assert "14 never" in other
    assert max(map(len, [head, row, other, *EXPLAINED.splitlines()])) <= WIDTH


def test_what_does_not_fit_a_small_terminal_is_left_out_whole() -> None:
    head, _, row = lines(WIDE, width=60)
    assert max(len(head), len(row)) <= 60
    assert "WORKERS" not in head
    assert "WAIT" in head
