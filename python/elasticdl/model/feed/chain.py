"""What the user's feed did to its dataset, read off the dataset it returned.

Owns the questions: one element per record? in order? anything kept between tasks? may
it run vectorised, and does that give the same? Called by `feeding`. TensorFlow shows
the chain in attributes that are not public; where they are missing, every answer is
the careful one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from elasticdl.errors import UserCodeError

Element = Any

# Enough to see a difference; the comparison is made before each first block.
_COMPARED_RECORDS = 4

_MAPS = {"_MapDataset", "_ParallelMapDataset"}
_PASSING = {"_PrefetchDataset", "_OptionsDataset"}
_SHUFFLE = "_ShuffleDataset"
_PADDED = "_PaddedBatchDataset"
_BATCHES = {"_BatchDataset", "_ParallelBatchDataset", _PADDED}
_MAKES_DATASETS = {
    "_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset",
    "_GroupByWindowDataset",
}  # fmt: skip
# What becomes of each record in these is known: one element, or none by what is in it.
_SEEN = _MAPS | _PASSING | _BATCHES | {
    _SHUFFLE, "_FilterDataset", "_UnbatchDataset", "_RebatchDataset", "_RepeatDataset",
    "CacheDataset", "_RestructuredDataset", "_WindowDataset",
}  # fmt: skip
# In a function: what gives batches where it gets batches.
_PASSING_OPS = {
    "Identity", "MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2",
    "PrefetchDataset", "ZipDataset", "ConcatenateDataset", "FilterDataset",
    "OptionsDataset", "RepeatDataset", "ShuffleDataset", "ShuffleDatasetV3",
}  # fmt: skip
# Keep nothing from one task to the next, so one pipeline can serve all tasks.
_STATELESS = _MAPS | _PASSING | _BATCHES | {
    _SHUFFLE, "_FilterDataset", "_FlatMapDataset", "_InterleaveDataset",
    "_ParallelInterleaveDataset", "_UnbatchDataset", "_RebatchDataset",
    "_TensorSliceDataset", "_TakeDataset", "_SkipDataset", "_ZipDataset",
    "_ConcatenateDataset", "_RangeDataset", "_TensorDataset", "_WindowDataset",
    "_GroupByWindowDataset",
}  # fmt: skip
# Stateful by name, but without an effect that depends on the order of records.
_HARMLESS_OPS = {
    "LookupTableFindV2", "ReadVariableOp", "PartitionedCall", "StatefulPartitionedCall",
    "HashTableV2", "Assert",
}  # fmt: skip


def chain_of(result: Any, source: Any) -> list[Any] | None:
    """Return the datasets after `source` up to `result`; None if they are no chain."""
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


def above(dataset: Any, source: Any) -> list[Any]:
    """Return the datasets that the source's records pass through, `dataset` last."""
    if dataset is source:
        return []
    found: list[Any] = []
    for below in getattr(dataset, "_inputs", list)():
        if below is source or (passed := above(below, source)):
            found += [] if below is source else passed
            found.append(dataset)
    return found


def keeps_order(chain: Sequence[Any] | None) -> bool:
    """Return whether the chain yields one element per record, in the records' order."""
    allowed = _MAPS | _PASSING
    if any(getattr(one, "_deterministic", "") == "false" for one in chain or ()):
        return False
    if chain and chain[-1].options().deterministic is False:
        return False
    kinds = _kinds(chain) if chain is not None else ["?"]
    while kinds and kinds[-1] in _BATCHES | _PASSING:
        kinds.pop()
    return all(kind in allowed for kind in kinds)


def unseen(result: Any, source: Any) -> list[str]:
    """Return reasons, in words, why an element cannot be traced to its record."""
    if result is source:
        return []
    passed = above(result, source)
    if not passed:
        return ["data that TensorFlow does not show to be made of the records"]
    kinds = {type(dataset).__name__ for dataset in passed if not _is_seen(dataset)}
    return sorted(kind.strip("_").removesuffix("Dataset") for kind in kinds)


def _is_seen(dataset: Any) -> bool:
    if type(dataset).__name__ in _SEEN:
        return True
    function = function_that_makes_datasets(dataset)
    return function is not None and _batching_in(function) != ""


def keeps_nothing(chain: Sequence[Any] | None) -> bool:
    """Return whether one pipeline may serve all tasks, since it keeps no state."""
    return chain is not None and all(kind in _STATELESS for kind in _kinds(chain))


def batches_itself(result: Any, source: Any, name: str) -> str:
    """Return how feed's dataset is batched, "" if it is not.

    Looks at all branches of a chain (`zip`, `concatenate`), and into functions that
    make batches, as that of `bucket_by_sequence_length`. Raises UserCodeError where
    some branches are batched and others are not.
    """
    kinds = _batchings(result, source)
    if "" in kinds and len(kinds) > 1:
        raise UserCodeError(
            f"{name} joins datasets of which some are batched and some are not; batch "
            "after zip or concatenate, or not at all"
        )
    # Where one branch is padded, batches do not join.
    return _PADDED if _PADDED in kinds else next(iter(kinds), "")


