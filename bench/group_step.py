"""Steps of a group with TensorFlow, against those of the other strategies.

Owns the members: each is a process with the model of `step`, and makes steps
of records that it has. No master, no tasks: only a step and its exchange are measured.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from elasticdl.collective.group import Group
from elasticdl.collective.links import Door
from elasticdl.collective.messages import Apply, Begin, Compute, Round, Take
from frame import Benchmark, Row, interleaved, ratios, row
from roles import TOKEN
from step import BATCH, definition, example_batch

_STATE_BYTES = 1 << 30
_MEMORY_STEPS = 20
# Where a process happens to lay two models in memory makes up to 4 % between their
# steps, as much as is measured; so several processes, with each of them made first.
_PROCESSES_ALONE = 6
_ROUNDS_ALONE = 5


class Member:
    """A member whose share of each step is one batch."""

    def __init__(
        self,
        me: int,
        model: str,
        *,
        host: str = "127.0.0.1",
        taps: bool = False,
        compression: str = "none",
    ) -> None:
        """Build the model and listen."""
        from elasticdl.collective.encoding import Encoding, GradientForm
        from elasticdl.job.spec.kinds import Compression
        from elasticdl.model.state import non_trainable
        from elasticdl.worker.group.plan import Work
        from elasticdl.worker.group.state import MemberState
        from elasticdl.worker.group.step import GroupStep, ShareBatches

        made = definition(model, "Adam")
        moved = non_trainable(made.model).moved_together
        self._step = GroupStep(made, made.optimizer, moved, skip_nan=False, taps=taps)
        batch = example_batch()
        self._step.trace(batch.features, batch.labels)
        self._share = ShareBatches([batch], BATCH)
        self._state = MemberState(made.model, made.optimizer, self._step.moved)
        self._work = Work()
        self.group = Group(
            me,
            self,
            form=GradientForm(
                self._step.ends,
                Encoding(Compression(compression), self._step.num_gradients),
            ),
            door=Door(TOKEN, host),
            most_state_bytes=_STATE_BYTES,
        )

    def plan(self, step: int) -> bytes:
        """Return no records: each member has its own."""
        del step
        return b""

    def state(self) -> list[memoryview]:
        """Return the whole state."""
        return self._state.copied(self._work, self._step.state_before)

    def step(self) -> None:
        """Make one step."""
        while True:
            match self.group.next(60):
                case Compute(step, plan, number):
                    if self.group.alone(step, number):
                        self._step.alone(self._share)
                        self.group.made_alone(step, plan)
                        return
                    ready = partial(self.group.has_bucket, step, number)
                    self._step.compute(self._share, ready)
                case Apply(_, _, (summed,)):
                    self._step.apply(summed)
                    self.group.applied()
                    return
                case Begin():
                    self.group.began()
                case Take(_, raw):
                    self._state.take(raw)
                    self._step.begin()
                    self.group.applied()


def one_thread() -> None:
    """Give TensorFlow one thread, as each worker has on a machine of few cores."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _peer(me: int, model: str, ports: Any, orders: Any) -> None:
    one_thread()
    member = Member(me, model)
    ports.put((me, member.group.port))
    members, addresses = orders.get()
    if me not in members:
        return
    member.group.enter(Round(1, members, (1,) * len(members), begins=True), addresses)
    while True:
        member.step()


def _alone(model: str, member_first: bool, seconds: Any) -> None:
    """Time one member's steps and strategy local's, in turn."""
    from elasticdl.worker.steps.variable_step import VariableStep

    one_thread()
    batch = example_batch()

    def of_member() -> Callable[[], object]:
        member = Member(0, model)
        member.group.enter(Round(1, (0,), (1,), begins=True), {0: ""})
        return member.step

    def of_local() -> Callable[[], object]:
        made = definition(model, "Adam")
        local = VariableStep(made, optimizer=made.optimizer)
        local.kinds(batch.features, batch.labels)
        return partial(local.apply, batch.features, batch.labels)

    makers = {"ours": of_member, "local": of_local}
    order = list(makers) if member_first else list(makers)[::-1]
    steps = {name: timed_steps(makers[name]()) for name in order}
    seconds.put(interleaved(steps, _ROUNDS_ALONE))


