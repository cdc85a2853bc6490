"""The exchange of a group, against TensorFlow's own ring of the same bytes.

Owns the baseline: `MultiWorkerMirroredStrategy` with the RING implementation, which
sums one tensor over processes that talk gRPC.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from elasticdl.collective.messages import Round
from frame import Benchmark, Row, interleaved, ratios, row
from group import member_of, stepper

_FLOATS = 2_500_000  # 10 MB
_STEPS = 10
_ROUNDS = 9


def _answer(pipe: Connection, step: Callable[[], object]) -> None:
    """Make as many steps as are asked for, until nobody asks."""
    while True:
        try:
            count = pipe.recv()
        except EOFError:
            return
        began = time.perf_counter()
        for _ in range(count):
            step()
        pipe.send((time.perf_counter() - began) / count)


def _ours(me: int, pipe: Connection) -> None:
    group = member_of(me, _FLOATS)
    pipe.send(group.port)
    members, ports = pipe.recv()
    addresses = {number: f"127.0.0.1:{port}" for number, port in enumerate(ports)}
    group.enter(Round(1, members, (1,) * len(members), begins=True), addresses)
    _answer(pipe, stepper(group, _FLOATS))


def _theirs(me: int, pipe: Connection) -> None:
    import tensorflow as tf

    with socket.create_server(("127.0.0.1", 0)) as free:
        pipe.send(free.getsockname()[1])
    members, ports = pipe.recv()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cluster = {"worker": [f"127.0.0.1:{ports[member]}" for member in members]}
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="worker", task_id=me
        ),
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        ),
    )
    gradient = tf.constant(np.ones(_FLOATS, np.float32))

    def reduced() -> Any:
        context: Any = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, gradient)

    @tf.function
    def step() -> Any:
        return strategy.run(reduced)

    if not np.allclose(step().numpy()[:2], len(members)):
        raise RuntimeError("TensorFlow's ring gave another sum")
    _answer(pipe, lambda: step().numpy())


@contextmanager
def _processes(
    target: Callable[[int, Connection], None], number: int
) -> Iterator[Callable[[], float]]:
    """Give a call that has so many processes make steps; it returns one's seconds."""
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for me in range(number):
        mine, theirs = context.Pipe()
        child = context.Process(target=target, args=(me, theirs), daemon=True)
        child.start()
        pipes.append(mine)
        children.append(child)
    try:
        ports = [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send((tuple(range(number)), ports))

        def steps() -> float:
            for pipe in pipes:
                pipe.send(_STEPS)
            return float(max(pipe.recv() for pipe in pipes))

        yield steps
    finally:
        for child in children:
            child.kill()
            child.join()


def exchange_tf() -> list[Row]:
    """Compare a step's exchange with TensorFlow's ring, of two and of four."""
    rows = []
    for number in (2, 4):
        with ExitStack() as running:
            seconds = interleaved(
                {
                    name: running.enter_context(_processes(target, number))
                    for name, target in (("tf", _theirs), ("ours", _ours))
                },
                _ROUNDS,
            )
        what = f"sum of 10 MB over {number} processes: TensorFlow's RING / ours"
        found = ratios(seconds["tf"], seconds["ours"])
        rows.append(row(f"exchange_tf_{number}", what, found, 3.0))
    return rows


BENCHMARKS = {"exchange_tf": Benchmark(exchange_tf, seconds=90, short=False)}
