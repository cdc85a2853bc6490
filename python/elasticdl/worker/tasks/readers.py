"""Readers of a job's data, opened when first needed.

Owns which path and which reader belong to a kind of task. Called by the record loader,
errands and main. Must not import TensorFlow; a custom reader comes from the user's
module through a function that is handed in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elasticdl.data.reader import Metadata, Reader, open_reader
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataSpec
from elasticdl.job.tasks import TaskType
from elasticdl.job.words import DataKind

KIND_OF_TASK = {
    TaskType.TRAINING: DataKind.TRAINING,
    TaskType.EVALUATION: DataKind.VALIDATION,
    TaskType.PREDICTION: DataKind.PREDICTION,
}


@dataclass(frozen=True)
class RecordSample:
    """Some records of the data, from which shapes are learned."""

    metadata: Metadata
    records: list[bytes]


class Readers:
    """One reader per kind of data. Thread-safe."""

    def __init__(
        self, spec: DataSpec, custom_reader: Callable[[str], Reader | None]
    ) -> None:
        """Take the data section and the factory of custom readers."""
        self._spec = spec
        self._custom_reader = custom_reader
        self._lock = threading.Lock()
        self._open: dict[DataKind, Reader] = {}

    def of(self, kind: DataKind) -> Reader:
        """Return the reader. Raises DataError if there is nothing to read."""
        with self._lock:
            if kind not in self._open:
                self._open[kind] = self._make(kind)
            return self._open[kind]

    def of_task(self, task_type: TaskType) -> Reader:
        """Return the reader for a type of task."""
        return self.of(KIND_OF_TASK[task_type])

    def sample(self, kind: DataKind, num_records: int) -> RecordSample | None:
        """Return the first good records; None if there is no data (yet)."""
        try:
            reader = self.of(kind)
            for shard in reader.shards():
                end = min(shard.end, shard.start + num_records)
                found = reader.read(shard.source, shard.start, end, skip_bad=True)
                if found.values:
                    return RecordSample(reader.metadata, list(found.values))
        except DataError:
            return None
        return None

    def _make(self, kind: DataKind) -> Reader:
        path = self._spec.path_of(kind)
        root = Path(self._spec.root)
        # Classic readers get the path as the user wrote it where that is enough.
        custom = self._custom_reader(
            path if self._spec.root == "." else f"{root / path}"
        )
        if custom is not None:
            return custom
        return open_reader(
            path,
            data_root=root,
            format=self._spec.format,
            params=self._spec.reader_params,
        )