def timed_steps(step: Callable[[], object], count: int = 20) -> Callable[[], float]:
    """Return a variant that makes steps and gives the seconds of one."""

    def run() -> float:
        began = time.perf_counter()
        for _ in range(count):
            step()
        return (time.perf_counter() - began) / count

    return run


def group_1() -> list[Row]:
    """Compare one member with strategy local's own step."""
    rows = []
    for model in ("cnn", "mlp"):
        found = []
        for number in range(_PROCESSES_ALONE):
            context = multiprocessing.get_context("spawn")
            seconds = context.Queue()
            of = (model, number % 2 == 0, seconds)
            process = context.Process(target=_alone, args=of, daemon=True)
            process.start()
            times = seconds.get(timeout=300)
            process.join()
            found += ratios(times["local"], times["ours"])
        what = f"{model.upper()}: step of strategy local / of one member"
        rows.append(row(f"group_1_{model}", what, found, 0.97))
    return rows


@contextmanager
def members(number: int, model: str) -> Iterator[Callable[[], None]]:
    """Give a step of a group: this process leads, the others are its children."""
    context = multiprocessing.get_context("spawn")
    ports, orders = context.Queue(), context.Queue()
    peers = [
        context.Process(target=_peer, args=(me, model, ports, orders), daemon=True)
        for me in range(1, number)
    ]
    for peer in peers:
        peer.start()
    leader = Member(0, model)
    try:
        found = dict(ports.get(timeout=120) for _ in peers)
        addresses = {me: f"127.0.0.1:{port}" for me, port in found.items()}
        addresses[0] = f"127.0.0.1:{leader.group.port}"
        everybody = tuple(range(number))
        for _ in peers:
            orders.put((everybody, addresses))
        entered = Round(1, everybody, (1,) * number, begins=True)
        leader.group.enter(entered, addresses)
        yield leader.step
    finally:
        for peer in peers:
            peer.terminate()
            peer.join()
        leader.group.close()


def _two(model: str, seconds: Any) -> None:
    one_thread()
    with members(1, model) as alone, members(2, model) as pair:
        # The other member waits while this one is alone.
        seconds.put(
            interleaved({"one": timed_steps(alone), "two": timed_steps(pair)}, 11)
        )


def group_2() -> list[Row]:
    """Compare the records a second of two members with those of one."""
    context = multiprocessing.get_context("spawn")
    seconds = context.Queue()
    process = context.Process(target=_two, args=("cnn", seconds))
    process.start()
    times = seconds.get(timeout=300)
    process.join()
    what = "CNN, a thread each: records a second of 2 members / of 1"
    found = [2 * one / two for one, two in zip(times["one"], times["two"], strict=True)]
    return [row("group_2", what, found, 1.6)]


def _memory(grouped: bool, found: Any) -> None:
    """Tell the most memory that a process had while it made steps, and the model's."""
    import psutil
    from elasticdl.worker.steps.variable_step import VariableStep

    one_thread()
    most = size = 0

    def look() -> None:
        nonlocal most
        most = max(most, psutil.Process().memory_info().rss)

    if grouped:
        with members(2, "mlp") as step:
            for _ in range(_MEMORY_STEPS):
                step()
                look()
    else:
        made = definition("mlp", "Adam")
        size = sum(int(np.prod(v.shape)) * 4 for v in made.model.trainable_variables)
        local = VariableStep(made, optimizer=made.optimizer)
        batch = example_batch()
        local.kinds(batch.features, batch.labels)
        for _ in range(_MEMORY_STEPS):
            local.apply(batch.features, batch.labels)
            look()
    found.put((most, size))


def group_memory() -> list[Row]:
    """Compare the memory of a member with that of strategy local's worker."""
    context = multiprocessing.get_context("spawn")
    more = []
    for _ in range(3):
        had, sizes = {}, []
        for grouped in (False, True):
            found = context.Queue()
            process = context.Process(target=_memory, args=(grouped, found))
            process.start()
            had[grouped], size = found.get(timeout=300)
            sizes.append(size)
            process.join()
        more.append((had[True] - had[False]) / max(sizes))
    what = "MLP of 23 MB: memory of one of 2 members over strategy local's / parameters"
    return [row("group_memory", what, more, 3.5, better="lower")]


BENCHMARKS = {
    "group_1": Benchmark(group_1, 195, short=False),
    "group_2": Benchmark(group_2, 40, short=False),
    "group_memory": Benchmark(group_memory, 60, short=False),
}
