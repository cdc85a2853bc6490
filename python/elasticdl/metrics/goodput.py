"""The goodput ledger: every second of a process belongs to one cause.

Owns the causes and the arithmetic. Used by workers; the master adds what only it can
see (pending, preempted). Knows nothing of training.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elasticdl.job.words import WORKER_CAUSES, GoodputCause

CAUSES = WORKER_CAUSES


class GoodputLedger:
    """Seconds by cause; they always sum to the life so far. Thread-safe.

    One thread switches (the training loop); any may read.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        cause: str = GoodputCause.START,
        age_seconds: float = 0.0,
    ) -> None:
        """Begin now with `cause`; `clock` is monotonic seconds.

        `age_seconds`: how long the process has lived already; they go to `cause` too.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        self._require(cause)
        self._cause = cause
        self._since = clock() - age_seconds

    @property
    def current(self) -> str:
        """The cause that is counted now."""
        return self._cause

    def switch(self, cause: str) -> str:
        """Count another cause from now on; return the one before.

        Raises ValueError for a cause that is not one of CAUSES.
        """
        if cause == self._cause:  # one thread switches
            return cause
        self._require(cause)
        with self._lock:
            now = self._clock()
            self._seconds[self._cause] += now - self._since
            before, self._cause, self._since = self._cause, cause, now
        return before

    @contextmanager
    def cause(self, cause: str) -> Iterator[None]:
        """Count another cause within a block."""
        before = self.switch(cause)
        try:
            yield
        finally:
            self.switch(before)

    def seconds(self) -> dict[str, float]:
        """Return the seconds by cause up to now; they sum to the ledger's life."""
        with self._lock:
            result = dict(self._seconds)
            result[self._cause] += self._clock() - self._since
        return result

    @staticmethod
    def _require(cause: str) -> None:
        if cause not in CAUSES:
            raise ValueError(f"got cause {cause!r}, expected one of {CAUSES}")
