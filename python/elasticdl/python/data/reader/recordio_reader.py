"""Classic reader of a folder of RecordIO files.

Owns the classic interface over data/reader.py. For user modules alone, which derive
from it or return it in `custom_data_reader`; without one the job reads RecordIO itself.
"""

from __future__ import annotations

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


class RecordIODataReader(AbstractDataReader):
    """Reads all RecordIO files of `data_dir`."""

    def __init__(self, **kwargs: Any) -> None:
        """Take `data_dir`."""
        super().__init__(**kwargs)
        check_required_kwargs(["data_dir"], kwargs)
        self._files = open_reader(
            str(kwargs["data_dir"]), data_root=Path(), format=DataFormat.RECORDIO
        )

    def create_shards(self) -> dict[str, tuple[int, int]]:
        """Return {file: (0, number of records)}."""
        return {s.source: (s.start, s.num_records) for s in self._files.shards()}

    def read_records(self, task: Any) -> Iterator[bytes]:
        """Yield the records of `task.shard`, as they were written."""
        shard = task.shard
        found = self._files.read(shard.name, shard.start, shard.end, skip_bad=False)
        yield from found.values

    @property
    def records_output_types(self) -> Any:
        """Records are strings."""
        return "string"

    @property
    def metadata(self) -> Metadata:
        """Empty: the format says nothing about its records."""
        return Metadata()
