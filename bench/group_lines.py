"""Bytes and seconds of a group's step by size of the model, members and line.

    python bench/group_lines.py

Prints the table of docs/allreduce.md. Members are real processes without TensorFlow,
each on a line of its own: a step is the exchange alone. It takes Linux and root.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from group_network import gaps

from tests.integration.collective.network import Network, impossible
from tests.integration.collective.playing_master import PlayedMaster, settle

MEGABYTES = (1, 10, 60)
MEMBERS = (2, 3, 4)
# Of each member's line; None: a line as fast as the machine.
MEGABITS = (None, 1000, 200)
_MOST_STEPS = 10
_MOST_SECONDS = 6.0  # about, for one figure


def seconds_of_step(megabytes: int, members: int, megabits: int | None) -> float:
    """Return the median time between two steps of a member."""
    with (
        Network() as network,
        PlayedMaster(megabytes * 250_000, network=network) as master,
    ):
        for member in range(members):
            network.host(member)
            if megabits is not None:
                network.slow(member, megabits=megabits)
        for _ in range(members):
            master.start()
        master.run_until(
            lambda: master.formed and len(master.formed.round.members) == members,
            seconds=120,
        )
        settle(master, more=2)
        line = sent(megabytes, members) * 8 / (megabits or 10_000)
        more = max(2, min(_MOST_STEPS, int(_MOST_SECONDS / line)))
        everybody = master.formed.round.members if master.formed else ()
        since = len(master.times)
        settle(master, more=more)
        master.check()
        return statistics.median(gaps(master.times[since:], everybody))


def sent(megabytes: int, members: int) -> float:
    """Return the megabytes that a member sends in a step, and receives."""
    return 2 * (members - 1) / members * megabytes


def main() -> int:
    """Measure and print."""
    why = impossible()
    if why:
        print(why, file=sys.stderr)
        return 1
    lines = [f"{m} Mbit/s" if m else "this machine's" for m in MEGABITS]
    print("| gradients | workers | sent and received by each |", " | ".join(lines), "|")
    print("|" + "---|" * (3 + len(lines)))
    for megabytes in MEGABYTES:
        for members in MEMBERS:
            cells = [
                f"{1000 * seconds_of_step(megabytes, members, line):.0f} ms"
                for line in MEGABITS
            ]
            size = f"{sent(megabytes, members):.3g} MB"
            print("|", f"{megabytes} MB | {members} | {size} |", " | ".join(cells), "|")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
