"""What the job's optimizer takes over from the one that wrote a checkpoint.

Owns which slots fit and whether the count of steps goes on. Called by ps/server.py for
each checkpoint that is loaded; a pure function. Knows nothing of files.

The job's optimizer is the one that is run, whatever wrote the checkpoint. Slots fit
where both are of one kind: another rate, schedule, decay or clipping changes none of
them. Another kind begins with new slots and, as a new optimizer does in Keras, at step
0: with Adam's averages at zero and its count at 5,000 the first steps would be several
times too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.checkpoint.optimizer_kind import class_name, listed, parsed, same_kind
from elasticdl.checkpoint.reshard import Lacking
from elasticdl.ps.optimizers.optimizer import ACCUMULATOR, Optimizer

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class CarriedOver:
    """The slots that an optimizer starts with."""

    slots: dict[str, Floats]
    steps_go_on: bool
    new: tuple[str, ...]  # slots that begin anew, `m` or `m of dense/kernel`
    wrote: str  # name of the optimizer that wrote the checkpoint; "" is unknown

    def warning(self, name: str) -> str:
        """Return a warning about slots that were not carried over; "" if all were."""
        if self.steps_go_on and not self.new:
            return ""
        if self.steps_go_on:
            return (
                f"the checkpoint has no {listed(self.new)} that fits {name} as the "
                "job has it: they begin anew"
            )
        return (
            f"the checkpoint was written with {self.wrote}, the job's optimizer is "
            f"{name}: it begins with new slots and at its step 0"
        )


def carry_over(
    optimizer: Optimizer,
    values: Floats,
    loaded: Mapping[str, Floats],
    *,
    lacking: Mapping[str, Sequence[Lacking]] = MappingProxyType({}),
    written_by: str,
) -> CarriedOver:
    """Return the slots that `optimizer` starts with beside `values`.

    Args:
        optimizer: The job's.
        values: What is trained; averages that are not there begin at them.
        loaded: The checkpoint's slots.
        lacking: By slot the variables that the checkpoint has none for: they were not
            trained before. The others go on, whichever PS has them.
        written_by: JSON of the optimizer that wrote it; "" is unknown.
    """
    before, wrote = parsed(written_by), class_name(written_by)
    same = same_kind(wrote, optimizer.name)
    slots = optimizer.slots(values.size, values)
    new = []
    for name in slots:
        array = loaded.get(name)
        fits = array is not None and array.shape == values.shape
        if name == ACCUMULATOR:
            # A sum of half as many gradients is none of the new number.
            fits = fits and _accumulated(before) == optimizer.config.accumulation_steps
        elif name != AVERAGE:
            fits = fits and same
        if not (fits and array is not None):
            new.append(name)
            continue
        for one in lacking.get(name, ()):
            array[one.start : one.end] = slots[name][one.start : one.end]
            new.append(f"{name} of {one.variable}")
        slots[name] = array
    return CarriedOver(slots, same, tuple(new), wrote)


def _accumulated(tree: Mapping[str, object]) -> object:
    config = tree.get("config")
    return config.get("gradient_accumulation_steps") if isinstance(config, dict) else 0
