"""A group on lines of a given rate: overlap, compression, what a newcomer costs.

Owns the networks and sizes. Members are real processes, each in a network namespace. A
newcomer joins members without TensorFlow, with rounds by the master's own rules; so
only the exchange and the copy of the state are measured. It takes Linux and root.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frame import Benchmark, Row, interleaved, progress, ratios, row, seconds_row

from tests.integration.collective.network import Network, impossible
from tests.integration.collective.playing_master import PlayedMaster, settle

MEMBER = Path(__file__).with_name("group_member.py")
RUNS = 3
_FLOATS = 15_000_000  # 60 MB of parameters
_SLOTS = 2  # Adam's
_MEGABITS = 1000
_BEFORE = 10  # steps, which say how long a usual one takes
_STEPS = 5  # of a round, by a pair with TensorFlow
_ROUNDS = 7


def gaps(times: list[tuple[float, int]], members: tuple[int, ...]) -> list[float]:
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
        usual = statistics.median(gaps(master.times[begun:], members))
        since = len(master.times)
        new = master.start()
        master.run_until(lambda: len(master.made[new]) >= 2, seconds=300)
        master.check()
        return max(gaps(master.times[since:], members)), usual


def group_join() -> list[Row]:
    if not _possible("group_join"):
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


@dataclass(frozen=True)
class Variant:
    """How the two members of a group exchange."""

    model: str
    megabits: int
    taps: bool = True
    compression: str = "none"


class Pair:
    """Two members with TensorFlow, each on a line of its own."""

    def __init__(self, network: Network, first: int, variant: Variant) -> None:
        """Start them; `first`: the number of the first one's line."""
        self._members = [self._start(network, first, me, variant) for me in range(2)]
        ports = [self._hear(member)["port"] for member in self._members]
        addresses = {
            me: f"{network.host(first + me)}:{port}" for me, port in enumerate(ports)
        }
        self._say(json.dumps({"members": [0, 1], "addresses": addresses}))
        self.step_bytes = 0.0

    @staticmethod
    def _start(
        network: Network, first: int, me: int, variant: Variant
    ) -> subprocess.Popen[str]:
        line = first + me
        host = network.host(line)
        network.slow(line, megabits=variant.megabits)
        words = [me, variant.model, host, int(variant.taps), variant.compression]
        return subprocess.Popen(
            [*network.command(line), sys.executable, str(MEMBER), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _say(self, line: str) -> None:
        for member in self._members:
            if member.stdin is not None:
                member.stdin.write(line + "\n")
                member.stdin.flush()

    @staticmethod
    def _hear(member: subprocess.Popen[str]) -> dict[str, Any]:
        line = member.stdout.readline() if member.stdout is not None else ""
        said: dict[str, Any] = json.loads(line)
        return said

    def steps(self) -> float:
        """Make steps; return the seconds of one."""
        self._say(str(_STEPS))
        said = [self._hear(member) for member in self._members]
        self.step_bytes = said[0]["bytes"]
        return float(max(one["seconds"] for one in said))

    def end(self) -> None:
        """End both members."""
        for member in self._members:
            member.kill()
            member.wait()


@contextmanager
def _pairs(variants: Mapping[str, Variant]) -> Iterator[dict[str, Pair]]:
    pairs: dict[str, Pair] = {}
    with Network() as network:
        try:
            for number, (name, variant) in enumerate(variants.items()):
                pairs[name] = Pair(network, 2 * number, variant)
            yield pairs
        finally:
            for pair in pairs.values():
                pair.end()


def _compared(
    variants: Mapping[str, Variant],
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the seconds of a step by variant and round, and its bytes."""
    with _pairs(variants) as pairs:
        # The members of the other pair wait meanwhile.
        steps = {name: pair.steps for name, pair in pairs.items()}
        seconds = interleaved(steps, _ROUNDS)
        return seconds, {name: pair.step_bytes for name, pair in pairs.items()}


def _possible(name: str) -> bool:
    if why := impossible():
        print(f"{name}: not measured: {why}", file=sys.stderr)
        return False
    return True


def group_overlap() -> list[Row]:
    """Compare buckets sent during backprop with the same after it."""
    if not _possible("group_overlap"):
        return []
    seconds, _ = _compared(
        {
            "after": Variant("conv", 500, taps=False),
            "during": Variant("conv", 500, taps=True),
        }
    )
    what = (
        "convolutions of 7 MB, 2 members on lines of 0.5 Gbit/s: step with buckets "
        "after backprop / during it"
    )
    found = ratios(seconds["after"], seconds["during"])
    return [row("group_overlap", what, found, 1.2)]


def group_half() -> list[Row]:
    """Compare gradients in bfloat16 with those in float32 on a slow line."""
    if not _possible("group_half"):
        return []
    seconds, sent = _compared(
        {
            "none": Variant("mlp", 200),
            "bfloat16": Variant("mlp", 200, compression="bfloat16"),
        }
    )
    where = "MLP of 23 MB, 2 members on lines of 0.2 Gbit/s"
    found = ratios(seconds["none"], seconds["bfloat16"])
    less = [sent["bfloat16"] / sent["none"]]
    return [
        row("group_half", f"{where}: step with float32 / bfloat16", found, 1.6),
        row("group_half_bytes", f"{where}: bytes of bfloat16 / float32", less, 0.52,
            better="lower"),
    ]  # fmt: skip


BENCHMARKS = {
    "group_join": Benchmark(group_join, seconds=200, short=False),
    "group_overlap": Benchmark(group_overlap, seconds=90, short=False),
    "group_half": Benchmark(group_half, seconds=120, short=False),
}