def _batchings(dataset: Any, source: Any) -> set[str]:
    if dataset is source:
        return {""}
    kind = type(dataset).__name__
    if kind in _BATCHES:
        return {kind}
    if kind == "_UnbatchDataset":
        return {""}
    function = function_that_makes_datasets(dataset)
    made = None if function is None else _batching_in(function)
    if made is not None:
        # Of group_by_window, what is of one batch belongs together.
        return {_PADDED if made and kind == "_GroupByWindowDataset" else made}
    found: set[str] = set()
    for below in getattr(dataset, "_inputs", list)():
        if below is source or above(below, source):
            found |= _batchings(below, source)
    return found


def function_that_makes_datasets(dataset: Any) -> Any | None:
    """Return the function of flat_map, interleave or group_by_window, else None."""
    if type(dataset).__name__ not in _MAKES_DATASETS:
        return None
    wrapped = getattr(dataset, "_reduce_func", getattr(dataset, "_map_func", None))
    return getattr(wrapped, "function", None)


def _batching_in(function: Any) -> str | None:
    """Return how the dataset in a function is batched, "" if it is not.

    None: it gives elements as it got them.
    """
    op = function.graph.outputs[0].op
    while op.inputs and op.type in _PASSING_OPS:
        op = op.inputs[0].op
    kind = op.type.partition("Dataset")[0]
    if kind == "PaddedBatch":
        return _PADDED
    if kind in {"Batch", "ParallelBatch"}:
        return "_BatchDataset"
    return None if op.type == "TensorDataset" else ""


def block_function(
    chain: Sequence[Any] | None, spec: Any
) -> Callable[[tf.Tensor], list[tf.Tensor]] | None:
    """Return a function record -> flat element if it may be vectorised, else None.

    It may when it is maps and shuffles, every component is a dense tensor of known
    shape (records of different lengths would be padded), and no op in the functions
    has a state of its own (a random op must draw anew for each record).
    """
    if chain is None or not _dense(spec):
        return None
    if any(kind not in _MAPS | _PASSING | {_SHUFFLE} for kind in _kinds(chain)):
        return None
    functions: list[Any] = [
        getattr(getattr(dataset, "_map_func", None), "function", None)
        for dataset in chain
        if type(dataset).__name__ in _MAPS
    ]
    if any(function is None or not _pure(function) for function in functions):
        return None

    def one(record: tf.Tensor) -> list[tf.Tensor]:
        flat = [record]
        for function in functions:
            result = function(*flat)
            flat = tf.nest.flatten(result)
        return flat

    return one


def _dense(spec: Any) -> bool:
    return all(
        isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined()
        for part in tf.nest.flatten(spec)
    )


def _pure(function: Any) -> bool:
    """Return whether no op of a function, or of those it calls, has state."""
    graphs = [function.graph]
    for inner in function.graph.as_graph_def(add_shapes=False).library.function:
        nodes = [node.op for node in inner.node_def]
        if any(_is_stateful(op) for op in nodes):
            return False
    return not any(
        _is_stateful(op.type) for graph in graphs for op in graph.get_operations()
    )


def _is_stateful(op: str) -> bool:
    if op in _HARMLESS_OPS:
        return False
    definition = op_def_registry.get(op)
    return definition is not None and bool(definition.is_stateful)


def has_shuffle(chain: Sequence[Any] | None) -> bool:
    """Return whether the chain shuffles: not with a buffer of one record."""
    buffers = [
        getattr(dataset, "_buffer_size", None)
        for dataset in chain or ()
        if type(dataset).__name__ == _SHUFFLE
    ]
    return any(tf.get_static_value(size) != 1 for size in buffers)


def vectorise(
    one: Callable[[tf.Tensor], list[tf.Tensor]], spec: Any
) -> Callable[[tf.Tensor], Element]:
    """Return [n] strings -> batched element. Tracing raises if `one` does not convert.

    No silent while loop: what does not convert runs in tf.data, which is faster then.
    """

    def block(records: tf.Tensor) -> Element:
        flat = tf.vectorized_map(one, records, fallback_to_while_loop=False)
        shaped = [
            tf.ensure_shape(tensor, [None, *component.shape])
            for tensor, component in zip(flat, tf.nest.flatten(spec), strict=True)
        ]
        return tf.nest.pack_sequence_as(spec, shaped)

    signature = [tf.TensorSpec([None], tf.string)]
    traced: Callable[[tf.Tensor], Element] = tf.function(
        block, input_signature=signature, autograph=False
    )
    return traced


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep what TensorFlow logs in this thread out of the log.

    Of a function that does not convert it logs each operation, as errors: it is no
    mistake of the user's.
    """
    here = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger = tf.get_logger()
    logger.addFilter(is_of_others)
    try:
        yield
    finally:
        logger.removeFilter(is_of_others)


def agrees(
    one: Callable[[tf.Tensor], list[tf.Tensor]],
    block: Callable[[tf.Tensor], Element],
    records: Sequence[bytes],
) -> bool:
    """Return whether the vectorised function equals the one for single records."""
    sample = records[:_COMPARED_RECORDS]
    together = tf.nest.flatten(block(tf.constant(sample)))
    return all(
        _same(tensor, column[row])
        for row, record in enumerate(sample)
        for tensor, column in zip(one(tf.constant(record)), together, strict=True)
    )


def _same(left: tf.Tensor, right: tf.Tensor) -> bool:
    if not left.dtype.is_floating:
        return bool(tf.reduce_all(left == right))
    first, second = (tf.cast(t, tf.float64).numpy() for t in (left, right))
    return bool(np.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True))
