"""The heartbeat that a master holds, and what ends it before its time.

Owns which version the master waits for, and whether it was told. Made by `worker.life`
and `ps.main`: the thread that beats calls, the threads that train say what they reach.
Must not know what a heartbeat carries.

A master holds heartbeats so that its orders arrive at once. What its callers have to
say waits meanwhile, up to half a second: hundreds of short steps, while a checkpoint
after each hundred was asked for. So a caller withdraws its heartbeat and sends another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import grpc

# Between two heartbeats of which the first was withdrawn: against a job that wants a
# checkpoint after each of its short steps.
LEAST_SECONDS = 0.05

Reply = TypeVar("Reply")
Reply_co = TypeVar("Reply_co", covariant=True)


class Call(Protocol, Generic[Reply_co]):
    """A call under way, as gRPC has it."""

    def result(self) -> Reply_co:
        """Return its answer. Raises grpc.RpcError, or FutureCancelledError."""

    def cancel(self) -> bool:
        """End it without an answer."""


class HeldCall:
    """One replica's heartbeats, one after the other. Thread-safe."""

    def __init__(self) -> None:
        """Begin without a call; the master waits for nothing."""
        self._lock = threading.Lock()
        self._call: Call[object] | None = None
        self._withdrawn = False
        self._awaited = 0
        self._told = 0
        self._began = 0.0

    def begins(self) -> None:
        """Note that a heartbeat is being made. What is reached from now on ends it."""
        with self._lock:
            self._withdrawn = False
        self._began = time.monotonic()

    def tells(self, version: int) -> None:
        """Note the version of the model that the heartbeat tells of."""
        with self._lock:
            self._told = version

    def answer(self, begin: Callable[[], Call[Reply]]) -> Reply | None:
        """Make the call and return its answer; None if it was withdrawn.

        Raises what the call raises.
        """
        call = begin()
        with self._lock:
            self._call = call
            withdrawn = self._withdrawn
        if withdrawn:
            call.cancel()
        try:
            return call.result()
        except grpc.FutureCancelledError:
            return None
        finally:
            with self._lock:
                self._call = None

    def hold_seconds(self, usual: float) -> float:
        """Return how long the master may hold the heartbeat about to be made.

        One that tells of the awaited version comes back at once: only its answer names
        the next one, and what the master waits for may lead to no order (a round of
        evaluation is under way; there are no validation data).
        """
        with self._lock:
            reached = 0 < self._awaited <= self._told
        return min(usual, LEAST_SECONDS) if reached else usual

    def pause_seconds(self) -> float:
        """Return how long to wait before the next heartbeat, after a withdrawn one."""
        return max(0.0, self._began + LEAST_SECONDS - time.monotonic())

    def awaits(self, version: int) -> None:
        """Note that the master waits for this version of the model; 0: for none."""
        with self._lock:
            self._awaited = version

    def reached(self, version: int) -> None:
        """Withdraw the heartbeat if the master waits for this version. Never waits."""
        # Read without the lock: it is asked after each step, and hardly ever true.
        if self._told < self._awaited <= version:
            self.withdraw(version)

    def withdraw(self, version: int = 0) -> None:
        """Have the next heartbeat sent now: there is something to tell."""
        with self._lock:
            self._told = max(self._told, version)
            self._withdrawn = True
            call = self._call
        if call is not None:
            call.cancel()
