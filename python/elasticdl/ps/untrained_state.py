"""What PS 0 holds and no gradient trains, out of a checkpoint.

Owns where such a variable is looked for: among the checkpoint's states, or among its
values, where the job that wrote it trained the variable. Called by ps/restore.py.
worker/untrained.py is the same for one process that holds the whole model.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from elasticdl.checkpoint import reshard
from elasticdl.checkpoint.reshard import CheckpointReader
from elasticdl.errors import CheckpointError
from elasticdl.tensor.codec import Array
from elasticdl.tensor.shared_state import SharedState, StateLayout

log = logging.getLogger(__name__)

Untrained = Mapping[str, Array]


def as_written(
    reader: CheckpointReader, states: Mapping[str, Array]
) -> tuple[SharedState, Untrained]:
    """Return shared state and untrained weights as in the checkpoint."""
    text = str(reader.shard(0).meta.get("state", ""))
    try:
        layout = StateLayout.from_json(text) if text else StateLayout.of_arrays(states)
    except ValueError as error:
        raise _unfit(reader, error) from error
    shared = {variable.name for variable in layout.variables}
    rest = {name: array for name, array in states.items() if name not in shared}
    initial = SharedState(layout, np.zeros(layout.size, np.float32))
    return _joined(reader, states, initial), rest


def as_wanted(
    reader: CheckpointReader,
    states: Mapping[str, Array],
    shared: SharedState,
    untrained: Untrained,
) -> tuple[SharedState, Untrained]:
    """Return shared state and untrained weights under a worker's names and shapes.

    Raises CheckpointError naming the untrained weights that the checkpoint has neither
    among its states nor among its values, and whatever has another shape.
    """
    names = [*(variable.name for variable in shared.layout.variables), *untrained]
    elsewhere = [name for name in names if name not in states]
    found = {**states, **reshard.load_values(reader, elsewhere)}
    wrong = [
        f"{name}: got {found[name].shape if name in found else 'none'}, "
        f"expected {mine.shape}"
        for name, mine in untrained.items()
        if name not in found or found[name].shape != mine.shape
    ]
    if wrong:
        raise CheckpointError(
            f"{reader.path}: does not fit what the model does not train "
            f"(trainable=False): {'; '.join(wrong)}; expected a checkpoint of a model "
            "that has them"
        )
    new = [name for name in names if name not in found]
    if new:
        log.warning(
            "%s has no state for %s: it begins as the model makes it",
            reader.path,
            ", ".join(new),
        )
    state = _joined(reader, found, shared)
    return state, {
        name: found[name].astype(mine.dtype, copy=False)
        for name, mine in untrained.items()
    }


def _joined(
    reader: CheckpointReader, arrays: Mapping[str, Array], initial: SharedState
) -> SharedState:
    try:
        values = initial.layout.joined(arrays, initial.values)
    except ValueError as error:
        raise _unfit(reader, error) from error
    return SharedState(initial.layout, values)


def _unfit(reader: CheckpointReader, error: ValueError) -> CheckpointError:
    return CheckpointError(
        f"{reader.path}: {error}; expected a checkpoint of this model"
    )
