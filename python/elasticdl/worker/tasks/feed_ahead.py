"""Batches made by a thread of their own: of this task, and already of the next ones.

Short tasks that are there already are fed together. Owns that thread and what it has
made. Called by `training`, from the worker's main thread. Knows nothing of leases but
their numbers. The feeder is in the thread's hands alone, task after task.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from elasticdl.model.feed.unparsed import BadInput
from elasticdl.model.feeding import Batch, Feeder
from elasticdl.worker.tasks.records import LoadedTask

# Batches of a task in memory before they are trained; a whole task of usual size.
_MOST_BATCHES = 8
# Records of the tasks that are fed ahead, where they are more than one.
_MOST_RECORDS = 1024
# How often a thread that waits for room looks whether its task is still wanted.
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class _End:
    """The end of a task's batches: unparsable records, or the exception."""

    bad: list[BadInput]
    error: BaseException | None = None


_Bounded: TypeAlias = "queue.Queue[Batch | _End]"
_Made: TypeAlias = "queue.SimpleQueue[list[Batch] | _Bounded | _End]"


class _Feeding:
    """A task whose batches are being made."""

    def __init__(self, lease_id: int) -> None:
        self.lease_id = lease_id
        # All batches of a task, or the queue through which they come one by one. That
        # one is made by the feed's thread: a step would wait for its locks.
        self.made: _Made = queue.SimpleQueue()
        self.unwanted = False

    def put(self, into: _Bounded, item: Batch | _End) -> bool:
        """Hand something over, waiting for room; whether the task is still wanted."""
        while not self.unwanted:
            try:
                into.put(item, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False


class FeedAhead:
    """Runs the feeder in a thread ahead of the steps."""

    def __init__(
        self,
        feeder: Feeder,
        waits: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Use `feeder`, which nobody else uses from now on.

        `waits` gives a context for the time in which a batch is waited for.
        """
        self._feeder = feeder
        self._waits = waits
        self._wanted: queue.SimpleQueue[list[tuple[_Feeding, Sequence[bytes]]]]
        self._wanted = queue.SimpleQueue()
        # A daemon: a worker that leaves does not wait for what the feed is at.
        threading.Thread(target=self._run, name="feed", daemon=True).start()
        self._ahead: deque[_Feeding] = deque()  # in the order of the tasks
        self._current: _Feeding | None = None  # whose batches are being taken
        self.bad: list[BadInput] = []  # of the task whose batches came last

    @property
    def idle(self) -> bool:
        """Whether no task is being fed."""
        return not self._ahead

    def begin(self, tasks: Sequence[LoadedTask]) -> None:
        """Feed the next tasks after those before, as many as fit.

        Does nothing as long as one of those begun before was not taken.
        """
        if self._ahead or not tasks:
            return
        some, records = [tasks[0]], len(tasks[0].records)
        for task in tasks[1:]:
            records += len(task.records)
            if records > _MOST_RECORDS:
                break
            some.append(task)
        self._ahead.extend(self._start(some))

    def batches(self, loaded: LoadedTask) -> Iterator[Batch]:
        """Yield a task's batches; `bad` is set at the end. Raises as Feeder.batches."""
        feeding = None
        while self._ahead and feeding is None:
            first = self._ahead.popleft()
            if first.lease_id == loaded.task.lease_id:
                feeding = first
            else:
                first.unwanted = True  # it was handed back
        if self._current is not None:
            # One task at a time, also where somebody still holds the iterator of the
            # one before: the thread would wait for room in it for ever.
            self._current.unwanted = True
        feeding = self._current = feeding or self._start([loaded])[0]
        source: _Made | _Bounded = feeding.made
        try:
            while not isinstance(item := self._next(source), _End):
                if isinstance(item, list):
                    yield from item
                elif isinstance(item, Batch):
                    yield item
                else:
                    source = item
            self.bad = item.bad
            if item.error is not None:
                raise item.error
        finally:
            feeding.unwanted = True

    def _next(self, source: _Made | _Bounded) -> list[Batch] | Batch | _Bounded | _End:
        try:
            return source.get_nowait()
        except queue.Empty:
            with self._waits():
                return source.get()

    def _start(self, tasks: Sequence[LoadedTask]) -> list[_Feeding]:
        group = [(_Feeding(one.task.lease_id), one.records) for one in tasks]
        self._wanted.put(group)
        return [feeding for feeding, _ in group]

    def _run(self) -> None:
        while True:
            group = self._wanted.get()
            if len(group) == 1 or not self._feed_together(group):
                for feeding, records in group:
                    self._feed(feeding, records)

    def _feed_together(self, group: list[tuple[_Feeding, Sequence[bytes]]]) -> bool:
        """Feed tasks in one call; return whether that was possible."""
        try:
            found = self._feeder.together([records for _, records in group])
            if found is None:
                return False
            made = list(found)
        except Exception:  # noqa: BLE001 - each alone raises it again, where it belongs
            return False
        for (feeding, _), batches in zip(group, made, strict=True):
            feeding.made.put(batches)
            feeding.made.put(_End([]))
        return True

    def _feed(self, feeding: _Feeding, records: Sequence[bytes]) -> None:
        into: _Bounded = queue.Queue(_MOST_BATCHES)
        feeding.made.put(into)
        try:
            for batch in self._feeder.batches(records):
                if not feeding.put(into, batch):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again where it is trained
            feeding.put(into, _End([], error))
        else:
            feeding.put(into, _End(self._feeder.bad))
