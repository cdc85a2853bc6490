"""What the user's feed did to its dataset, read off the dataset it returned.

Owns the questions: one element per record? in order? anything kept between tasks? may
it run vectorised, and does that give the same? Called by `feeding`. TensorFlow shows
the chain in attributes that are not public; where they are missing, every answer is
the careful one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from elasticdl.errors import UserCodeError

Element = Any

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


def refuse_dropping(result: Any, source: Any, name: str) -> None:
    """Raise UserCodeError when feed drops records by their number or place.

    A feed sees one task at a time: what it drops there it drops of each task, and the
    records count as trained.
    """
    for dataset in _above(result, source):
        kind = type(dataset).__name__
        count = tf.get_static_value(getattr(dataset, "_count", None) or 0)
        if kind in _BATCHES | {"_RebatchDataset"}:
            drops = tf.get_static_value(getattr(dataset, "_drop_remainder", False))
            said = "drops what is left over of each task (drop_remainder=True)"
            instead = "batch without it, or return single records"
        elif kind == "_TakeDataset":
            drops, said = count is None or count >= 0, "takes some records of each task"
            instead = "take it out and set training.maxSteps, or give it less data"
        elif kind == "_SkipDataset":
            drops, said = count is None or count != 0, "skips records of each task"
            instead = "take it out: a CSV's header is no record here"
        elif kind == "_ShardDataset":
            drops, said = True, "takes a shard of each task"
            instead = "take it out: workers get different tasks anyway"
        else:
            continue
        if drops:
            raise UserCodeError(
                f"{name} {said}, so records would count as trained that never were; "
                + instead
            )


def _above(dataset: Any, source: Any) -> list[Any]:
    """Return the datasets that the source's records pass through, `dataset` last."""
    if dataset is source:
        return []
    found: list[Any] = []
    for below in getattr(dataset, "_inputs", list)():
        if below is source or (passed := _above(below, source)):
            found += [] if below is source else passed
            found.append(dataset)
    return found


def keeps_order(chain: Sequence[Any] | None) -> bool:
    """Say whether the chain gives one element per record, in the records' order."""
    allowed = _MAPS | _PASSING
    if chain and chain[-1].options().deterministic is False:
        return False
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
    """Say whether no op of a function, or of those it calls, has a state."""
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
    """Say whether the chain shuffles."""
    return chain is not None and _SHUFFLE in _kinds(chain)


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


def agrees(
    one: Callable[[tf.Tensor], list[tf.Tensor]],
    block: Callable[[tf.Tensor], Element],
    records: Sequence[bytes],
) -> bool:
    """Say whether the vectorised function gives what single records give."""
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
