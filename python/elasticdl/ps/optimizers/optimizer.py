"""The user's Keras optimizer, run on a PS's flat buffers without Keras.

Owns what all optimizers share: reading the serialized config, learning rates, weight
decay, clipping, gradient accumulation, dense and row-wise updates of one stretch.
Called by `ps/apply.py`, and for its checks before a job starts. Knows nothing of
versions made, pushes or RPC. The formulas are in `ps/optimizers/rules.py`, the loops in
`ps/optimizers/update_kernels.py`, the reader of configs in
`ps/optimizers/keras_config.py`.

`step` is always Keras's `iterations` before the update: 0 at the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.errors import CheckpointError, SpecError
from elasticdl.ps.optimizers import kernels, update_kernels
from elasticdl.ps.optimizers.keras_config import OptimizerConfig, parse_config
from elasticdl.ps.optimizers.kernels import Floats, Ids
from elasticdl.ps.optimizers.rule import Rule, Slots
from elasticdl.ps.optimizers.rules import RULES
from elasticdl.ps.optimizers.schedules import Schedule, schedule_from_config
from elasticdl.tensor.placement import Layout

ACCUMULATOR = "gradient_accumulator"
# Floats that a full pass with row-wise gradients handles at once: gradient, values
# and slots of it stay in the second-level cache.
_CHUNK = 1 << 15


def optimizer_from_json(text: str) -> Optimizer:
    """Return the optimizer of `json.dumps(keras.optimizers.serialize(optimizer))`.

    One more key is read beside Keras's: `exclude_from_weight_decay`, the list of names
    of variables that Keras's method of that name excluded (Keras does not serialize
    them).

    Raises:
        SpecError: it cannot be run on a PS; with the reason and what can be.
    """
    config = parse_config(text)
    try:
        rule = RULES[config.class_name].from_config(config.options)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"optimizer {config.class_name}: {error}; got {dict(config.options)}, "
            "expected numbers"
        ) from error
    return Optimizer(
        text=text,
        config=config,
        rule=rule,
        schedule=schedule_from_config(config.learning_rate),
    )


@dataclass(frozen=True)
class Optimizer:
    """One optimizer for all variables of one PS. Immutable: state is in slots."""

    text: str  # the JSON it came from; written into checkpoints
    config: OptimizerConfig
    rule: Rule
    schedule: Schedule | None = field(repr=False)

    @property
    def name(self) -> str:
        """Keras's class name."""
        return self.config.class_name

    @property
    def needs_worker_learning_rate(self) -> bool:
        """Whether only the worker's Python code can compute the schedule."""
        return self.schedule is None

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step (from 0), as Keras has it.

        Raises SpecError if `needs_worker_learning_rate`.
        """
        if self.schedule is None:
            raise SpecError(
                f"optimizer {self.name}: the learning rate is the user's own code: "
                "expected it with each push, got none"
            )
        return self.schedule(step)

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """Names of the slots and what fills them at the start."""
        sums = {ACCUMULATOR: 0.0} if self.config.accumulation_steps else {}
        averages = {AVERAGE: 0.0} if self.config.ema_momentum is not None else {}
        return {**self.rule.initial_slots, **sums, **averages}

    def slots(
        self, size: int, values: Floats | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Return new slots for a buffer of `size` floats.

        Averages start at `values`: a PS may begin in the middle, with values that a
        worker handed over.
        """
        slots = {
            name: np.full(size, value, np.float32)
            for name, value in self.initial_slots.items()
        }
        if values is not None and AVERAGE in slots:
            slots[AVERAGE][:] = values
        return slots

    def restore_slots(
        self, size: int, loaded: Mapping[str, NDArray[np.float32]]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the slots of a checkpoint, checked against this optimizer.

        Slots that it does not have are left out. Raises CheckpointError if one is
        missing or has another size.
        """
        slots = {}
        for name in self.initial_slots:
            array = loaded.get(name)
            if array is None or array.shape != (size,):
                got = "none" if array is None else f"{array.size} floats"
                has = ", ".join(sorted(loaded)) or "no slots"
                raise CheckpointError(
                    f"slot {name!r} of optimizer {self.name}: got {got} (the "
                    f"checkpoint has {has}), expected {size} floats; resume with the "
                    "optimizer that wrote the checkpoint"
                )
            slots[name] = array
        return slots

    def check(self, layout: Layout) -> None:
        """Raise SpecError for a layout on which this optimizer would not be exact."""
        names = {variable.name for variable in layout.variables}
        unknown = sorted(self.config.no_decay - names)
        if unknown:
            raise SpecError(
                f"exclude_from_weight_decay: got {', '.join(unknown)}, expected names "
                f"of trainable variables: {', '.join(sorted(names))}"
            )
        if self.config.clipnorm and self.config.accumulation_steps and layout.cut:
            raise SpecError(
                f"optimizer {self.name}: clipnorm with gradient_accumulation_steps "
                "needs the norm of the accumulated gradient of a whole variable, but "
                f"{', '.join(sorted(layout.cut))} is cut over {layout.num_ps} PS; use "
                "one PS (job.ps.replicas: 1) or clipvalue"
            )

    def decays(self, variable: str) -> bool:
        """Return whether weight decay applies to the variable of that name."""
        return bool(self.config.weight_decay) and variable not in self.config.no_decay

    def apply_dense(
        self,
        values: Floats,
        grads: Floats,
        slots: Slots,
        *,
        step: int,
        learning_rate: float,
        decay: bool = True,
        clip: bool = True,
    ) -> None:
        """Apply a gradient in place to flat slices of one length.

        With `clipnorm` the slices have to be a whole variable (`ps/apply.py`: spans),
        or `clip` is false: the worker did it.
        """
        steps = self.config.accumulation_steps
        if steps:
            sums = slots[ACCUMULATOR]
            kernels.add_scaled(sums, grads, np.float32(1))
            if (step + 1) % steps:
                return
            grads = sums / np.float32(steps)
            sums.fill(0)
        grads = self._clipped(grads, norm=clip)
        if decay:
            self._decay(values, learning_rate)
        step //= steps or 1
        self.rule.update(values, grads, slots, step=step, rate=learning_rate)

    def apply_rows(  # noqa: PLR0913 - row numbers beside what `apply_dense` takes
        self,
        values: Floats,
        ids: Ids,
        rows: Floats,
        slots: Slots,
        *,
        step: int,
        learning_rate: float,
        decay: bool = True,
        clip: bool = True,
    ) -> None:
        """Apply a row-wise gradient in place to `values` and `slots` [rows, row size].

        What Keras does with IndexedSlices (see `ps/optimizers/rule.py`): SGD without
        momentum and Adagrad touch the rows `ids` alone; all others move every row;
        weight decay shrinks every row. `ids` may be empty and come in any order,
        repeated ones should have been summed (`kernels.sum_rows`). `clip` as in
        `apply_dense`.

        Raises ValueError if shapes or row numbers do not fit; then nothing was changed.
        """
        check_rows(ids, rows, values.shape)
        steps = self.config.accumulation_steps
        if steps:
            kernels.scatter_add(slots[ACCUMULATOR], ids, rows, np.float32(1))
            if (step + 1) % steps:
                return
            # The sum is dense by now: Keras applies it as such.
            grads = (slots[ACCUMULATOR] / np.float32(steps)).reshape(-1)
            slots[ACCUMULATOR].fill(0)
            grads = self._clipped(grads, norm=clip)
            if decay:
                self._decay(values.reshape(-1), learning_rate)
            flat = {name: slot.reshape(-1) for name, slot in slots.items()}
            self.rule.update(
                values.reshape(-1), grads, flat, step=step // steps, rate=learning_rate
            )
            return
        rows = self._clipped(rows, norm=clip)
        if decay:
            self._decay(values.reshape(-1), learning_rate)
        if self.rule.touches_all_rows:
            self._pass_over_all(values, ids, rows, slots, step, learning_rate)
        elif ids.size:
            self.rule.update_rows(values, ids, rows, slots, rate=learning_rate)

    def average(self, values: Floats, averages: Floats, *, step: int) -> None:
        """Update the averages (EMA); overwrite the values as often as configured.

        Call it with `ema_momentum` alone, after a step's update, on all values.
        """
        momentum, often = self.config.ema_momentum, self.config.ema_overwrite_frequency
        updates = step // (self.config.accumulation_steps or 1)
        keep = np.float32(momentum if updates else 0.0)
        update_kernels.average(averages, values, keep, np.float32(1) - keep)
        if often and (updates + 1) % often == 0:
            values[:] = averages

    def _pass_over_all(
        self,
        values: Floats,
        ids: Ids,
        rows: Floats,
        slots: Slots,
        step: int,
        rate: float,
    ) -> None:
        # A dense pass in chunks, whose gradient is made in one small buffer.
        num_rows, row_size = values.shape
        size = max(1, _CHUNK // max(1, row_size))
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
        starts = np.arange(0, num_rows, size)
        bounds = np.searchsorted(ids, np.append(starts, num_rows))
        grads = np.zeros((min(size, num_rows), row_size), np.float32)
        for place, start in enumerate(starts.tolist()):
            stop = min(start + size, num_rows)
            mine = slice(bounds[place], bounds[place + 1])
            inside = ids[mine] - start
            kernels.scatter_add(grads, inside, rows[mine], np.float32(1))
            self.rule.update(
                values[start:stop].reshape(-1),
                grads[: stop - start].reshape(-1),
                {name: slot[start:stop].reshape(-1) for name, slot in slots.items()},
                step=step,
                rate=rate,
            )
            kernels.fill_rows(grads, inside, np.float32(0))

    def _decay(self, values: Floats, learning_rate: float) -> None:
        if self.config.weight_decay:
            share = np.float32(self.config.weight_decay)
            update_kernels.decay(values, share, np.float32(learning_rate))

    def _clipped(self, grads: Floats, *, norm: bool) -> Floats:
        if self.config.clipvalue is not None:
            most = np.float32(self.config.clipvalue)
            return np.clip(grads, -most, most)
        if norm and self.config.clipnorm is not None:
            most = np.float32(self.config.clipnorm)
            length = np.float32(np.sqrt(kernels.square_sum(grads.reshape(-1))))
            return grads * most / max(length, most)
        return grads

    def warm_up(self) -> None:
        """Compile every kernel of this optimizer; to be called before "ready"."""
        kernels.warm_up()
        for read_only in (False, True):
            values = np.zeros((1, 1), np.float32)
            rows, ids = np.zeros((1, 1), np.float32), np.zeros(1, np.int64)
            rows.flags.writeable = ids.flags.writeable = not read_only
            slots = {n: s.reshape(1, 1) for n, s in self.slots(1).items()}
            flat = {name: slot.reshape(-1) for name, slot in slots.items()}
            # The step at which an accumulated gradient is applied, so all code runs.
            step = (self.config.accumulation_steps or 1) - 1
            line = values.reshape(-1)
            self.apply_dense(line, rows[0], flat, step=step, learning_rate=1.0)
            self.apply_rows(values, ids, rows, slots, step=step, learning_rate=1.0)
            if AVERAGE in flat:
                self.average(line, flat[AVERAGE], step=step)


def check_rows(ids: Ids, rows: Floats, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the rows fit a table of this shape."""
    num_rows, row_size = shape
    if rows.shape != (ids.size, row_size) or rows.dtype != np.float32:
        raise ValueError(
            f"got rows of shape {rows.shape} and {rows.dtype} for {ids.size} row "
            f"numbers, expected ({ids.size}, {row_size}) and float32"
        )
    inside = not ids.size or (ids.min() >= 0 and ids.max() < num_rows)
    if ids.dtype != np.int64 or not inside:
        raise ValueError(
            f"got row numbers of {ids.dtype} from {ids.min()} to {ids.max()}, expected "
            f"int64 from 0 to {num_rows - 1}, counted from the start of the piece"
        )
