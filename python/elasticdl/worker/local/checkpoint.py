"""Checkpoints of strategy local: everything of this process, as one shard.

Owns what goes in, the copy between two steps and the thread that writes it. Called by
the local trainer between steps. Who wants one, and when, is the master's business.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from elasticdl.checkpoint import reshard, store
from elasticdl.checkpoint.layout import (
    AVERAGE,
    FIRST_STEP,
    ITERATIONS,
    OWN_RATE,
    SET_RATE,
)
from elasticdl.checkpoint.optimizer_kind import class_name, listed, same_kind
from elasticdl.errors import CheckpointError, UnfitError
from elasticdl.job.heartbeats import LocalSnapshot, SnapshotDone
from elasticdl.model.optimizers import inner_optimizer
from elasticdl.model.state import non_trainable, read_state
from elasticdl.model.variables import (
    NamedVariable,
    assign,
    layout_variables,
    mismatches,
    to_buffers,
    trainable_variables,
    view,
)
from elasticdl.tensor.placement import place
from elasticdl.worker.local.optimizer_state import (
    as_stored,
    held_rates,
    nadam_product,
    passed_on,
    restored,
    slots_of,
    value_of,
    variables_beside,
)
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.untrained import load_untrained

log = logging.getLogger(__name__)

Progress = Callable[[int], None]
# How often a worker that makes no more steps looks whether another copy is wanted.
_HOLD_SECONDS = 0.05


class LocalState:
    """Values, optimizer slots and non-trainable state of one process."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        config: str,
        *,
        beside: Sequence[keras.optimizers.Optimizer] = (),
        rate: LearningRate | None = None,
    ) -> None:
        """Take a built model, its optimizer and the optimizer's JSON.

        `beside` are the optimizers that a training step of the model's own uses, in a
        fixed order and with their variables made; `rate` sets the optimizer's.
        """
        self._rate = rate
        self._optimizer = optimizer
        self._config = config
        self._trainable = trainable_variables(model)
        self._state = non_trainable(model)
        self._layout = place(layout_variables(self._trainable, {}), 1)
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        inner = inner_optimizer(optimizer)
        # Not `optimizer.iterations`: that is no variable where gradients accumulate.
        self._iterations = next(v for v in inner.variables if v.name == "iteration")
        self._slots, self._others = slots_of(
            optimizer, self._trainable, self._iterations
        )
        self._others.update(variables_beside(beside))
        held = held_rates(optimizer, beside)
        jobs = passed_on(optimizer, held)  # `LearningRate` sets these
        self._held_rates = {n: held[n] for n in held if n not in jobs}
        # Made with the initial values: those of a checkpoint come later.
        self._as_values = [
            slot for slot, of in self._slots.items() if self._equals_values(of)
        ]

    def write(self, version: int) -> Callable[[Path, Progress], Any]:
        """Copy everything now; return a function that writes it, for another thread."""
        values = to_buffers([view(v.variable) for v in self._trainable], self._layout)[
            0
        ]
        slots = {
            name: to_buffers(
                [
                    view(by_name[v.name])
                    if v.name in by_name
                    # Of several optimizers perhaps one alone averages.
                    else view(v.variable)
                    if name == AVERAGE
                    else np.zeros(v.shape, np.float32)
                    for v in self._trainable
                ],
                self._layout,
            )[0]
            for name, by_name in self._slots.items()
        }
        others = {name: as_stored(v) for name, v in self._others.items()}
        others.update({n: one.stored() for n, one in self._held_rates.items()})
        tensors = reshard.shard_tensors(
            self._layout,
            0,
            values,
            slots,
            scalars={ITERATIONS: float(value_of(self._iterations)), **self._own_rate()},
            states={**read_state(self._state.everything), **others},
        )
        meta = reshard.shard_meta(self._layout, version=version, optimizer=self._config)
        return lambda directory, progress: store.write_shard(
            directory, 0, 1, tensors, meta, progress=progress
        )

    def restore(self, path: Path) -> int:
        """Load a checkpoint of any strategy; return its version.

        Raises CheckpointError, UnfitError naming the variables that it does not have
        or has in another shape.
        """
        whole = reshard.load_all(path)
        arrays = {**whole.states, **whole.values}
        wrong = mismatches(self._trainable, self._trainable, arrays)
        if wrong:
            raise UnfitError(
                f"{path}: does not fit the model: {'; '.join(wrong)}; expected a "
                "checkpoint of this model: train the one that wrote it"
            )
        for item in self._trainable:
            assign(item.variable, arrays[item.name])
        load_untrained(self._state, arrays, path)
        self._restore_optimizer(path, whole)
        return whole.version

    def end(self, path: Path, whole: reshard.Whole) -> None:
        """Make of the values in the model those with which training would have ended.

        They are those of a checkpoint: what its own optimizer makes of them.
        """
        if same_kind(class_name(whole.optimizer), class_name(self._config)):
            self._restore_optimizer(path, whole)
            variables = [item.variable for item in self._trainable]
            self._optimizer.finalize_variable_values(variables)

    def _own_rate(self) -> dict[str, float]:
        if self._rate is None or self._rate.own is None or self._rate.last is None:
            return {}
        return {OWN_RATE: self._rate.own, SET_RATE: self._rate.last}

    def _restore_optimizer(self, path: Path, whole: reshard.Whole) -> None:
        """Restore the slots that fit the job's optimizer."""
        inner = inner_optimizer(self._optimizer)
        wrote, mine = class_name(whole.optimizer), class_name(self._config)
        if not same_kind(wrote, mine):
            log.warning(
                "%s was written with %s, the job's optimizer is %s: it begins with new "
                "slots and at its step 0",
                path,
                wrote,
                mine,
            )
            self._begin_anew(path, whole)
            return
        self._restore_slots(path, whole, list(self._slots))
        new = []
        for name, variable in self._others.items():
            array, shape = whole.states.get(name), tuple(variable.shape)
            old = whole.scalars.get(variable.name)  # of checkpoints written before
            if array is not None and array.shape == shape:
                variable.assign(restored(array, variable))
            elif old is not None and not shape:
                variable.assign(old)
            elif shape:
                new.append(variable.name)
        _tell_new(path, new)
        self._restore_rates(whole)
        since = whole.version - whole.scalars.get(FIRST_STEP, 0)
        self._iterations.assign(int(whole.scalars.get(ITERATIONS, since)))
        if isinstance(inner, keras.optimizers.Nadam):
            steps = int(value_of(self._iterations))
            steps //= inner.gradient_accumulation_steps or 1
            inner._u_product.assign(nadam_product(inner.beta_1, steps))  # noqa: SLF001 - no PS keeps it, and it has no public name

    def _restore_rates(self, whole: reshard.Whole) -> None:
        for name, held in self._held_rates.items():
            held.restore(whole.states.get(name))
        if self._rate is not None and {OWN_RATE, SET_RATE} <= whole.scalars.keys():
            self._rate.restore(whole.scalars[OWN_RATE], whole.scalars[SET_RATE])

    def _begin_anew(self, path: Path, whole: reshard.Whole) -> None:
        for slot in self._as_values:
            self._begin_as_values(self._slots[slot])
        # Averages of values belong to no kind of optimizer.
        self._restore_slots(path, whole, [AVERAGE])

    def _restore_slots(
        self, path: Path, whole: reshard.Whole, slots: Sequence[str]
    ) -> None:
        missing = []
        for slot in slots:
            stored = whole.slots.get(slot, {})
            lacking = []
            for name, variable in self._slots.get(slot, {}).items():
                array = stored.get(name)
                if array is not None and array.shape == tuple(variable.shape):
                    assign(variable, array)
                else:
                    lacking.append(name)
                    if slot == AVERAGE or slot in self._as_values:
                        self._begin_as_values({name: variable})
            if len(lacking) < len(self._slots.get(slot, {})):
                missing += [f"{slot} of {name}" for name in lacking]
            elif lacking:
                missing.append(slot)
        _tell_new(path, missing)

    def _equals_values(self, slot: dict[str, Any]) -> bool:
        """Whether a slot is the values, as ScheduleFreeAdamW's is before a step."""
        differ = False  # from zeros, as which others begin
        for item in self._in(slot):
            mine = item.numpy()
            if not np.array_equal(mine, value_of(slot[item.name])):
                return False
            differ = differ or bool(mine.any())
        return differ

    def _begin_as_values(self, slot: dict[str, Any]) -> None:
        for item in self._in(slot):
            slot[item.name].assign(item.variable)

    def _in(self, slot: dict[str, Any]) -> list[NamedVariable]:
        return [item for item in self._trainable if item.name in slot]


