"""Push of the last gradients and pull of the next values, beside the step.

Owns the transfer thread and the two arenas that take turns: while a step reads one, the
other is filled. Called by the PS trainer: start, step, finish. Must not import
TensorFlow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Protocol

from elasticdl.rpc.ps.tensors import Gradients, Pushed, PushOrder
from elasticdl.worker.ps.clipping import Clipping
from elasticdl.worker.ps.link import PsLink
from elasticdl.worker.steps.packing import (
    Arena,
    Floats,
    Gradient,
    pack_dense,
    pack_rows,
    scatter,
)

# How often the waiting thread says that it is alive.
ALIVE_SECONDS = 0.5


class Observer(Protocol):
    """Receiver of call durations (a Prometheus histogram)."""

    def observe(self, amount: float) -> None:
        """Take one more duration, in seconds."""


@dataclass(frozen=True)
class Exchange:
    """What is sent to the PS after a step."""

    gradients: list[Gradient]
    order: PushOrder


@dataclass(frozen=True)
class Exchanged:
    """What came back from the PS."""

    pushed: Pushed
    arena: Arena | None  # filled with the values after the push


class Transfer:
    """One exchange with the PS at a time; used by one thread."""

    def __init__(
        self,
        link: PsLink,
        *,
        pull_seconds: Observer,
        push_seconds: Observer,
        convert_seconds: Observer,
        on_wait: Callable[[], None],
        clipping: Clipping | None = None,
    ) -> None:
        """Allocate the arenas.

        Args:
            link: The PS.
            pull_seconds: Told of each pull.
            push_seconds: Told of each push.
            convert_seconds: Told of each packing and unpacking.
            on_wait: Called now and then while `finish` waits.
            clipping: What no PS can clip.
        """
        self._link = link
        self._layout = link.layout
        self._pull_seconds = pull_seconds
        self._push_seconds = push_seconds
        self._convert_seconds = convert_seconds
        self._on_wait = on_wait
        self._clipping = clipping or Clipping()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="transfer")
        self._free = [Arena.of(link.layout), Arena.of(link.layout)]
        self._pending: Future[Exchanged] | None = None

    @property
    def under_way(self) -> bool:
        """Whether an exchange is in progress."""
        return self._pending is not None

    def pull(self) -> Arena:
        """Pull now; the previous arena may be overwritten by the next pull but one."""
        start = time.perf_counter()
        pulled = self._link.pull()
        self._pull_seconds.observe(time.perf_counter() - start)
        return self._fill(*pulled)

    def _fill(self, buffers: list[Floats], versions: list[int]) -> Arena:
        start = time.perf_counter()
        arena = self._free.pop(0)
        self._free.append(arena)
        scatter(self._layout, buffers, arena)
        arena.version, arena.versions = versions[0], versions
        arena.state = self._link.state
        self._convert_seconds.observe(time.perf_counter() - start)
        return arena

    def start(self, exchange: Exchange) -> None:
        """Start an exchange; the one before must be finished."""
        self._pending = self._pool.submit(self._run, exchange)

    def finish(self) -> Exchanged:
        """Wait for the exchange; raise its error."""
        pending, self._pending = self._pending, None
        if pending is None:
            raise RuntimeError("no exchange was started")
        try:
            while True:
                try:
                    return pending.result(timeout=ALIVE_SECONDS)
                except FutureTimeoutError:
                    if pending.done():
                        raise  # a time-out of its own
                    self._on_wait()
        finally:
            # What it raised keeps this frame, which would keep what was raised: a
            # cycle that holds all callers' frames until a garbage collection.
            del pending

    def close(self) -> None:
        """End the thread after the exchange in progress."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, exchange: Exchange) -> Exchanged:
        start = time.perf_counter()
        clipped = self._clipping.clip(exchange.gradients)
        gradients = Gradients(
            pack_dense(self._layout, clipped), pack_rows(self._layout, clipped)
        )
        packed = time.perf_counter()
        self._convert_seconds.observe(packed - start)
        pushed = self._link.push(gradients, exchange.order)
        self._push_seconds.observe(time.perf_counter() - packed)
        arena = None
        if pushed.pulled is not None:
            arena = self._fill(*self._link.took(pushed.pulled))
        elif exchange.order.pull or not pushed.accepted:
            arena = self.pull()
        return Exchanged(pushed, arena)
