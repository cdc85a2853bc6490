"""What a feed may not do: repeat without end, and drop records of each task.

Owns the sentences. Called by `feeding`, before the first record. A feed sees one task
at a time: what it drops by number or place it drops of each task, and the records count
as trained. What it leaves out by what is in them (`filter`) is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.feed.chain import above, function_that_makes_datasets

_BATCHES = {"Batch", "ParallelBatch", "PaddedBatch", "Rebatch"}
# Their elements hold several records, of which a function can drop some. Of a single
# record it drops parts.
_GROUPS = _BATCHES | {"Window", "GroupByWindow"}

_REMAINDER = (
    "drops what is left over of each task (drop_remainder=True)",
    "batch without it, or return single records",
)
_TAKE = (
    "takes some records of each task",
    "take it out and set training.maxSteps, or give it less data",
)
_SKIP = "skips records of each task", "take it out: a CSV's header is no record here"
_SHARD = (
    "takes a shard of each task",
    "take it out: workers get different tasks anyway",
)
_TAKE_WHILE = (
    "ends each task at the first record that does not meet a condition (take_while)",
    "use filter, which leaves out those records alone",
)
_WINDOW = (
    "leaves out records between its windows (window with a shift or stride)",
    "let shift be at most size, and stride 1",
)
_IGNORE = (
    "leaves out without a word what does not parse (ignore_errors)",
    "take it out and set data.onBadRecord: skip, which lists those records",
)

Said = tuple[str, str]  # what it does, and what to do instead


def refuse_endless(result: Any, source: Any, name: str) -> None:
    """Raise UserCodeError if feed repeats the data without end."""
    for dataset in above(result, source):
        if type(dataset).__name__ != "_RepeatDataset":
            continue
        if int(tf.get_static_value(getattr(dataset, "_count", -1)) or -1) < 0:
            raise UserCodeError(
                f"{name} repeats the data without end, so a task would never be over; "
                "take `repeat()` out and set training.epochs"
            )


def refuse_dropping(result: Any, source: Any, name: str) -> None:
    """Raise UserCodeError if feed drops records by their number or position."""
    grouped = False
    for dataset in above(result, source):
        said = _of_dataset(dataset)
        grouped |= _kind(dataset) in _GROUPS
        function = function_that_makes_datasets(dataset)
        if said is None and grouped and function is not None:
            said = next(_of_function(function), None)
        if said is not None:
            raise UserCodeError(
                f"{name} {said[0]}, so records would count as trained that never "
                f"were; {said[1]}"
            )


def _kind(dataset: Any) -> str:
    return type(dataset).__name__.removeprefix("_").removesuffix("Dataset")


def _of_dataset(dataset: Any) -> Said | None:
    """Return what a dataset drops; None if nothing."""

    def value(name: str) -> Any:
        return tf.get_static_value(getattr(dataset, name, None))

    def amount(name: str) -> Any:
        tensor = getattr(dataset, name, None)
        return 0 if tensor is None else tf.get_static_value(tensor)

    kind = _kind(dataset)
    if kind == "Window":
        layout = value("_size"), value("_shift"), value("_stride")
        return _of_window(layout, drops=value("_drop_remainder"))
    return _of_kind(kind, amount("_count"), drops=value("_drop_remainder"))


def _of_function(function: Any) -> Iterator[Said]:
    """Yield what the datasets inside a function of flat_map and the like drop."""
    for op in function.graph.get_operations():
        kind, has, _ = op.type.partition("Dataset")
        if not has:
            continue
        values = [tf.get_static_value(tensor) for tensor in op.inputs]
        if kind == "Window":
            said = _of_window(values[1:4], drops=values[-1])
        else:
            count = values[1] if len(values) > 1 else None
            said = _of_kind(kind, count, drops=values[-1] if values else None)
        if said is not None:
            yield said


def _of_kind(kind: str, count: Any, *, drops: Any) -> Said | None:
    """Return what a dataset drops; an unknown value counts as the worst one."""
    if kind in _BATCHES:
        return _REMAINDER if drops else None
    if kind == "Take":
        return _TAKE if count is None or count >= 0 else None
    if kind == "Skip":
        return _SKIP if count is None or count != 0 else None
    return {"Shard": _SHARD, "TakeWhile": _TAKE_WHILE, "IgnoreErrors": _IGNORE}.get(
        kind
    )


def _of_window(layout: Any, *, drops: Any) -> Said | None:
    size, shift, stride = layout
    if drops:
        return _REMAINDER
    if None in (size, shift, stride):
        return None
    return None if (shift <= size and stride == 1) or shift == 1 else _WINDOW