def _tell_new(path: Path, missing: Sequence[str]) -> None:
    if missing:
        log.warning(
            "%s has no %s that fits the job's optimizer: they begin anew",
            path,
            listed(sorted(set(missing))),
        )


class LocalCheckpoints:
    """Writes the checkpoints that the master asks for."""

    def __init__(
        self,
        state: LocalState,
        *,
        wanted: Callable[[], LocalSnapshot],
        tell: Callable[[SnapshotDone], None],
    ) -> None:
        """Take the source of requests and the receiver of outcomes."""
        self._state = state
        self._wanted = wanted
        self._tell = tell
        self._taken = ""
        self._thread: threading.Thread | None = None

    def between_steps(self, version: int, applied: Mapping[int, int]) -> bool:
        """Copy the state if a new checkpoint is wanted; a thread writes it.

        Returns whether one was.
        """
        request = self._wanted()  # once: the next answer may name none
        if not self._is_due(request):
            return False
        self.finish()
        self._taken = request.id
        done = SnapshotDone(id=request.id, version=version, applied=dict(applied))
        write = self._state.write(version)
        self._thread = threading.Thread(
            target=self._write,
            args=(write, Path(request.dir), done),
            name="checkpoint",
        )
        self._thread.start()
        return True

    @property
    def due(self) -> bool:
        """Whether a checkpoint is wanted of which no copy is made yet."""
        return self._is_due(self._wanted())

    def _is_due(self, request: LocalSnapshot) -> bool:
        return request.id not in ("", self._taken)

    @property
    def holds(self) -> bool:
        """Whether no step is to be made: the job stops, and its last copy is made."""
        wanted = self._wanted()
        return wanted.last and wanted.id in ("", self._taken)

    def or_hold(
        self, leaving: threading.Event
    ) -> Callable[[int, Mapping[int, int]], bool]:
        """Return `between_steps` that returns only when a step may be made again."""

        def between_steps(version: int, applied: Mapping[int, int]) -> bool:
            copied = self.between_steps(version, applied)
            while self.holds and not leaving.wait(_HOLD_SECONDS):
                copied |= self.between_steps(version, applied)
            return copied

        return between_steps

    def finish(self) -> None:
        """Wait for the checkpoint in progress."""
        if self._thread is not None:
            self._thread.join()

    def _write(
        self,
        write: Callable[[Path, Progress], Any],
        directory: Path,
        done: SnapshotDone,
    ) -> None:
        def progress(written: int) -> None:
            self._tell(replace(done, pinned_only=True, written_bytes=written))

        progress(0)
        try:
            entry = write(directory, progress)
        except CheckpointError as error:
            done = replace(done, error=str(error))
        else:
            done = replace(
                done, file=entry.file, file_bytes=entry.bytes, crc32=entry.crc32
            )
        self._tell(done)
