"""Batches made by a thread of their own: of this task, and already of the next one.

Owns that thread and what it has made. Called by `training`, from the worker's main
thread. Knows nothing of leases but their numbers. The feeder is in the thread's hands
alone, task after task.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from elasticdl.model.feeding import BadInput, Batch, Feeder
from elasticdl.worker.records import LoadedTask

# Batches of a task in memory before they are trained; a whole task of usual size.
_MOST_BATCHES = 8
# How often a thread that waits for room looks whether its task is still wanted.
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class _End:
    """No more batches: the records that the feed could not parse, or what it raised."""

    bad: list[BadInput]
    error: BaseException | None = None


@dataclass(frozen=True)
class _Feeding:
    """A task that is being fed."""

    lease_id: int
    made: queue.Queue[Batch | _End] = field(
        default_factory=lambda: queue.Queue(_MOST_BATCHES)
    )
    unwanted: threading.Event = field(default_factory=threading.Event)

    def put(self, item: Batch | _End) -> bool:
        """Hand over; wait for room. Whether the task is still wanted."""
        while not self.unwanted.is_set():
            try:
                self.made.put(item, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False


class FeedAhead:
    """The feeder, ahead of the steps."""

    def __init__(self, feeder: Feeder) -> None:
        """Feed through `feeder`, which nobody else uses from now on."""
        self._feeder = feeder
        self._wanted: queue.SimpleQueue[tuple[_Feeding, list[bytes]]]
        self._wanted = queue.SimpleQueue()
        # A daemon: a worker that leaves does not wait for what the feed is at.
        threading.Thread(target=self._run, name="feed", daemon=True).start()
        self._ahead: _Feeding | None = None
        self._current: _Feeding | None = None  # whose batches are being taken
        self.bad: list[BadInput] = []  # of the task whose batches came last

    def begin(self, loaded: LoadedTask) -> None:
        """Feed the next task as soon as the one before it is fed; once is enough."""
        if self._ahead is None:
            self._ahead = self._start(loaded)

    def batches(self, loaded: LoadedTask) -> Iterator[Batch]:
        """Yield a task's batches; `bad` is set at the end. Raises as Feeder.batches."""
        feeding, self._ahead = self._ahead, None
        if feeding is not None and feeding.lease_id != loaded.task.lease_id:
            feeding.unwanted.set()  # it was handed back
            feeding = None
        if self._current is not None:
            # One task at a time, also where somebody still holds the iterator of the
            # one before: the thread would wait for room in it for ever.
            self._current.unwanted.set()
        feeding = self._current = feeding or self._start(loaded)
        try:
            while not isinstance(item := feeding.made.get(), _End):
                yield item
            self.bad = item.bad
            if item.error is not None:
                raise item.error
        finally:
            feeding.unwanted.set()

    def _start(self, loaded: LoadedTask) -> _Feeding:
        feeding = _Feeding(loaded.task.lease_id)
        self._wanted.put((feeding, loaded.records))
        return feeding

    def _run(self) -> None:
        while True:
            self._feed(*self._wanted.get())

    def _feed(self, feeding: _Feeding, records: list[bytes]) -> None:
        try:
            for batch in self._feeder.batches(records):
                if not feeding.put(batch):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again where it is trained
            feeding.put(_End([], error))
        else:
            feeding.put(_End(self._feeder.bad))
