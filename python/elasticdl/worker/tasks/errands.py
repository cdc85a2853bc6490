"""Tasks that are not about batches: prepare the data, list a custom reader's shards.

Owns both. Called by main before TensorFlow is there (prepare) and by the loop. Must
not import TensorFlow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from elasticdl.data.reader import Reader
from elasticdl.job.tasks import ShardInfo, Task, TaskOutcome, TaskReport
from elasticdl.job.words import DataKind

log = logging.getLogger(__name__)


class Errands:
    """Runs PREPARE and SHARDS tasks."""

    def __init__(
        self,
        prepare: Callable[[], None],
        reader_of: Callable[[DataKind], Reader],
    ) -> None:
        """Take the functions that do the work.

        Args:
            prepare: Makes the data if it is not there. Raises DataError.
            reader_of: The reader of a kind of data.
        """
        self._prepare = prepare
        self._reader_of = reader_of

    def prepare(self, task: Task) -> TaskReport:
        """Prepare the data; return the report."""
        self._prepare()
        return _done(task)

    def shards(self, task: Task) -> TaskReport:
        """List the shards of the custom reader; return the report."""
        reader = self._reader_of(DataKind(task.target or DataKind.TRAINING))
        shards = tuple(ShardInfo(s.source, s.start, s.end) for s in reader.shards())
        return replace(_done(task), shards=shards)


def _done(task: Task) -> TaskReport:
    return TaskReport(
        task_id=task.task_id, lease_id=task.lease_id, outcome=TaskOutcome.DONE
    )
