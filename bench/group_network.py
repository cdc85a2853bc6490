"""A group on lines of a given rate: what a newcomer costs the others.

Owns the networks and sizes. Members are real processes without TensorFlow, each in a
network namespace, with rounds by the master's own rules; so only the exchange and the
copy of the state are measured. It takes Linux and root.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict

from frame import Benchmark, Row, progress, seconds_row

from tests.integration.collective.network import Network, impossible
from tests.integration.collective.playing_master import PlayedMaster, settle

RUNS = 3
_FLOATS = 15_000_000  # 60 MB of parameters
_SLOTS = 2  # Adam's
_MEGABITS = 1000
_BEFORE = 10  # steps, which say how long a usual one takes


def _gaps(times: list[tuple[float, int]], members: tuple[int, ...]) -> list[float]:
    """Return the seconds between two steps of each of these members."""
    by_member: dict[int, list[float]] = defaultdict(list)
    for at, member in times:
        by_member[member].append(at)
    return [
        after - before
        for member in members
        for before, after in zip(by_member[member], by_member[member][1:], strict=False)
    ]


def _join() -> tuple[float, float]:
    """Return the longest pause of two members while a third joins, and a usual step."""
    with (
        Network() as network,
        PlayedMaster(_FLOATS, slots=_SLOTS, network=network) as master,
    ):
        for member in range(3):
            network.host(member)
            network.slow(member, megabits=_MEGABITS)
        for _ in range(2):
            master.start()
        master.run_until(
            lambda: master.formed and len(master.formed.round.members) == 2, seconds=120
        )
        settle(master)
        members = master.formed.round.members if master.formed else ()
        begun = len(master.times)
        settle(master, more=_BEFORE)
        usual = statistics.median(_gaps(master.times[begun:], members))
        since = len(master.times)
        new = master.start()
        master.run_until(lambda: len(master.made[new]) >= 2, seconds=300)
        master.check()
        return max(_gaps(master.times[since:], members)), usual


def group_join() -> list[Row]:
    if why := impossible():
        print(f"group_join: not measured: {why}", file=sys.stderr)
        return []
    pauses, steps = [], []
    for number in range(RUNS):
        began = time.monotonic()
        pause, usual = _join()
        pauses.append(max(0.0, pause - 2 * usual))
        steps.append(usual)
        progress(f"run {number + 1} of {RUNS}: {time.monotonic() - began:.0f} s")
    progress("")
    what = (
        "60 MB of parameters with Adam, 2 members on lines of 1 Gbit/s: longest time "
        "between two steps while a third one joins, less two usual steps "
        f"(each {statistics.median(steps):.2f} s)"
    )
    return [seconds_row("group_join", what, pauses, 0.5)]


BENCHMARKS = {"group_join": Benchmark(group_join, seconds=200, short=False)}
