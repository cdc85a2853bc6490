"""Calls that have to move: ended when nothing of them came or went for too long.

Owns the thread that looks at them. Used by `rpc.ps.wire`, on both sides of a call that
carries chunks. Knows nothing of what they carry.

A limit on a whole call would have to guess how fast the network is and how many others
use it: a shard of any size may be pulled at any speed as long as something comes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
_LOOK_SECONDS = 0.5  # Fine enough for limits of 20 seconds.


class Watched:
    """One watched call. Its sender or receiver calls `expect` and `rest`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin without a limit."""
        self._clock = clock
        self._due = math.inf
        self.end: Callable[[], object] = lambda: None
        self.stalled = False  # ended because nothing moved
        self.seconds = math.inf  # the limit now

    def expect(self, seconds: float) -> None:
        """Set the time limit of the next chunk."""
        self.seconds = seconds
        self._due = self._clock() + seconds

    def rest(self) -> None:
        """Remove the limit: what is in progress does not depend on the network."""
        self.seconds = self._due = math.inf

    def is_due(self, now: float) -> bool:
        """Whether the next chunk was due before `now`."""
        return now > self._due

    def given(self, chunks: Iterable[T], seconds: float) -> Iterator[T]:
        """Yield the chunks, each to arrive within `seconds`."""
        self.expect(seconds)
        for chunk in chunks:
            self.rest()
            yield chunk
            self.expect(seconds)
        self.rest()

    def taken(self, chunks: Iterable[T], seconds: float) -> Iterator[T]:
        """Yield the chunks, each to be taken within `seconds`."""
        for chunk in chunks:
            self.expect(seconds)
            yield chunk
            self.rest()


class CallWatch:
    """All watched calls of a process. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic seconds. The thread starts with the first call."""
        self._clock = clock
        self._changed = threading.Condition()
        self._calls: dict[Watched, None] = {}  # oldest first
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, end: Callable[[], object] | None = None) -> Iterator[Watched]:
        """Watch a call; `end` (or the `end` set later) is called when it stalls."""
        call = Watched(self._clock)
        if end is not None:
            call.end = end
        with self._changed:
            self._calls[call] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="watch", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        try:
            yield call
        finally:
            with self._changed:
                self._calls.pop(call, None)

    def look(self) -> None:
        """End the calls that are due."""
        now = self._clock()
        with self._changed:
            stalled = [call for call in self._calls if call.is_due(now)]
            for call in stalled:
                del self._calls[call]
        for call in stalled:
            call.stalled = True
            call.end()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._calls))
            self.look()
            time.sleep(_LOOK_SECONDS)
