"""Three ways to turn a task's records into batches, from fastest to most literal.

Owns how fast a feed is: blocks through a vectorised map where the user's chain is maps
and shuffles only, one long-lived tf.data pipeline otherwise, a new pipeline per task
where the chain keeps something (a cache) from one task to the next. Called by
`feeding`. All three give the same records, each once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError

_BLOCK_RECORDS = 1024
_BLOCK_BYTES = 64 << 20
_COMPARED_RECORDS = 4

_MAPS = {"_MapDataset", "_ParallelMapDataset"}
_PASSING = {"_PrefetchDataset", "_OptionsDataset"}
_SHUFFLE = "_ShuffleDataset"
_BATCHES = {"_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset"}
# Keep nothing from one task to the next, so one pipeline can serve all tasks.
_STATELESS = _MAPS | _PASSING | _BATCHES | {
    _SHUFFLE, "_FilterDataset", "_FlatMapDataset", "_InterleaveDataset",
    "_ParallelInterleaveDataset", "_UnbatchDataset", "_RebatchDataset",
    "_TensorSliceDataset", "_TakeDataset", "_SkipDataset", "_ZipDataset",
    "_ConcatenateDataset", "_RangeDataset", "_TensorDataset",
}  # fmt: skip
# Stateful by name, but without an effect that depends on the order of records.
_HARMLESS_OPS = {
    "LookupTableFindV2", "ReadVariableOp", "PartitionedCall", "StatefulPartitionedCall",
    "HashTableV2", "Assert",
}  # fmt: skip

Element = Any


class Plan(Protocol):
    """Turns the records of one task into batched elements."""

    order_preserved: bool

    def elements(self, records: Sequence[bytes]) -> Iterator[Element]:
        """Yield batches, as feed structures them. Raises tf.errors.OpError."""


def chain_of(result: Any, source: Any) -> list[Any] | None:
    """Return the datasets from after `source` to `result`; None if it is no chain."""
    chain: list[Any] = []
    dataset = result
    while dataset is not source:
        inputs = list(getattr(dataset, "_inputs", list)())
        if len(inputs) != 1:
            return None
        chain.append(dataset)
        dataset = inputs[0]
    return chain[::-1]


def _kinds(chain: Sequence[Any]) -> list[str]:
    return [type(dataset).__name__ for dataset in chain]


def refuse_endless(chain: Sequence[Any] | None, name: str) -> None:
    """Raise UserCodeError when feed repeats the data without end."""
    for dataset in chain or ():
        if type(dataset).__name__ != "_RepeatDataset":
            continue
        if int(tf.get_static_value(getattr(dataset, "_count", -1)) or -1) < 0:
            raise UserCodeError(
                f"{name} repeats the data without end, so a task would never be over; "
                "take `repeat()` out and set training.epochs"
            )


def keeps_order(chain: Sequence[Any] | None) -> bool:
    """Say whether the chain gives one element per record, in the records' order."""
    allowed = _MAPS | _PASSING
    kinds = _kinds(chain) if chain is not None else ["?"]
    while kinds and kinds[-1] in _BATCHES | _PASSING:
        kinds.pop()
    return all(kind in allowed for kind in kinds)


def keeps_nothing(chain: Sequence[Any] | None) -> bool:
    """Say whether one pipeline may serve task after task."""
    return chain is not None and all(kind in _STATELESS for kind in _kinds(chain))


def batches_itself(chain: Sequence[Any] | None) -> str:
    """Return the kind of batching at the end of the chain, "" if there is none."""
    last = ""
    for kind in _kinds(chain or ()):
        if kind in _BATCHES:
            last = kind
        elif kind in {"_UnbatchDataset", "_FlatMapDataset"}:
            last = ""
    return last


def block_function(
    chain: Sequence[Any] | None, spec: Any
) -> Callable[[tf.Tensor], list[tf.Tensor]] | None:
    """Return one record -> flat element when the chain may run vectorised, else None.

    It may when it is maps and shuffles, every component is a dense tensor of known
    shape (records of different lengths would be padded), and no op in the functions
    has a state of its own (a random op must draw anew for each record).
    """
    if chain is None or any(
        kind not in _MAPS | _PASSING | {_SHUFFLE} for kind in _kinds(chain)
    ):
        return None
    for component in tf.nest.flatten(spec):
        if not isinstance(component, tf.TensorSpec):
            return None
        if not component.shape.is_fully_defined():
            return None
    functions = []
    for dataset in chain:
        if type(dataset).__name__ in _MAPS:
            function = getattr(getattr(dataset, "_map_func", None), "function", None)
            if function is None or not _pure(function):
                return None
            functions.append(function)

    def one(record: tf.Tensor) -> list[tf.Tensor]:
        flat = [record]
        for function in functions:
            result = function(*flat)
            flat = tf.nest.flatten(result)
        return flat

    return one


