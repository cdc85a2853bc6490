"""Three ways to turn a task's records into batches, from fastest to most literal.

Owns how fast a feed is: blocks through a vectorised map where the user's chain is maps
and shuffles only, one long-lived tf.data pipeline otherwise, a new pipeline per task
where the chain keeps something (a cache) from one task to the next. Called by
`feeding`. All three give the same records, each once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from elasticdl.data.formats.row_table import RowTable

_BLOCK_RECORDS = 1024  # Large enough to hide the call, small enough for the caches.
_BLOCK_BYTES = 64 << 20  # Blocks of large records must not fill the memory.

Element = Any


class FeedPlan(Protocol):
    """How the records of one task become batches."""

    order_preserved: bool

    def elements(self, records: Sequence[bytes]) -> Iterator[Element]:
        """Yield batches in the structure of the feed. Raises tf.errors.OpError."""


@dataclass
class BlockPlan:
    """Blocks of records through one vectorised call; batches are slices of blocks."""

    function: Callable[[tf.Tensor], Element]  # [n] strings -> batched element
    batch_size: int
    shuffle: bool
    seed: int
    order_preserved: bool
    columns: Callable[[RowTable], Element] | None = None  # the same, of rows
    _count: int = 0

    def elements(self, records: Sequence[bytes]) -> Iterator[Element]:
        records = self._ordered(records)
        step = self._block_records(records)
        for start in range(0, len(records), step):
            block = records[start : start + step]
            yield from self._slices(self._made(block), self._sizes(len(block)))

    def together(
        self, tasks: Sequence[Sequence[bytes]]
    ) -> Iterator[list[tuple[int, Element]]] | None:
        """Return (records, element) of several tasks by one call; None if impossible.

        Each task's are those of a call of its own: a call costs as much as a hundred
        records. Raises tf.errors.OpError.
        """
        count = self._count
        if any(self._shows_columns(records) for records in tasks):
            return None  # nothing is gained where nothing is parsed
        ordered = [self._ordered(records) for records in tasks]
        joined = [record for records in ordered for record in records]
        try:
            made = None
            if len(joined) <= self._block_records(joined):
                made = self._made(joined)
        finally:
            if made is None:
                self._count = count  # they are made one by one
        if made is None:
            return None
        sizes = [self._sizes(len(records)) for records in ordered]
        elements = self._slices(made, [size for task in sizes for size in task])
        return ([(size, next(elements)) for size in task] for task in sizes)

    def _ordered(self, records: Sequence[bytes]) -> Sequence[bytes]:
        if not self._shows_columns(records):
            records = list(records)
        if not self.shuffle:
            return records
        # Another order each time; the same ones in each run of a job.
        order = np.random.default_rng([abs(self.seed), self._count]).permutation(
            len(records)
        )
        self._count += 1
        return [records[i] for i in order.tolist()]

    def _made(self, block: Sequence[bytes]) -> Element:
        if self.columns is not None and isinstance(block, RowTable):
            try:
                return self.columns(block)
            except tf.errors.InvalidArgumentError:
                # A null, or a row of another length, makes another kind of column of
                # those beside it, too: their Examples tell which row is bad.
                block = list(block)
        return self.function(tf.constant(block))

    def _shows_columns(self, records: Sequence[bytes]) -> bool:
        return self.columns is not None and isinstance(records, RowTable)

    def _sizes(self, records: int) -> list[int]:
        """Return the sizes of a task's batches."""
        starts = range(0, records, self.batch_size)
        return [min(self.batch_size, records - start) for start in starts]

    def _block_records(self, records: Sequence[bytes]) -> int:
        if isinstance(records, RowTable):
            return max(1, _BLOCK_RECORDS // self.batch_size) * self.batch_size
        largest = max(len(records[0]), len(records[-1]), 1) if records else 1
        wanted = min(_BLOCK_RECORDS, _BLOCK_BYTES // largest)
        return max(1, wanted // self.batch_size) * self.batch_size

    def _slices(self, element: Element, sizes: Sequence[int]) -> Iterator[Element]:
        if len(sizes) == 1:
            yield element
            return
        yield from _cut(element, sizes)


def _cut(element: Element, sizes: Sequence[int]) -> Iterable[Element]:
    """Cut an element along the first axis.

    `tf.nest` packs any structure, and takes as long for one batch as the parser for
    thirty records; what feeds return is tuples and dicts of tensors.
    """
    kind = type(element)
    if tf.is_tensor(element):
        return _split(element, sizes)
    if kind in (tuple, list) and element:
        cuts = zip(*(_cut(part, sizes) for part in element), strict=True)
        return map(kind, cuts)
    if kind is dict and element:
        cuts = zip(*(_cut(part, sizes) for part in element.values()), strict=True)
        return (dict(zip(element, cut, strict=True)) for cut in cuts)
    flat = [part for part in tf.nest.flatten(element) if part is not None]
    if not flat:
        return [element] * len(sizes)
    cuts = zip(*(_split(tensor, sizes) for tensor in flat), strict=True)
    return (tf.nest.pack_sequence_as(element, cut) for cut in cuts)


def _split(tensor: Any, sizes: Sequence[int]) -> Sequence[Any]:
    """Split along the first axis in one call, since each slice costs a call."""
    if isinstance(tensor, tf.Tensor):
        parts: Sequence[Any] = tf.split(tensor, sizes)
        return parts
    ends = np.cumsum(sizes)  # ragged
    return [tensor[end - size : end] for end, size in zip(ends, sizes, strict=True)]


class PipelinePlan:
    """One tf.data pipeline for all tasks; its source is a variable of records."""

    def __init__(
        self, records: tf.Variable, dataset: Any, *, order_preserved: bool
    ) -> None:
        """Take the source variable and the batched dataset built on it."""
        self._records = records
        self._dataset = dataset
        self._lock = threading.Lock()
        self.order_preserved = order_preserved

    def elements(self, records: Sequence[bytes]) -> Iterator[Element]:
        if not records:
            return
        # The source reads the variable at an iterator's first element, so the lock
        # covers both; afterwards another task may set it.
        with self._lock, tf.device("CPU:0"):
            self._records.assign(tf.constant(list(records)))
            iterator = iter(self._dataset)
            first = next(iterator, None)
        if first is None:
            return
        yield first
        yield from iterator


def record_source() -> tuple[tf.Variable, Any]:
    """Return a variable of record strings and the dataset of its present value."""
    with tf.device("CPU:0"):
        variable = tf.Variable(
            tf.constant([], tf.string), shape=[None], trainable=False, dtype=tf.string
        )
    source = tf.data.Dataset.range(1).map(lambda _: variable.read_value()).unbatch()
    return variable, source


class RebuiltPlan:
    """A new pipeline for each task, for feeds with state such as a cache."""

    order_preserved = False

    def __init__(self, make: Callable[[Any], Any]) -> None:
        """Take the function from a dataset of records to a batched dataset."""
        self._make = make

    def elements(self, records: Sequence[bytes]) -> Iterator[Element]:
        if records:
            yield from self._make(
                tf.data.Dataset.from_tensor_slices(tf.constant(list(records)))
            )


def batched(dataset: Any, kind: str, batch_size: int) -> Any:
    """Return the dataset in batches of `batch_size`.

    `kind` is what `batches_itself` said: padded batches stay as the feed made them,
    because batches padded to different lengths do not join; others are cut anew.
    """
    if not kind:
        result = dataset.batch(batch_size)
    elif kind == "_PaddedBatchDataset":
        result = dataset
    else:
        result = dataset.rebatch(batch_size)
    return result.prefetch(2)
