"""A task's records: read, bad ones listed, permuted where the job wants it.

Owns the way from a leased task to bytes. Called by the task stream's thread, ahead of
the step that needs them. Must not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats.row_table import RowTable
from elasticdl.data.reader import Reader
from elasticdl.job.tasks import SkippedRecord, Task, TaskType
from elasticdl.model.feed.unparsed import BadInput, FeedError

Made = TypeVar("Made")


@dataclass(frozen=True)
class LoadedTask:
    """A leased task and its records."""

    task: Task
    records: Sequence[bytes]
    bad: tuple[SkippedRecord, ...] = ()
    unplanned: int = 0  # of `records`, beyond the task's range (data.records.Records)
    permuted: bool = False  # by the task's seed

    @property
    def is_as_planned(self) -> bool:
        """Whether the records are exactly those of the task's range, in place."""
        return not (self.bad or self.unplanned)

    @property
    def numbers(self) -> Sequence[int] | None:
        """The numbers of `records`, before they were permuted; None if not known."""
        if self.unplanned:
            return None
        planned = range(self.task.start, self.task.end)
        left_out = {one.record for one in self.bad}
        numbers = [n for n in planned if n not in left_out] if left_out else planned
        return numbers if len(numbers) == len(self.records) else None

    def bad_record(self, index: int, reason: str) -> SkippedRecord:
        """Return one of `records` as a bad one; -1 where its number is not known."""
        number, numbers = -1, self.numbers
        if numbers is not None:
            place = index
            if self.permuted:
                place = int(_order(len(self.records), self.task.seed)[index])
            number = numbers[place]
        return SkippedRecord(self.task.source, number, reason)

    def bad_with(self, unfed: Iterable[BadInput]) -> tuple[SkippedRecord, ...]:
        """Return all bad ones, with those of `records` that the feed left out."""
        more = (self.bad_record(one.index, one.reason) for one in unfed)
        return (*self.bad, *more)

    def fed(self, batches: Iterable[Made]) -> Iterator[Made]:
        """Yield what the feed makes of `records`; its error names the record."""
        try:
            yield from batches
        except FeedError as error:
            raise self.unparsed(error.bad) from error

    def unparsed(self, one: BadInput) -> FeedError:
        """Return what is told of one of `records`: its number is that in its file."""
        number = self.bad_record(one.index, one.reason).record
        which = f"record {number}" if number >= 0 else "a record"
        task = self.task
        return FeedError(one, f"{which} of {task.source}[{task.start}:{task.end}]")


# Tasks of these types carry a range of records; the others are errands.
WITH_RECORDS = frozenset({TaskType.TRAINING, TaskType.EVALUATION, TaskType.PREDICTION})


def permuted(records: Sequence[bytes], seed: int) -> Sequence[bytes]:
    """Return the records in the seed's order, which is the same on every worker."""
    order = _order(len(records), seed)
    if isinstance(records, RowTable):
        return records.take(order)
    return [records[i] for i in order]


def _order(number: int, seed: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64(seed)).permutation(number)


class RecordLoader:
    """Reads the records of tasks."""

    def __init__(
        self,
        reader_for: Callable[[TaskType], Reader],
        *,
        skip_bad: bool,
        shuffle_records: bool,
    ) -> None:
        """Read through `reader_for(type)`, which opens a reader on first use."""
        self._reader_for = reader_for
        self._skip_bad = skip_bad
        self._shuffle = shuffle_records

    def load(self, task: Task) -> LoadedTask:
        """Read the task's records. Raises DataError, BadRecordError unless skipped."""
        if task.type not in WITH_RECORDS:
            return LoadedTask(task, [])
        found = self._reader_for(task.type).read(
            task.source, task.start, task.end, skip_bad=self._skip_bad
        )
        values = found.values
        shuffles = self._shuffle and task.type == TaskType.TRAINING
        if shuffles:
            values = permuted(values, task.seed)
        bad = tuple(
            SkippedRecord(source=b.source, record=b.record, reason=b.reason)
            for b in found.bad
        )
        return LoadedTask(task, values, bad, found.unplanned, shuffles)
