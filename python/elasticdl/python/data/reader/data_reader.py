"""Base class of readers that a model module brings (`custom_data_reader`).

Owns the classic interface; model/classic_reader.py puts it behind the Reader protocol.
For user modules alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from elasticdl.data.reader import Metadata
from elasticdl.errors import UserCodeError

__all__ = ["AbstractDataReader", "Metadata", "check_required_kwargs"]


def check_required_kwargs(required_args: list[str], kwargs: Mapping[str, Any]) -> None:
    """Raise UserCodeError naming the keywords that a reader lacks."""
    missing = [name for name in required_args if kwargs.get(name) is None]
    if missing:
        raise UserCodeError(
            f"the reader needs {', '.join(missing)}, it got {sorted(kwargs)}; give it "
            "in custom_data_reader"
        )


class AbstractDataReader(ABC):
    """Reads ranges of records from wherever they are."""

    def __init__(self, **kwargs: Any) -> None:
        """Keep `kwargs`, which are `data.readerParams`."""
        self._kwargs = kwargs

    @abstractmethod
    def create_shards(self) -> Mapping[str, tuple[int, int]]:
        """Return {name: (first record, number of records)}."""

    @abstractmethod
    def read_records(self, task: Any) -> Iterator[Any]:
        """Yield the records [task.start, task.end) of shard `task.shard_name`.

        A record is bytes, or a list of values of type `records_output_types`. The
        range is also there as `task.shard.name`, `task.shard.start`, `task.shard.end`.
        """

    @property
    def records_output_types(self) -> Any:
        """TensorFlow type of a record that is a list of values."""
        return None

    @property
    def metadata(self) -> Metadata:
        """The third argument of `feed`."""
        return Metadata()
