"""What an optimizer is to a PS: its options, its slots, how gradients move values.

Owns the base class of `ps/optimizers/rules.py` and `ps/optimizers/adam_rules.py`,
called by `ps/optimizers/optimizer.py`, which does everything that all optimizers share
(decay, clipping, accumulation, learning rates). Knows no formula, no variables or steps
of the job.

How Keras on TensorFlow treats row-wise gradients (IndexedSlices), found by running it
(tests/integration/ps):

- SGD without momentum and Adagrad touch the given rows alone.
- All others do some arithmetic with a slot, which turns the gradient dense: every row
  of the variable moves at every step, as with a gradient of zero. `touches_all_rows`
  says so.
- Nothing there joins repeated rows. What is linear in the gradient adds them up, but
  each occurrence is squared (or its absolute value taken, or clipped) by itself, and
  the sum of squares is not the square of the sum. Rows come to a PS with repeated ones
  summed: it does what Keras does with the same gradient as a dense tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from elasticdl.ps.optimizers.kernels import Floats, Ids

Slots = Mapping[str, Floats]


@dataclass(frozen=True)
class Rule:
    """How one optimizer updates a span of values.

    `values`, `grads` and each slot are flat and of one length; `step` counts the
    updates made before (Keras's `iterations`, from 0).
    """

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the rule of a Keras config. Raises TypeError or ValueError."""
        read = {"float": float, "bool": bool}
        return cls(**{f.name: read[str(f.type)](config[f.name]) for f in fields(cls)})

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """Keras's names of the slots, with their initial values."""
        return {}

    @property
    def touches_all_rows(self) -> bool:
        """Whether rows without gradient move too; then `update_rows` is not used."""
        return True

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient in place."""
        raise NotImplementedError

    def update_rows(
        self, values: Floats, ids: Ids, rows: Floats, slots: Slots, *, rate: float
    ) -> None:
        """Apply rows `[n, row size]` in place to a table `[rows, row size]`."""
        raise NotImplementedError(f"{type(self).__name__} moves all rows")
