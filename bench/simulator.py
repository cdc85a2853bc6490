"""How long a simulation takes.

Owns the row of the case of twenty jobs; the planner's own rows are in bench/planner.py.
"""

from __future__ import annotations

import time

from elasticdl.simulator.policies import new_policy
from elasticdl.simulator.reading import load_trace
from elasticdl.simulator.simulation import Simulation
from frame import Benchmark, Row, progress, seconds_row

ROUNDS = 3


def twenty_jobs() -> list[Row]:
    """Return the row of 540 s of twenty jobs, with their masters and the planner."""
    trace = load_trace("20-jobs")
    values = []
    for number in range(ROUNDS):
        progress(f"round {number + 1} of {ROUNDS}")
        began = time.perf_counter()
        Simulation(trace, new_policy("elastic")).run()
        values.append(time.perf_counter() - began)
    progress("")
    what = "20 jobs on 133 nodes for 540 s, simulated under elastic"
    return [seconds_row("simulate_20_jobs", what, values, 15.0)]


BENCHMARKS = {"simulator": Benchmark(twenty_jobs, seconds=15)}