def _pure(function: Any) -> bool:
    graph = function.graph.as_graph_def(add_shapes=False)
    nodes = list(graph.node)
    for inner in graph.library.function:
        nodes.extend(inner.node_def)
    for node in nodes:
        if node.op in _HARMLESS_OPS:
            continue
        try:
            definition = tf.raw_ops.__dict__.get(node.op)
            stateful = definition is not None and _is_stateful(node.op)
        except KeyError:
            return False
        if stateful:
            return False
    return True


def _is_stateful(op: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op)
    return definition is None or bool(definition.is_stateful)


def has_shuffle(chain: Sequence[Any] | None) -> bool:
    """Say whether the chain shuffles."""
    return chain is not None and _SHUFFLE in _kinds(chain)


@dataclass
class BlockPlan:
    """Blocks of records through one vectorised call; batches are slices of blocks."""

    function: Callable[[tf.Tensor], Element]  # [n] strings -> batched element
    batch_size: int
    shuffle: bool
    seed: int
    order_preserved: bool
    _count: int = 0

    def elements(self, records: Sequence[bytes]) -> Iterator[Element]:
        if self.shuffle:
            # Another order each time; the same ones in each run of a job.
            order = np.random.default_rng([abs(self.seed), self._count]).permutation(
                len(records)
            )
            records = [records[i] for i in order]
            self._count += 1
        step = self._block_records(records)
        for start in range(0, len(records), step):
            block = records[start : start + step]
            yield from self._slices(self.function(tf.constant(block)), len(block))

    def _block_records(self, records: Sequence[bytes]) -> int:
        largest = max(len(records[0]), len(records[-1]), 1) if records else 1
        wanted = min(_BLOCK_RECORDS, _BLOCK_BYTES // largest)
        return max(1, wanted // self.batch_size) * self.batch_size

    def _slices(self, element: Element, size: int) -> Iterator[Element]:
        if size <= self.batch_size:
            yield element
            return
        flat = tf.nest.flatten(element)
        for start in range(0, size, self.batch_size):
            end = min(size, start + self.batch_size)
            yield tf.nest.pack_sequence_as(element, [t[start:end] for t in flat])


def vectorise(
    one: Callable[[tf.Tensor], list[tf.Tensor]], spec: Any
) -> Callable[[tf.Tensor], Element]:
    """Return [n] strings -> batched element. Tracing raises if `one` does not convert.

    No silent while loop: what does not convert runs in tf.data, which is faster then.
    """

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def block(records: tf.Tensor) -> Element:
        flat = tf.vectorized_map(one, records, fallback_to_while_loop=False)
        shaped = [
            tf.ensure_shape(tensor, [None, *component.shape])
            for tensor, component in zip(flat, tf.nest.flatten(spec), strict=True)
        ]
        return tf.nest.pack_sequence_as(spec, shaped)

    return block


def agrees(
    one: Callable[[tf.Tensor], list[tf.Tensor]],
    block: Callable[[tf.Tensor], Element],
    records: Sequence[bytes],
) -> bool:
    """Say whether the vectorised function gives what single records give."""
    sample = records[:_COMPARED_RECORDS]
    together = tf.nest.flatten(block(tf.constant(sample)))
    for row, record in enumerate(sample):
        alone = one(tf.constant(record))
        for tensor, column in zip(alone, together, strict=True):
            left, right = tensor.numpy(), column[row].numpy()
            if tensor.dtype.is_floating:
                same = np.allclose(
                    np.asarray(left, np.float64), np.asarray(right, np.float64),
                    rtol=1e-5, atol=1e-6, equal_nan=True,
                )  # fmt: skip
            else:
                same = bool(np.all(left == right))
            if not same:
                return False
    return True


class PipelinePlan:
    """One tf.data pipeline for all tasks: its source is a variable of records."""

    def __init__(
        self, records: tf.Variable, dataset: Any, *, order_preserved: bool
    ) -> None:
        """Take the source's variable and the batched dataset made of it."""
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
    """Return a variable of record strings and the dataset that reads it anew."""
    with tf.device("CPU:0"):
        variable = tf.Variable(
            tf.constant([], tf.string), shape=[None], trainable=False, dtype=tf.string
        )
    source = tf.data.Dataset.range(1).map(lambda _: variable.read_value()).unbatch()
    return variable, source


class RebuiltPlan:
    """A new pipeline for each task: for feeds that keep something, as a cache."""

    order_preserved = False

    def __init__(self, make: Callable[[Any], Any]) -> None:
        """Take the function from a dataset of records to the batched dataset."""
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
