"""Classic reader of a text file: a record is a line.

Owns the classic interface over data/reader.py. For user modules alone. As in the
classic package a header is a record like others; without a reader of its own a job
reads CSV itself and knows the header.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticdl.data.reader import open_reader
from elasticdl.job.spec.job import DataFormat
from elasticdl.python.data.reader.data_reader import (
    AbstractDataReader,
    Metadata,
    check_required_kwargs,
)


class TextDataReader(AbstractDataReader):
    """Reads `filename` in shards of `records_per_task` lines."""

    def __init__(self, **kwargs: Any) -> None:
        """Take `filename` and `records_per_task`."""
        super().__init__(**kwargs)
        check_required_kwargs(["filename", "records_per_task"], kwargs)
        self._filename = str(kwargs["filename"])
        self._lines = open_reader(
            self._filename,
            data_root=Path(),
            format=DataFormat.CSV,
            params={"header": False},
        )

    def get_size(self) -> int:
        """Return the number of lines; a quoted line end does not end one."""
        return sum(shard.num_records for shard in self._lines.shards())

    def create_shards(self) -> dict[str, tuple[int, int]]:
        """Return {`<file>:shard_<number>`: (first line, number of lines)}."""
        size, step = self.get_size(), int(self._kwargs["records_per_task"])
        return {
            f"{self._filename}:shard_{number}": (start, min(step, size - start))
            for number, start in enumerate(range(0, size, step))
        }

    def read_records(self, task: Any, shuffle: bool = False) -> Iterator[bytes]:
        """Yield the lines of `task.shard`."""
        source = next(iter(self._lines.files))
        found = self._lines.read(
            source, task.shard.start, task.shard.end, skip_bad=False
        )
        lines = list(found.values)
        if shuffle:
            random.shuffle(lines)
        yield from lines

    @property
    def records_output_types(self) -> Any:
        """Records are strings."""
        return "string"

    @property
    def metadata(self) -> Metadata:
        """Empty: the names of the columns are unknown."""
        return Metadata()
