"""A member of a group as a program of its own, which a network namespace takes.

    python bench/group_member.py ME MODEL HOST TAPS COMPRESSION

Writes its port, reads who is in the round, and then numbers of steps: it makes these,
and writes how long one took and what it sent for it. A line of JSON each.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main(me: int, model: str, host: str, *, taps: bool, compression: str) -> None:
    """Make steps as they are asked for."""
    import tensorflow as tf
    from elasticdl.collective.messages import Round
    from group_step import Member

    tf.config.threading.set_intra_op_parallelism_threads(1)
    # Taps in the graph need a second one.
    tf.config.threading.set_inter_op_parallelism_threads(2)
    member = Member(me, model, host=host, taps=taps, compression=compression)
    _say(port=member.group.port)
    asked = json.loads(sys.stdin.readline())
    members = tuple(asked["members"])
    addresses = {int(number): at for number, at in asked["addresses"].items()}
    entered = Round(1, members, (1,) * len(members), begins=True)
    member.group.enter(entered, addresses)
    for line in sys.stdin:
        count, sent = int(line), member.group.sent_bytes
        began = time.perf_counter()
        for _ in range(count):
            member.step()
        seconds = (time.perf_counter() - began) / count
        _say(seconds=seconds, bytes=(member.group.sent_bytes - sent) / count)


def _say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    number, net, address, overlaps, sent_as = sys.argv[1:]
    main(int(number), net, address, taps=overlaps == "1", compression=sent_as)
