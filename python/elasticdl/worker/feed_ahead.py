"""Batches of the next task, made while this one trains.

Owns the thread that feeds ahead. Called by `training`, from the worker's main thread.
Knows nothing of leases but their numbers; the feeder is in one thread's hands at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from elasticdl.model.feeding import BadInput, Batch, Feeder
from elasticdl.worker.records import LoadedTask

# All batches of a task are in memory at once, beside its records; a larger task is fed
# as it trains.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class _Fed:
    """A whole task's batches, and the records the feed could not parse."""

    batches: list[Batch]
    bad: list[BadInput]


class FeedAhead:
    """The feeder, one task ahead where there is one."""

    def __init__(self, feeder: Feeder) -> None:
        """Feed through `feeder`, which nobody else uses from now on."""
        self._feeder = feeder
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._ahead: tuple[int, Future[_Fed]] | None = None
        self._streaming = False
        self.bad: list[BadInput] = []  # of the task whose batches came last

    def begin(self, loaded: LoadedTask | None) -> None:
        """Make a task's batches now, in the background; nothing if that cannot be."""
        if loaded is None or self._ahead is not None or self._streaming:
            return
        if _is_small(loaded):
            feeding = self._pool.submit(self._feed, loaded)
            self._ahead = (loaded.task.lease_id, feeding)

    def batches(self, loaded: LoadedTask) -> Iterator[Batch]:
        """Yield a task's batches; `bad` is set at the end. Raises as Feeder.batches."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] != loaded.task.lease_id:
            wait([ahead[1]])  # of a task that was handed back: not wanted any more
            ahead = None
        if ahead is not None:
            fed = ahead[1].result()
        elif _is_small(loaded):
            fed = self._feed(loaded)
        else:
            yield from self._stream(loaded)
            return
        self.bad = fed.bad
        yield from fed.batches

    def _feed(self, loaded: LoadedTask) -> _Fed:
        batches = list(self._feeder.batches(loaded.records))
        return _Fed(batches, self._feeder.bad)

    def _stream(self, loaded: LoadedTask) -> Iterator[Batch]:
        self._streaming = True
        try:
            yield from self._feeder.batches(loaded.records)
            self.bad = self._feeder.bad
        finally:
            self._streaming = False


def _is_small(loaded: LoadedTask) -> bool:
    return sum(map(len, loaded.records)) <= _MOST_BYTES
