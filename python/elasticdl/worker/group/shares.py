"""The records of a member's share of a step, read and fed ahead of it.

Owns the thread that does both. Called by `worker.group.loop` with what is wanted now
and what will follow. Must not know other members, nor what the batches are for.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from elasticdl.errors import BadRecordError, is_storage_away
from elasticdl.job.tasks import SkippedRecord, Task, TaskType
from elasticdl.model.feed.unparsed import FeedError
from elasticdl.model.feeding import Batch, Feeder
from elasticdl.worker.group.plan import GroupTask
from elasticdl.worker.group.step import ShareBatches
from elasticdl.worker.tasks.records import LoadedTask

log = logging.getLogger(__name__)

# Shares of so many steps that follow are fed in one call: a call costs as much as a
# hundred records.
STEPS_AHEAD = 8
_MOST_RECORDS = 1024  # of them, as they may be large
# Shares that are kept: of this step, of the next, and of an attempt that was given up;
# more of them where they are small.
_LEAST = 4
_MOST = 2 * STEPS_AHEAD
# What was not read is tried again after so long.
RETRY_SECONDS = 2.0

_Key = tuple[int, int, int]
OwnRecords = tuple[GroupTask, int, int]  # of a step: from one to before another


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
        self._singly = 0  # so often no more than one share is fed in a call

    def ask(self, task: GroupTask, start: int, end: int) -> Future[ShareBatches]:
        """Begin to read and feed records of a task, unless that has begun.

        The result raises NotReadError, LeftError, and what the feed raises.
        """
        key = (task.lease_id, start, end)
        if key not in self._made:
            self._made[key] = self._pool.submit(self._make, task, start, end)
            self._drop()
        return self._made[key]

    def _drop(self) -> None:
        records = sum(end - start for _, start, end in self._made)
        while len(self._made) > _LEAST:
            if len(self._made) <= _MOST and records <= 2 * _MOST_RECORDS:
                return
            (_, start, end), future = self._made.popitem(last=False)
            records -= end - start
            future.cancel()

    def ask_ahead(self, wanted: Sequence[OwnRecords]) -> None:
        """Begin to read and feed the shares of steps that follow.

        Several at once where the feed can do that, and most of them are not there yet:
        of any other feed the next one alone, as what follows may be divided anew.
        """
        some = [one for one in wanted if one[1] < one[2]]
        missing = [one for one in some if _key(one) not in self._made]
        if missing[:1] != some[:1] and 2 * len(missing) < len(some):
            return
        self._singly = max(0, self._singly - 1)
        # Only a feed that runs in blocks makes several; others would be read in vain.
        blocks = self._feeder.plan_name == "block" and not self._singly
        most = _fitting(missing) if blocks else 1
        if most <= 1:
            self.ask(*wanted[0])
            return
        futures = [Future[ShareBatches]() for _ in missing[:most]]
        self._made.update(zip(map(_key, missing), futures, strict=False))
        self._pool.submit(self._make_several, missing[:most], futures)
        self._drop()

    def close(self) -> None:
        """End the thread once it has made what it is at."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _make_several(
        self, wanted: Sequence[OwnRecords], futures: Sequence[Future[ShareBatches]]
    ) -> None:
        """Make shares in one call of the feed, or one by one where that fails."""
        loaded = self._read_several(wanted)
        made = self._made_together(loaded)
        for number, future in enumerate(futures):
            if not future.set_running_or_notify_cancel():
                continue  # nobody asked for it in time
            # Of a whole task its records are kept already, with their numbers.
            read = loaded[number] if loaded and not self._whole else None
            try:
                one = made[number] if made else self._make(*wanted[number], read)
            except BaseException as error:  # noqa: BLE001 - raised where it is used
                future.set_exception(error)
            else:
                future.set_result(one)

    def _read_several(self, wanted: Sequence[OwnRecords]) -> list[LoadedTask]:
        try:
            return [self._read(*one) for one in wanted]
        except BaseException:  # noqa: BLE001 - each alone raises it, where it belongs
            return []

    def _made_together(self, loaded: Sequence[LoadedTask]) -> list[ShareBatches]:
        """Return shares from one call of the feed; none if that is not possible."""
        try:
            found = self._feeder.together([one.records for one in loaded])
            fed = [tuple(batches) for batches in found] if found else []
        except BaseException:  # noqa: BLE001 - as above
            return []
        if loaded and not fed:  # not in blocks, or one of them does not parse
            self._singly = 2 * STEPS_AHEAD
            return []
        pairs = zip(loaded, fed, strict=True)
        return [_counted(one, batches, 0) for one, batches in pairs]

    def _make(
        self, task: GroupTask, start: int, end: int, read: LoadedTask | None = None
    ) -> ShareBatches:
        if start >= end:
            return ShareBatches((), 0)
        loaded, begin = read or self._patiently(task, start, end), start - task.start
        try:
            batches = tuple(self._feeder.batches(loaded.records))
        except FeedError as error:
            one = error.bad
            if self._whole and self._task is not None:
                one, loaded = replace(one, index=one.index + begin), self._task[1]
            raise loaded.unparsed(one) from error
        return _counted(loaded, batches, len(self._feeder.bad))

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
            except BaseException as error:
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


def _key(one: OwnRecords) -> _Key:
    task, start, end = one
    return task.lease_id, start, end


def _fitting(wanted: Sequence[OwnRecords]) -> int:
    """Return how many of the first shares are few enough records for one call."""
    records = itertools.accumulate(end - start for _, start, end in wanted)
    return sum(many <= _MOST_RECORDS for many in records)


def _counted(
    loaded: LoadedTask, batches: tuple[Batch, ...], num_unfed: int
) -> ShareBatches:
    read = len(loaded.records) + len(loaded.bad) - loaded.unplanned
    return ShareBatches(batches, read, len(loaded.bad) + num_unfed)


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
