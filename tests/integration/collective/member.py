"""A member of a group without TensorFlow: rounds come on standard input, words go out.

The state is an array and a position; a step adds a gradient that its records decide, so
that members that made the same steps are equal to the last bit.
"""

from __future__ import annotations

import json
import sys
import threading
import zlib

import numpy as np
from elasticdl.collective.encoding import GradientForm
from elasticdl.collective.group import Group
from elasticdl.collective.lent_vectors import Vectors
from elasticdl.collective.links import Door
from elasticdl.collective.messages import (
    Acknowledge,
    Apply,
    Begin,
    Broken,
    Compute,
    Follow,
    Round,
    Stateless,
    Take,
)

RECORDS = 16


class State:
    """Values, and how many records they are of; and what an optimizer has beside them.

    `slots`: arrays as large as the values, which are part of the state and stay zero.
    """

    def __init__(self, size: int, slots: int) -> None:
        self.values = np.zeros(size, np.float32)
        self.slots = np.zeros(slots * size, np.float32)
        self.position = np.zeros(1, np.int64)

    def plan(self, step: int) -> bytes:
        del step
        return str(int(self.position[0])).encode()

    def state(self):
        # A copy: the values change in their place.
        return [self.position.tobytes(), self.values.tobytes(), self.slots.tobytes()]

    def take(self, raw: bytearray) -> None:
        self.position[:] = np.frombuffer(raw, np.int64, 1)
        size = len(self.values)
        self.values[:] = np.frombuffer(raw, np.float32, size, offset=8)
        self.slots[:] = np.frombuffer(raw, np.float32, offset=8 + 4 * size)


def main(
    index: int, size: int, pause: float, host: str, slots: int, *, lends: bool
) -> None:
    state = State(size, slots)
    vectors = Vectors(lends=lends)
    in_turn = [vectors.new(size) for _ in range(2 if vectors.lends else 1)]
    group = Group(
        index,
        state,
        door=Door("secret", host, vectors=vectors),
        most_state_bytes=1 << 30,
        form=GradientForm((size // 2, size)),
    )
    rounds: dict[int, Round] = {}

    saying = threading.Lock()

    def say(**word) -> None:
        with saying:
            print(json.dumps(word), flush=True)

    def listen() -> None:
        for line in sys.stdin:
            word = json.loads(line)
            entered = Round(
                word["number"],
                tuple(word["members"]),
                tuple(word["since"]),
                word["begins"],
            )
            rounds[entered.number] = entered
            addresses = {int(k): v for k, v in word["addresses"].items()}
            if index in entered.members:
                group.enter(entered, addresses)
            else:
                group.listen(entered, addresses)

    wait = threading.Event()
    say(port=group.port)
    threading.Thread(target=listen, daemon=True).start()
    copied = False
    while True:
        if group.copied != copied:
            copied = group.copied
            say(copied=copied)
        match group.next(0.02):
            case Compute(step, plan, number):
                entered = rounds.get(number)
                if entered is None:
                    continue
                if pause:
                    wait.wait(pause)
                rank = entered.members.index(index)
                first = int(plan)
                gradient = in_turn[step % len(in_turn)]
                vectors.rewrite(gradient)
                gradient[:] = 0
                for record in range(first, first + RECORDS)[
                    rank :: len(entered.members)
                ]:
                    gradient[record % size :: 1000] += np.float32(1 / (record + 1))
                group.has_bucket(step, number, 0, gradient)
                if pause:
                    wait.wait(pause)
                group.has_bucket(step, number, 1, gradient)
            case Apply(step, plan, (reduced,)):
                state.values += reduced
                state.position += RECORDS
                say(made=step, first=int(plan), digest=zlib.crc32(state.values))
                group.applied()
            case Follow(step, plan, (reduced,)):
                state.values += reduced
                state.position += RECORDS
                # Perhaps a step that only its sponsor made, which is lost then.
                say(followed=step)
                group.applied()
            case Begin():
                say(took=0, digest=zlib.crc32(state.values))
                group.began()
            case Take(version, raw):
                state.take(raw)
                say(took=version, digest=zlib.crc32(state.values))
                group.applied()
            case Acknowledge(step, plan):
                say(acknowledged=step, first=int(plan))
            case Broken(number, member):
                say(broken=number, lost=member)
            case Stateless(number):
                say(stateless=number)


if __name__ == "__main__":
    number, floats, seconds, address, times, lent = sys.argv[1:]
    main(
        int(number),
        int(floats),
        float(seconds),
        address,
        int(times),
        lends=lent == "1",
    )
