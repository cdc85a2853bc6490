"""The records of a member's share of a step, read and fed ahead of it.

Owns the thread that does both. Called by `worker.group.loop` with what is wanted now
and what will follow. Must not know other members, nor what the batches are for.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from elasticdl.errors import BadRecordError, is_storage_away
from elasticdl.job.tasks import SkippedRecord, Task, TaskType
from elasticdl.model.feed.unparsed import FeedError
from elasticdl.model.feeding import Feeder
from elasticdl.worker.group.plan import GroupTask
from elasticdl.worker.group.step import ShareBatches
from elasticdl.worker.tasks.records import LoadedTask

log = logging.getLogger(__name__)

# Shares that are kept: of this step, of the next, and of an attempt that was given up.
_MOST = 4
# What was not read is tried again after so long.
RETRY_SECONDS = 2.0

_Key = tuple[int, int, int]


class NotReadError(Exception):
    """Records of a share cannot be read; the cause says why."""


class LeftError(Exception):
    """The worker leaves, and no longer waits for records."""


class Leaving(Protocol):
    """Tells when a wait is to end (threading.Event)."""

    def is_set(self) -> bool:
        """Whether the worker leaves."""

    def wait(self, timeout: float) -> bool:
        """Wait; return whether the worker leaves."""


class Shares:
    """Reads and feeds shares in a thread of its own."""

    def __init__(
        self,
        load: Callable[[Task], LoadedTask],
        feeder: Feeder,
        *,
        whole_tasks: bool,
        tries: int,
        leaving: Leaving,
    ) -> None:
        """Take what reads and what makes batches.

        Args:
            load: Reads a task's records. Raises DataError and OSError.
            feeder: Used by nobody else.
            whole_tasks: Records have another order than in their file: each share is
                cut out of the whole task.
            tries: How often records may not be read for another reason than a bad one.
            leaving: Ends the wait for storage.
        """
        self._load = load
        self._feeder = feeder
        self._whole = whole_tasks
        self._tries = tries
        self._leaving = leaving
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="share")
        self._made: OrderedDict[_Key, Future[ShareBatches]] = OrderedDict()
        self._named: OrderedDict[int, Future[tuple[SkippedRecord, ...]]] = OrderedDict()
        self._task: tuple[int, LoadedTask] | None = None  # the whole one, by lease

    def ask(self, task: GroupTask, start: int, end: int) -> Future[ShareBatches]:
        """Begin to read and feed records of a task, unless that has begun.

        The result raises NotReadError, LeftError, and what the feed raises.
        """
        key = (task.lease_id, start, end)
        if key not in self._made:
            self._made[key] = self._pool.submit(self._make, task, start, end)
            while len(self._made) > _MOST:
                self._made.popitem(last=False)[1].cancel()
        return self._made[key]

    def close(self) -> None:
        """End the thread once it has made what it is at."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _make(self, task: GroupTask, start: int, end: int) -> ShareBatches:
        if start >= end:
            return ShareBatches((), 0)
        loaded, begin = self._patiently(task, start, end), start - task.start
        try:
            batches = tuple(self._feeder.batches(loaded.records))
        except FeedError as error:
            one = error.bad
            if self._whole and self._task is not None:
                one, loaded = replace(one, index=one.index + begin), self._task[1]
            raise loaded.unparsed(one) from error
        return ShareBatches(
            batches,
            len(loaded.records) + len(loaded.bad) - loaded.unplanned,
            len(loaded.bad) + len(self._feeder.bad),
        )

    def ask_bad(
        self, task: GroupTask, steps: Sequence[tuple[int, int]]
    ) -> Future[tuple[SkippedRecord, ...]]:
        """Begin to name the bad records of a task's steps, unless that has begun.

        Each member counts those of its share. Whoever reports the task reads these
        steps once more to name them, so that a lost member takes no names along.
        """
        if task.lease_id not in self._named:
            if self._whole:
                steps = [(task.start, task.end)]
            self._named[task.lease_id] = self._pool.submit(
                self._find_bad, task, tuple(steps)
            )
            while len(self._named) > _MOST:
                self._named.popitem(last=False)[1].cancel()
        return self._named[task.lease_id]

    def _find_bad(
        self, task: GroupTask, steps: Sequence[tuple[int, int]]
    ) -> tuple[SkippedRecord, ...]:
        found: list[SkippedRecord] = []
        for start, end in steps:
            loaded = self._patiently(task, start, end)
            for _ in self._feeder.batches(loaded.records):
                pass
            found += loaded.bad_with(self._feeder.bad)
        return tuple(found)

    def _patiently(self, task: GroupTask, start: int, end: int) -> LoadedTask:
        failed = 0
        while True:
            try:
                return self._read(task, start, end)
            except Exception as error:
                failed += not is_storage_away(error)
                if isinstance(error, BadRecordError) or failed >= self._tries:
                    raise NotReadError from error
                log.warning(
                    "Records %d to %d of %s were not read, trying again: %r",
                    start,
                    end - 1,
                    task.source,
                    error,
                )
            self._leaving.wait(RETRY_SECONDS)
            if self._leaving.is_set():
                raise LeftError

    def _read(self, task: GroupTask, start: int, end: int) -> LoadedTask:
        if not self._whole:
            return self._load(_task(task, start, end))
        if self._task is None or self._task[0] != task.lease_id:
            whole = self._load(_task(task, task.start, task.end))
            self._task = (task.lease_id, whole)
        loaded = self._task[1]
        # Records that come beyond the plan are the last share's.
        last = None if end == task.end else end - task.start
        records = loaded.records[start - task.start : last]
        if end == task.end:
            return replace(loaded, records=records)
        return replace(loaded, records=records, bad=(), unplanned=0)


def _task(task: GroupTask, start: int, end: int) -> Task:
    return Task(
        task_id=task.task_id,
        lease_id=task.lease_id,
        type=TaskType.TRAINING,
        source=task.source,
        start=start,
        end=end,
        epoch=task.epoch,
        seed=task.seed,
        replay=task.replay,
    )
