"""The exchange of a group of two, against a raw exchange of the same bytes.

Owns the baseline: two processes that send each other as many bytes as a step's gradient
has, both ways at once, over plain sockets. One direction alone is no fair measure: each
value of a step travels both ways.

Where the system puts the threads of two processes decides as much as the code, and
stays so while they live. So several pairs are measured, and beside them pairs of
processes with a core each (`_apart`), as members on two machines have.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from elasticdl.collective.encoding import GradientForm
from elasticdl.collective.group import Group
from elasticdl.collective.links import Door
from elasticdl.collective.messages import Apply, Begin, Compute, Round, Take
from frame import Benchmark, Row, interleaved, ratios, row, timed
from roles import TOKEN

MEMBERS = (0, 1)
_PAIRS = 9
_PAIRS_APART = 3


class Nothing:
    """A member without a plan and a state: only the exchange is measured."""

    def plan(self, step: int) -> bytes:
        """Return no records."""
        del step
        return b""

    def state(self) -> list[memoryview]:
        """Return an empty state."""
        return [memoryview(b"")]


def member_of(me: int, floats: int) -> Group:
    """Return a member whose gradient has so many floats."""
    return Group(
        me,
        Nothing(),
        form=GradientForm((floats,)),
        door=Door(TOKEN),
        most_state_bytes=1 << 20,
    )


def stepper(group: Group, floats: int) -> Callable[[], None]:
    """Return a call that makes one step: hands a gradient in, and gets the sum."""
    gradient = np.ones(floats, np.float32)

    def step() -> None:
        while True:
            match group.next(60):
                case Compute(step, _, number):
                    group.computed(step, number, gradient)
                case Apply():
                    group.applied()
                    return
                case Take():
                    group.applied()
                case Begin():
                    group.began()

    return step


class Raw:
    """Sends and receives at once; its sending thread lives as long as it does."""

    def __init__(self, connection: socket.socket, floats: int) -> None:
        """Take a connection, and how much goes each way."""
        self._connection = connection
        self._mine, self._theirs = (memoryview(bytearray(4 * floats)) for _ in range(2))
        self._orders: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._sent: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()

    def exchange(self) -> None:
        """Exchange once."""
        self._orders.put(None)
        at = 0
        while at < len(self._theirs):
            at += self._connection.recv_into(self._theirs[at:])
        self._sent.get()

    def _send(self) -> None:
        while True:
            self._orders.get()
            self._connection.sendall(self._mine)
            self._sent.put(None)


def _cores() -> list[set[int]]:
    """Return on which cores each of two processes runs."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    return [{core} for core in allowed[:2]] if len(allowed) > 1 else []


@contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    """Have this thread, and those that it starts, run on some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _peer(floats: int, ports: Any, orders: Any, cores: set[int] | None) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
    listener = socket.create_server(("127.0.0.1", 0))
    group = member_of(1, floats)
    ports.put((listener.getsockname(), group.port))
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw = Raw(connection, floats)
    group.enter(Round(1, MEMBERS, (1, 1), begins=True), orders.get())
    step = stepper(group, floats)

    def steps() -> None:
        while True:
            step()

    threading.Thread(target=steps, daemon=True).start()
    while connection.recv(1):
        raw.exchange()


@contextmanager
def pair(
    floats: int, *, apart: bool = False
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Give one step of a group of two, and one raw exchange, with another process.

    `apart`: each process has a core of its own, where there are two.
    """
    mine, theirs = (_cores() if apart else None) or (None, None)
    with _on(mine) if mine else nullcontext():
        yield from _pair(floats, theirs)


def _pair(
    floats: int, cores: set[int] | None
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    context = multiprocessing.get_context("spawn")
    ports, orders = context.Queue(), context.Queue()
    process = context.Process(
        target=_peer, args=(floats, ports, orders, cores), daemon=True
    )
    process.start()
    group = member_of(0, floats)
    try:
        plain, port = ports.get(timeout=60)
        addresses = {0: f"127.0.0.1:{group.port}", 1: f"127.0.0.1:{port}"}
        with socket.create_connection(plain) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            orders.put(addresses)
            group.enter(Round(1, MEMBERS, (1, 1), begins=True), addresses)
            raw = Raw(connection, floats)

            def exchange() -> None:
                connection.sendall(b"?")
                raw.exchange()

            yield stepper(group, floats), exchange
    finally:
        process.terminate()
        process.join()
        group.close()


def _compared(name: str, megabytes: int, bar: float) -> list[Row]:
    what = f"{megabytes} MB between 2 processes: raw, both ways / a step of a group"
    together = _prices(megabytes, _PAIRS, apart=False)
    rows = [row(name, what, together, bar)]
    if _cores():
        apart = _prices(megabytes, _PAIRS_APART, apart=True)
        rows.append(row(f"{name}_apart", f"{what}, a core each", apart, bar))
    return rows


def _prices(megabytes: int, pairs: int, *, apart: bool) -> list[float]:
    found = []
    for _ in range(pairs):
        with pair(megabytes * 250_000, apart=apart) as (step, raw):
            times = interleaved({"ours": timed(step, 5), "raw": timed(raw, 5)}, 15)
        found += ratios(times["raw"], times["ours"])
    return found


def exchange_10mb() -> list[Row]:
    """Compare a step of 10 MB with a raw exchange."""
    return _compared("exchange_10mb", 10, 0.6)


def exchange_1mb() -> list[Row]:
    """Compare a step of 1 MB with a raw exchange."""
    return _compared("exchange_1mb", 1, 0.45)


BENCHMARKS = {
    "exchange_10mb": Benchmark(exchange_10mb, 25, short=False),
    "exchange_1mb": Benchmark(exchange_1mb, 12, short=False),
}
