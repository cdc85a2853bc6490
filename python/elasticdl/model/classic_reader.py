"""A reader of the user's own (`custom_data_reader`) behind the Reader protocol.

Owns the translation: classic `create_shards` and `read_records(task)` <-> shards and
ranges. Made by `definition`, used by the worker. Knows nothing of leases.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.data.reader import Metadata, Records, Shard
from elasticdl.errors import DataError, UserCodeError
from elasticdl.model.feed.call import RECORD_DTYPE
from elasticdl.model.user_code import ModelCode


@dataclass(frozen=True)
class ClassicTask:
    """What the `read_records` of a classic reader gets."""

    shard: ClassicShard
    shard_name: str
    start: int
    end: int
    type: str = "training"


@dataclass(frozen=True)
class ClassicShard:
    """The same range under its later attribute names."""

    name: str
    start: int
    end: int
    indices: tuple[int, ...] = ()


class ClassicReader:
    """Implements data.reader.Reader by a user's AbstractDataReader.

    Calls to it are made one at a time, as the classic system made them, so it need not
    be thread-safe.
    """

    def __init__(self, reader: Any, code: ModelCode) -> None:
        """Take the user's reader object."""
        for method in ("create_shards", "read_records"):
            if not callable(getattr(reader, method, None)):
                raise UserCodeError(
                    f"custom_data_reader returned {type(reader).__name__} without "
                    f"`{method}`; derive it from AbstractDataReader"
                )
        self._reader = reader
        self._code = code
        self._lock = threading.Lock()

    @property
    def metadata(self) -> Metadata:
        """What the user's reader states about its records."""
        with self._code.running("the reader's metadata"):
            given = getattr(self._reader, "metadata", None)
        extra: dict[str, Any] = {}
        with self._code.running("the reader's records_output_types"):
            dtype = getattr(self._reader, "records_output_types", None)
        if dtype is not None and self._is_tensor_record():
            extra[RECORD_DTYPE] = tf.as_dtype(dtype).name
        return Metadata(
            column_names=tuple(getattr(given, "column_names", None) or ()),
            column_dtypes=tuple(
                str(d) for d in getattr(given, "column_dtypes", None) or ()
            ),
            extra={**getattr(given, "extra", {}), **extra},
            examples=bool(getattr(given, "examples", False)),
        )

    def _is_tensor_record(self) -> bool:
        shards = self.shards()
        first = next(
            iter(self._raw(shards[0].source, shards[0].start, shards[0].start + 1))
        )
        return not isinstance(first, bytes | str)

    def shards(self) -> Sequence[Shard]:
        with self._lock, self._code.running("the reader's create_shards()"):
            made = self._reader.create_shards()
        found = [
            Shard(str(name), int(start), int(start) + int(count))
            for name, start, count in _triples(made)
        ]
        if not any(shard.num_records for shard in found):
            raise DataError(
                f"{type(self._reader).__name__}.create_shards() gave no records"
            )
        return found

    def read(
        self,
        source: str,
        start: int,
        end: int,
        *,
        skip_bad: bool,  # noqa: ARG002 - a classic reader cannot tell bad records apart
    ) -> Records:
        values = [_as_bytes(record) for record in self._raw(source, start, end)]
        if len(values) != end - start:
            raise DataError(
                f"{type(self._reader).__name__}.read_records gave {len(values)} "
                f"records of {source}[{start}:{end}], expected {end - start}"
            )
        return Records(values)

    def _raw(self, source: str, start: int, end: int) -> list[Any]:
        task = ClassicTask(ClassicShard(source, start, end), source, start, end)
        with self._lock, self._code.running("the reader's read_records(task)"):
            return list(self._reader.read_records(task))


def _triples(made: Any) -> list[tuple[Any, Any, Any]]:
    if isinstance(made, Mapping):
        return [(name, start, count) for name, (start, count) in made.items()]
    try:
        return [(name, start, count) for name, start, count in made]
    except (TypeError, ValueError):
        raise UserCodeError(
            f"create_shards() returned {type(made).__name__}, expected a dict "
            "{name: (first record, number of records)}"
        ) from None


def _as_bytes(record: Any) -> bytes:
    if isinstance(record, bytes):
        return record
    if isinstance(record, str):
        return record.encode()
    array = np.asarray(record)
    return bytes(tf.io.serialize_tensor(tf.constant(array.tolist())).numpy())
