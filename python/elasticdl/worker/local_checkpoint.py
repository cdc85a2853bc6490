"""Checkpoints of strategy local: everything of this process, as one shard.

Owns what goes in, the copy between two steps and the thread that writes it. Called by
the local trainer between steps. Who wants one, and when, is the master's business.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint import reshard, store
from elasticdl.errors import CheckpointError
from elasticdl.model.optimizers import inner_optimizer
from elasticdl.model.state import non_trainable, read_state, write_state
from elasticdl.model.variables import (
    layout_variables,
    to_buffers,
    trainable_variables,
)
from elasticdl.proto import master_pb2
from elasticdl.tensor.codec import Array
from elasticdl.tensor.placement import place

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]

_ITERATIONS = "iterations"
# Keras's name of a slot -> that of the PS, so that a checkpoint of one strategy starts
# a job of the other. Only Adam and its kin differ.
_ADAM_SLOTS = {"momentum": "m", "velocity": "v", "velocity_hat": "vhat"}


class LocalState:
    """Values, optimizer slots and non-trainable state of one process."""

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, config: str
    ) -> None:
        """Take a built model, its optimizer and that one's JSON."""
        self._optimizer = optimizer
        self._config = config
        self._trainable = trainable_variables(model)
        self._state = non_trainable(model).everything
        self._layout = place(layout_variables(self._trainable, {}), 1)
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self._slots, self._scalars = _slots_of(
            optimizer, {v.variable.path: v.name for v in self._trainable}
        )

    def write(self, version: int) -> Callable[[Path, Progress], Any]:
        """Copy everything now; return what writes it, for another thread."""
        values = to_buffers([v.numpy() for v in self._trainable], self._layout)[0]
        slots = {
            name: to_buffers(
                [
                    _value(by_name[v.name])
                    if v.name in by_name
                    else np.zeros(v.shape, np.float32)
                    for v in self._trainable
                ],
                self._layout,
            )[0]
            for name, by_name in self._slots.items()
        }
        scalars = {name: float(_value(v)) for name, v in self._scalars.items()}
        tensors = reshard.shard_tensors(
            self._layout,
            0,
            values,
            slots,
            scalars=scalars,
            states=read_state(self._state),
        )
        meta = reshard.shard_meta(self._layout, version=version, optimizer=self._config)
        return lambda directory, progress: store.write_shard(
            directory, 0, 1, tensors, meta, progress=progress
        )

    def restore(self, path: Path) -> int:
        """Load a checkpoint of any strategy; return its version.

        Raises CheckpointError naming the variables that it does not have.
        """
        whole = reshard.load_all(path)
        missing = [v.name for v in self._trainable if v.name not in whole.values]
        if missing:
            raise CheckpointError(
                f"{path}: has no variable {', '.join(missing)}; expected a checkpoint "
                "of this model"
            )
        for item in self._trainable:
            item.variable.assign(whole.values[item.name].reshape(item.shape))
        write_state(self._state, whole.states)
        self._restore_slots(whole.slots)
        for name, variable in self._scalars.items():
            if name in whole.scalars:
                variable.assign(whole.scalars[name])
        iterations = self._scalars[_ITERATIONS]
        if _ITERATIONS not in whole.scalars:
            iterations.assign(whole.version)
        inner = inner_optimizer(self._optimizer)
        if isinstance(inner, keras.optimizers.Nadam):
            steps = int(_value(iterations)) // (inner.gradient_accumulation_steps or 1)
            inner._u_product.assign(_nadam_product(inner.beta_1, steps))  # noqa: SLF001 - no PS keeps it, and it has no public name
        return whole.version

    def _restore_slots(self, stored: Mapping[str, Mapping[str, Array]]) -> None:
        for slot, by_name in self._slots.items():
            for name, variable in by_name.items():
                array = stored.get(slot, {}).get(name)
                if array is not None:
                    variable.assign(array.reshape(variable.shape))


def _value(variable: Any) -> NDArray[Any]:
    return np.array(keras.ops.convert_to_numpy(variable.value))


def _nadam_product(beta_1: float, updates: int) -> np.float32:
    # Keras's `u_product`, in float32 as it multiplies it up.
    product, half = np.float32(1), np.float32(0.5)
    for step in range(1, updates + 1):
        power = np.float32(float(np.float32(0.96)) ** step)
        product = product * np.float32(beta_1) * (1 - half * power)
        if not product:
            break
    return product


def _slots_of(
    optimizer: keras.optimizers.Optimizer, names: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the optimizer's variables: slot -> variable name -> it, and the scalars.

    Keras names a slot `<path of the variable with _ for />_<slot>`.
    """
    inner = inner_optimizer(optimizer)
    common = _ADAM_SLOTS if isinstance(inner, keras.optimizers.Adam) else {}
    slots: dict[str, dict[str, Any]] = {}
    # Not `optimizer.iterations`: that is no variable where gradients are accumulated.
    iterations = next(v for v in inner.variables if v.name == "iteration")
    scalars: dict[str, Any] = {_ITERATIONS: iterations}
    prefixes = sorted(
        ((path.replace("/", "_") + "_", name) for path, name in names.items()),
        key=lambda item: -len(item[0]),
    )
    for variable in optimizer.variables:
        if variable.name in {"iteration", "learning_rate"}:
            continue
        for prefix, name in prefixes:
            if variable.name.startswith(prefix):
                slot = variable.name.removeprefix(prefix)
                slots.setdefault(common.get(slot, slot), {})[name] = variable
                break
        else:
            if not variable.shape:
                scalars[variable.name] = variable
    return slots, scalars


class LocalCheckpoints:
    """Writes the checkpoints that the master asks for."""

    def __init__(
        self,
        state: LocalState,
        *,
        wanted: Callable[[], master_pb2.LocalSnapshot],
        tell: Callable[[master_pb2.SnapshotDone], None],
    ) -> None:
        """Take where requests come from and where the outcome goes."""
        self._state = state
        self._wanted = wanted
        self._tell = tell
        self._taken = ""
        self._thread: threading.Thread | None = None

    def between_steps(self, version: int, applied: dict[int, int]) -> None:
        """Copy the state if a new checkpoint is wanted; write it beside the steps."""
        request = self._wanted()
        if not request.id or request.id == self._taken:
            return
        self.finish()
        self._taken = request.id
        done = master_pb2.SnapshotDone(id=request.id, version=version, applied=applied)
        write = self._state.write(version)
        self._thread = threading.Thread(
            target=self._write,
            args=(write, Path(request.dir), done),
            name="checkpoint",
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait for the one that is being written."""
        if self._thread is not None:
            self._thread.join()

    def _write(
        self,
        write: Callable[[Path, Progress], Any],
        directory: Path,
        done: master_pb2.SnapshotDone,
    ) -> None:
        def progress(written: int) -> None:
            so_far = master_pb2.SnapshotDone()
            so_far.CopyFrom(done)
            so_far.pinned_only, so_far.written_bytes = True, written
            self._tell(so_far)

        progress(0)
        try:
            entry = write(directory, progress)
        except CheckpointError as error:
            done.error = str(error)
        else:
            done.file = entry.file
            done.file_bytes = entry.bytes
            done.crc32 = entry.crc32
        self._tell(done)
